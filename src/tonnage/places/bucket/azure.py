"""Requests to Azure: azure-identity's own chain of credentials, failures in words of ours."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from tonnage.errors import InputError, MissingExtra, TonnageError
from tonnage.http.client import open_client
from tonnage.places.bucket.api_client import GOES_ON, OK, TIMEOUT_S, ApiClient, APIRefusal

if TYPE_CHECKING:
    import httpx

MANAGEMENT: Final = "https://management.azure.com"
SIGN_IN: Final = "`az login`, or a service principal in AZURE_CLIENT_ID, AZURE_TENANT_ID, AZURE_CLIENT_SECRET"
EARLY_S: Final = 120.0  # before its end a token is asked for again


class AzureError(APIRefusal):
    """What an API of Azure refused."""


class AzureClient(ApiClient):
    """Signed for one of Azure's services, such as `https://management.azure.com` or `https://storage.azure.com`."""

    def __init__(self, service: str = MANAGEMENT, **more: Any) -> None:
        super().__init__(**more)
        self._scope, self._token, self._until = f"{service}/.default", "", 0.0

    def signed(self, headers: Mapping[str, str] | None) -> dict[str, str]:
        if time.time() > self._until - EARLY_S:
            credentials, core = self._credentials, import_module("azure.core.exceptions")
            try:
                token = credentials.get_token(self._scope)
            except core.AzureError as error:
                said = str(error).splitlines()[0]
                raise InputError(
                    f"Azure: no sign-in, or one that is refused or has expired: {said}", hint=SIGN_IN
                ) from error
            self._token, self._until = token.token, float(token.expires_on)
        return {**(headers or {}), "Authorization": f"Bearer {self._token}"}

    def refusal(self, answer: httpx.Response, url: str) -> TonnageError:
        try:
            error: dict[str, Any] = answer.json()["error"]
        except (ValueError, KeyError, TypeError):
            error = {}
        code, said = str(error.get("code") or ""), str(error.get("message") or answer.text[:200])
        host = url.split("/")[2]
        if answer.status_code == 401:
            return InputError(f"{host}: the sign-in is refused or has expired: {said}", hint=SIGN_IN)
        if code == "MissingSubscriptionRegistration":
            return AzureError(
                answer.status_code, code, said, hint="`az provider register --namespace Microsoft.Compute`"
            )
        hint = "an administrator grants it: `az role assignment create`" if answer.status_code == 403 else GOES_ON
        return AzureError(answer.status_code, code, f"{host}: {said}", hint=hint)

    @cached_property
    def _credentials(self) -> Any:
        import logging

        logging.getLogger("azure").addHandler(logging.NullHandler())  # it logs what it raises
        try:
            return import_module("azure.identity").DefaultAzureCredential()
        except ImportError as error:
            raise MissingExtra("Azure", "azure") from error


def management_url(path: str) -> str:
    """The address of a resource of Azure's Resource Manager, by its whole path."""
    root = os.environ.get("TONNAGE_AZURE_MANAGEMENT_URL") or MANAGEMENT
    return f"{root.rstrip('/')}/{path.lstrip('/')}"


def read_signed(url: str) -> str:
    """What an address that is signed by itself answers; empty where it answers nothing."""
    import httpx

    try:
        with open_client(timeout_s=TIMEOUT_S) as client:
            answer = client.get(url)
    except httpx.HTTPError:
        return ""
    return answer.text if answer.status_code in OK else ""
