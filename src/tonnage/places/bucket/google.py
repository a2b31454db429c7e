"""Requests to Google Cloud's JSON APIs: google-auth's own chain of credentials, failures in words of ours."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final
from weakref import finalize

from tonnage.errors import InputError, MissingExtra, TonnageError
from tonnage.http.client import check_temporary, open_client, translated
from tonnage.http.retries import RetryPolicy, TemporaryError

if TYPE_CHECKING:
    import httpx

ATTEMPTS: Final = 8
TIMEOUT_S: Final = 60.0
SCOPE: Final = "https://www.googleapis.com/auth/cloud-platform"
SIGN_IN: Final = "`gcloud auth application-default login`"
OK: Final = range(200, 300)
SERVICE_DISABLED: Final = "SERVICE_DISABLED"


class GoogleError(TonnageError):
    """What an API refused: the HTTP status, and its own word for the reason."""

    def __init__(self, status: int, reason: str, message: str, *, hint: str) -> None:
        super().__init__(message, hint=hint)
        self.status, self.reason = status, reason


def endpoint_of(service: str) -> str:
    """Where a service is: as gcloud's own variable CLOUDSDK_API_ENDPOINT_OVERRIDES_SERVICE says, else Google's."""
    changed = os.environ.get(f"CLOUDSDK_API_ENDPOINT_OVERRIDES_{service.upper()}")
    path = "compute/v1/" if service == "compute" else ""
    return changed or f"https://{service}.googleapis.com/{path}"


class GoogleClient:
    """Signs in once, and asks again what may pass: throttling, failures, cut connections."""

    def __init__(self, *, attempts: int = ATTEMPTS, sleep: Callable[[float], None] = time.sleep) -> None:
        self._attempts, self._sleep = attempts, sleep

    def call(
        self, method: str, url: str, *, params: Mapping[str, Any] | None = None, body: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """The answer's document. GoogleError where the API refuses, TonnageError where it does not answer."""
        answer = self.send(method, url, params=params, json=body)
        found: dict[str, Any] = answer.json() if answer.content else {}
        return found

    def send(self, method: str, url: str, *, accept: tuple[int, ...] = (), **more: Any) -> httpx.Response:
        """The answer. `accept`: further statuses that are one."""

        return self.policy(url).insist(lambda: self.once(method, url, accept=accept, **more), "the request")

    def once(self, method: str, url: str, *, accept: tuple[int, ...] = (), **more: Any) -> httpx.Response:
        """One try. TemporaryError where another may do."""
        with translated(lambda words: TonnageError(f"{url}: {words}", hint="the same command goes on")):
            answer = self._http.request(method, url, headers=self._signed(more.get("headers")), **_rest(more))
        if answer.status_code in accept or answer.status_code in OK:
            return answer
        check_temporary(answer, f"{answer.status_code}")
        raise refusal_of(answer, url)

    def policy(self, url: str) -> RetryPolicy:
        """How often a request is tried again."""

        def give_up(_: str, failures: int, error: TemporaryError) -> TonnageError:
            host = url.split("/")[2]
            message = f"{host} does not answer after {failures} tries: {error}"
            return TonnageError(message, hint="the same command goes on")

        return RetryPolicy(attempts=self._attempts, wait=self._sleep, give_up=give_up)

    def stream(self, url: str, params: Mapping[str, Any]) -> Any:
        """An answer whose body is read piece by piece; a context manager."""
        return self._http.stream("GET", url, params=params, headers=self._signed(None))

    @cached_property
    def _http(self) -> httpx.Client:
        made = open_client(timeout_s=TIMEOUT_S)
        finalize(self, made.close)
        return made

    def _signed(self, headers: Mapping[str, str] | None) -> dict[str, str]:
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


def _rest(more: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in more.items() if key != "headers" and value is not None}


def refusal_of(answer: httpx.Response, url: str) -> TonnageError:
    """An answer that is none, in the API's own words, with the command that mends it where there is one."""
    try:
        told: dict[str, Any] = answer.json()["error"]
    except (ValueError, KeyError, TypeError):
        told = {}
    details = [one for one in told.get("details") or () if "reason" in one]
    older = (str(one.get("reason", "")) for one in told.get("errors") or ())
    reasons = [*(str(one["reason"]) for one in details), *older]
    reason, said = next(iter(reasons), str(told.get("status") or "")), str(told.get("message") or answer.text[:200])
    service = url.split("/")[2]
    if answer.status_code == 401:
        return InputError(f"{service}: the sign-in is refused or has expired: {said}", hint=SIGN_IN)
    if SERVICE_DISABLED in reasons or "accessNotConfigured" in reasons:
        return GoogleError(answer.status_code, SERVICE_DISABLED, said, hint=f"`gcloud services enable {service}`")
    hint = "an administrator grants it: `gcloud projects add-iam-policy-binding`" if answer.status_code == 403 else (
        "the same command goes on"
    )  # fmt: skip
    return GoogleError(answer.status_code, reason, f"{service}: {said}", hint=hint)
