"""Variables of a run that a cloud keeps: only the name of their store is sent, the machine reads them."""

from __future__ import annotations

import base64
import json
import os
from typing import Any, Final

from tonnage.errors import InputError, TonnageError

GCP_METADATA: Final = "http://metadata.google.internal"
VAULT_API: Final = "7.4"
GCP_SECRETS: Final = "https://secretmanager.googleapis.com"


def fill_environment(where: str, *, region: str | None = None) -> None:
    """Set the variables of a secret whose value is a JSON object of them: `aws:NAME`, `gcp:PROJECT/NAME`,
    `azure:VAULT/NAME`.

    InputError where it is no such object, TonnageError where it cannot be read.
    """
    cloud, _, name = where.partition(":")
    if cloud == "aws":
        text = _aws(name, region)
    elif cloud == "gcp":
        text = _gcp(name)
    elif cloud == "azure":
        text = _azure(name)
    else:
        raise InputError(f"'{where}' names no store of secrets", hint="aws:NAME, gcp:PROJECT/NAME or azure:VAULT/NAME")
    try:
        values: dict[str, Any] = json.loads(text)
        os.environ.update({str(key): str(value) for key, value in values.items()})
    except (ValueError, AttributeError):
        raise InputError(f"the secret {where} is no JSON object of variables", hint='{"HF_TOKEN": "..."}') from None


def _aws(name: str, region: str | None) -> str:
    from tonnage.places.bucket.s3 import Absent, client_of, translated

    client = client_of("secretsmanager", region=region)
    try:
        with translated(f"secret {name}"):
            return str(client.get_secret_value(SecretId=name)["SecretString"])
    except Absent as error:
        raise TonnageError(f"there is no secret {name}", hint="`aws secretsmanager list-secrets`") from error


def _gcp(name: str) -> str:
    """With the token of the machine's service account; the newest version."""
    import httpx

    project, _, secret = name.partition("/")
    metadata = os.environ.get("TONNAGE_GCP_METADATA_URL") or GCP_METADATA
    secrets = os.environ.get("TONNAGE_GCP_SECRETS_URL") or GCP_SECRETS
    try:
        with httpx.Client(timeout=20.0, trust_env=False) as client:
            path = "/computeMetadata/v1/instance/service-accounts/default/token"
            token = client.get(f"{metadata}{path}", headers={"Metadata-Flavor": "Google"}).raise_for_status().json()
            address = f"{secrets}/v1/projects/{project}/secrets/{secret}/versions/latest:access"
            signed = {"Authorization": f"Bearer {token['access_token']}"}
            answer = client.get(address, headers=signed).raise_for_status().json()
    except (httpx.HTTPError, KeyError, ValueError) as error:
        hint = "the machine's service account needs roles/secretmanager.secretAccessor"
        raise TonnageError(f"the secret {name} cannot be read: {error}", hint=hint) from error
    return base64.b64decode(answer["payload"]["data"]).decode()


def _azure(name: str) -> str:
    """With the machine's identity; the newest version."""
    from tonnage.places.bucket.azure import AzureClient

    vault, _, secret = name.partition("/")
    root = os.environ.get("TONNAGE_AZURE_VAULT_URL") or f"https://{vault}.vault.azure.net"
    client = AzureClient("https://vault.azure.net")
    try:
        told = client.call("GET", f"{root}/secrets/{secret}", params={"api-version": VAULT_API})
    except TonnageError as error:
        hint = "the machine's identity needs the role «Key Vault Secrets User»"
        raise TonnageError(f"the secret {name} cannot be read: {error.message}", hint=hint) from error
    return str(told["value"])
