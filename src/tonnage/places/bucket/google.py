"""Requests to Google Cloud's JSON APIs: google-auth's own chain of credentials, failures in words of ours."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from tonnage.errors import InputError, MissingExtra, TonnageError
from tonnage.http.retries import TemporaryError
from tonnage.places.bucket.api_client import GOES_ON, ApiClient, APIRefusal

if TYPE_CHECKING:
    import httpx

SCOPE: Final = "https://www.googleapis.com/auth/cloud-platform"
SIGN_IN: Final = "`gcloud auth application-default login`"
SERVICE_DISABLED: Final = "SERVICE_DISABLED"


class GoogleError(APIRefusal):
    """What an API of Google Cloud refused."""


def endpoint_of(service: str) -> str:
    """Where a service is: as gcloud's own variable CLOUDSDK_API_ENDPOINT_OVERRIDES_SERVICE says, else Google's."""
    changed = os.environ.get(f"CLOUDSDK_API_ENDPOINT_OVERRIDES_{service.upper()}")
    path = "compute/v1/" if service == "compute" else ""
    return changed or f"https://{service}.googleapis.com/{path}"


class GoogleClient(ApiClient):
    """Signs in once by google-auth's own chain."""

    def refusal(self, answer: httpx.Response, url: str) -> TonnageError:
        return refusal_of(answer, url)

    def signed(self, headers: Mapping[str, str] | None) -> dict[str, str]:
        auth, transport = _library()
        credentials = self._credentials
        if not credentials.valid:
            try:
                credentials.refresh(transport.Request())
            except auth.exceptions.TransportError as error:
                raise TemporaryError(f"no token: {error}") from error
            except auth.exceptions.GoogleAuthError as error:
                message = f"Google Cloud: the sign-in is refused or has expired: {error}"
                raise InputError(message, hint=SIGN_IN) from error
        return {**(headers or {}), "Authorization": f"Bearer {credentials.token}"}

    @cached_property
    def _credentials(self) -> Any:
        auth, _ = _library()
        try:
            found, _ = auth.default(scopes=[SCOPE])
        except auth.exceptions.GoogleAuthError as error:
            raise InputError(f"Google Cloud: {error}", hint=SIGN_IN) from error
        return found


def _library() -> tuple[Any, Any]:
    try:
        return import_module("google.auth"), import_module("google.auth.transport.requests")
    except ImportError as error:
        raise MissingExtra("Google Cloud", "google") from error


def refusal_of(answer: httpx.Response, url: str) -> TonnageError:
    """An error answer, in the API's own words, with the command that mends it where there is one."""
    try:
        error: dict[str, Any] = answer.json()["error"]
    except (ValueError, KeyError, TypeError):
        error = {}
    details = [one for one in error.get("details") or () if "reason" in one]
    older = (str(one.get("reason", "")) for one in error.get("errors") or ())
    reasons = [*(str(one["reason"]) for one in details), *older]
    reason, said = next(iter(reasons), str(error.get("status") or "")), str(error.get("message") or answer.text[:200])
    service = url.split("/")[2]
    if answer.status_code == 401:
        return InputError(f"{service}: the sign-in is refused or has expired: {said}", hint=SIGN_IN)
    if SERVICE_DISABLED in reasons or "accessNotConfigured" in reasons:
        return GoogleError(answer.status_code, SERVICE_DISABLED, said, hint=f"`gcloud services enable {service}`")
    hint = "an administrator grants it: `gcloud projects add-iam-policy-binding`" if answer.status_code == 403 else (
        GOES_ON
    )  # fmt: skip
    return GoogleError(answer.status_code, reason, f"{service}: {said}", hint=hint)
