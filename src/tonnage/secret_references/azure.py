"""Secrets of Azure Key Vault, REST (GET /secrets/NAME), by azure-identity's own chain of credentials."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from importlib import import_module
from typing import Final

from tonnage.errors import InputError, MissingExtra, TonnageError
from tonnage.secret_references.asking import ask, document_of, said_in
from tonnage.secret_references.forms import SecretReference

API: Final = "7.4"
SCOPE: Final = "https://vault.azure.net/.default"
SIGN_IN: Final = "`az login`, or a service principal in AZURE_CLIENT_ID, AZURE_TENANT_ID, AZURE_CLIENT_SECRET"


def read_secret(asked: SecretReference, environment: Mapping[str, str]) -> str:
    """The version that is named, else the newest. InputError, MissingExtra, TonnageError."""
    vault, _, name = asked.name.partition("/")
    root = (environment.get("TONNAGE_AZURE_VAULT_URL") or f"https://{vault}.vault.azure.net").rstrip("/")
    headers = {"Authorization": f"Bearer {_token(asked)}"}
    answer = ask(f"{root}/secrets/{name}", headers, asked, {"api-version": API})
    said = said_in(answer)
    if answer.status_code == 401:
        raise InputError(f"{asked}: Azure refuses the sign-in: {said}", hint=SIGN_IN)
    if answer.status_code == 403:
        raise InputError(f"{asked}: no permission, or a disabled secret: {said}",
                         hint="an administrator grants the role «Key Vault Secrets User» on the vault")  # fmt: skip
    if answer.status_code == 404:
        hint = f"`az keyvault secret list --vault-name {vault}`"
        raise InputError(f"{asked}: there is no such secret or version", hint=hint)
    value = document_of(answer, asked).get("value")
    if not isinstance(value, str):
        raise TonnageError(f"{asked}: the answer has no value", hint=f"is {root} a Key Vault?")
    return value


def _token(asked: SecretReference) -> str:
    try:
        identity, core = import_module("azure.identity"), import_module("azure.core.exceptions")
    except ImportError as error:
        raise MissingExtra(f"reading {asked}", "azure") from error
    logging.getLogger("azure").addHandler(logging.NullHandler())  # it logs what it raises
    try:
        with identity.DefaultAzureCredential() as credential:
            return str(credential.get_token(SCOPE).token)
    except core.AzureError as error:
        words = str(error).splitlines()[0]
        raise InputError(f"{asked}: no sign-in to Azure: {words}", hint=SIGN_IN) from error
