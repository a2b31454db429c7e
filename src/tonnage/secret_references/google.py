"""Secrets of Google Secret Manager, REST version 1 (`versions.access`), by google-auth's own chain of credentials.

A machine of Google reads them without google-auth too, by the token of its service account.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from functools import partial
from importlib import import_module
from typing import Final

from tonnage.errors import InputError, MissingExtra, TonnageError
from tonnage.secret_references.asking import TIMEOUT_S, ask, document_of, said_in
from tonnage.secret_references.forms import SecretReference

SCOPE: Final = "https://www.googleapis.com/auth/cloud-platform"
SIGN_IN: Final = "`gcloud auth application-default login`"
ENDPOINT: Final = "https://secretmanager.googleapis.com/"
METADATA: Final = "metadata.google.internal"
METADATA_HOST: Final = "GCE_METADATA_HOST"  # google-auth's own variable: another one answers
METADATA_TIMEOUT_S: Final = 3.0
OVERRIDE: Final = "CLOUDSDK_API_ENDPOINT_OVERRIDES_SECRETMANAGER"  # gcloud's own variable


def read_secret(asked: SecretReference, environment: Mapping[str, str]) -> str:
    """The version that is named, else the newest. InputError, MissingExtra, TonnageError."""
    name = asked.name if "/versions/" in asked.name else f"{asked.name}/versions/latest"
    root = (environment.get(OVERRIDE) or ENDPOINT).rstrip("/")
    answer = ask(f"{root}/v1/{name}:access", {"Authorization": f"Bearer {_token(asked, environment)}"}, asked)
    said, project = said_in(answer), asked.name.split("/")[1]
    if answer.status_code == 401:
        raise InputError(f"{asked}: Google refuses the sign-in: {said}", hint=SIGN_IN)
    if answer.status_code == 403:
        raise InputError(f"{asked}: no permission: {said}",
                         hint="an administrator grants roles/secretmanager.secretAccessor on the secret")  # fmt: skip
    if answer.status_code == 404:
        hint = f"`gcloud secrets list --project {project}`"
        raise InputError(f"{asked}: there is no such secret or version", hint=hint)
    if answer.status_code == 400:
        hint = f"`gcloud secrets versions list` shows which versions are enabled in {project}"
        raise InputError(f"{asked}: refused: {said}", hint=hint)
    payload = document_of(answer, asked).get("payload")
    try:
        return base64.b64decode(payload["data"], validate=True).decode("utf-8")  # type: ignore[index]
    except (KeyError, TypeError, binascii.Error):
        raise TonnageError(f"{asked}: the answer has no payload", hint=f"is {root} Secret Manager's API?") from None
    except UnicodeDecodeError:
        raise InputError(f"{asked}: the secret is binary, not text", hint="store it as UTF-8 text") from None


def _token(asked: SecretReference, environment: Mapping[str, str]) -> str:
    try:
        auth, transport = import_module("google.auth"), import_module("google.auth.transport.requests")
    except ImportError as error:
        token = _machines_token(asked, environment)
        if token is None:
            raise MissingExtra(f"reading {asked}", "google") from error
        return token
    try:
        credentials, _ = auth.default(scopes=[SCOPE])
        credentials.refresh(partial(transport.Request(), timeout=TIMEOUT_S))
    except auth.exceptions.TransportError as error:
        raise TonnageError(f"{asked}: Google gave no token: {error}", hint="can this machine reach Google?") from error
    except auth.exceptions.GoogleAuthError as error:
        raise InputError(f"{asked}: no sign-in to Google Cloud: {error}", hint=SIGN_IN) from error
    return str(credentials.token)


def _machines_token(asked: SecretReference, environment: Mapping[str, str]) -> str | None:
    """Of the service account of a machine of Google without google-auth; None where there is no metadata server.
    TonnageError where there is one and it gives no token.

    Source: Google, «Authenticate workloads using service accounts», Directly acquiring an access token.
    """
    import httpx

    host = environment.get(METADATA_HOST) or METADATA
    url = f"http://{host}/computeMetadata/v1/instance/service-accounts/default/token"
    try:
        with httpx.Client(timeout=METADATA_TIMEOUT_S, trust_env=False) as client:
            answer = client.get(url, headers={"Metadata-Flavor": "Google"})
    except (httpx.ConnectError, httpx.ConnectTimeout):
        return None
    except httpx.HTTPError as error:
        raise TonnageError(f"{asked}: the metadata server {host} gave no token: {error!r}",
                           hint="the same command tries again") from error  # fmt: skip
    if answer.status_code != 200:
        raise TonnageError(f"{asked}: the metadata server {host} answered {answer.status_code} and gave no token",
                           hint="give this machine a service account with the scope cloud-platform")  # fmt: skip
    try:
        return str(answer.json()["access_token"])
    except (ValueError, KeyError, TypeError):
        raise TonnageError(f"{asked}: the answer of the metadata server {host} has no token",
                           hint=f"is {METADATA_HOST} a metadata server of Google?") from None  # fmt: skip
