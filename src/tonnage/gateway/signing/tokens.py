"""Tokens that expire: fetched in a thread of their own, one fetch for all that wait, and renewed ahead."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from concurrent.futures import Future
from datetime import UTC
from importlib import import_module
from threading import Lock, Thread
from typing import Any, Final
from urllib.parse import urlsplit

import httpx

from tonnage.errors import InputError, MissingExtra, TonnageError
from tonnage.gateway.signing.sign_in import SignIn
from tonnage.http.connection import Headers

AHEAD_S: Final = 300.0  # a token is renewed this long before it expires, or at half of its life where that is short
AGAIN_S: Final = 10.0  # after a renewal that failed
TIMEOUT_S: Final = 20.0
GOOGLE_SCOPE: Final = "https://www.googleapis.com/auth/cloud-platform"
AZURE_SCOPE: Final = "https://cognitiveservices.azure.com/.default"


class SignInError(TonnageError):
    """The provider gave no token, or there are no credentials to ask with."""


class Token:
    """The value of the header, until when it holds, and when it is fetched again. No `repr` shows it."""

    __slots__ = ("expires_s", "renew_s", "value")

    def __init__(self, value: str, expires_s: float, renew_s: float | None = None) -> None:
        self.value, self.expires_s, self.renew_s = value, expires_s, renew_s

    def __repr__(self) -> str:
        return f"Token(expires_s={self.expires_s})"


Fetch = Callable[[str, float], Token]  # the upstream's URL, now -> a token. Raises SignInError


class TokenSigner:
    """Only the first requests wait for a token; the others have the one before while the next is fetched."""

    def __init__(self, fetch: Fetch, header: bytes = b"authorization", prefix: bytes = b"Bearer ") -> None:
        self._fetch, self._header, self._prefix = fetch, header, prefix
        self._token: Token | None = None
        self._renew_s = float("-inf")
        self._lock = Lock()
        self._fetching: Future[None] | None = None

    def headers(self, method: str, url: str, body: bytes, now_s: float) -> Headers:  # noqa: ARG002
        """Raises SignInError where there is no token that still holds; waits for one where `preparing` would."""
        token, fetching = self._token, self.preparing(url, now_s)
        if fetching is not None:
            fetching.result()
            token = self._token
        assert token is not None
        return [(self._header, self._prefix + token.value.encode())]

    def preparing(self, url: str, now_s: float) -> Future[None] | None:
        """The fetch that requests must wait for, one for all of them; None while a token holds. A renewal that is due
        begins here, aside."""
        if self._token is None or now_s >= self._token.expires_s:
            return self._begun(url, now_s)
        self.renew(url, now_s)
        return None

    def renew(self, url: str, now_s: float) -> None:
        """Fetch the next token where it is time, aside; one that fails is tried again after a pause."""
        if now_s >= self._renew_s:
            self._begun(url, now_s)

    def wait(self) -> None:
        """Until a fetch under way has ended, well or not."""
        if self._fetching is not None:
            self._fetching.exception()

    def _begun(self, url: str, now_s: float) -> Future[None]:
        with self._lock:
            if self._fetching is None or self._fetching.done():
                self._renew_s = now_s + AGAIN_S  # should this one fail
                self._fetching = Future()
                self._fetching.set_running_or_notify_cancel()  # who stops waiting does not stop the others
                given = (self._fetching, url, now_s)
                Thread(target=self._run, args=given, daemon=True, name="sign-in").start()
            return self._fetching

    def _run(self, fetching: Future[None], url: str, now_s: float) -> None:
        try:
            token = self._fetch(url, now_s)
        except TonnageError as error:
            fetching.set_exception(error)
        except Exception as error:  # of a provider's library: whoever waits gets it
            failed = SignInError(f"no token: {type(error).__name__}: {error}", hint="see the provider's library")
            failed.__cause__ = error
            fetching.set_exception(failed)
        else:
            life_s = token.expires_s - now_s
            ahead_s = token.expires_s - min(AHEAD_S, life_s / 2)
            self._token, self._renew_s = token, ahead_s if token.renew_s is None else token.renew_s
            fetching.set_result(None)


def databricks_signer(sign_in: SignIn, read_key: Callable[[str], str]) -> TokenSigner:
    """OAuth of a service principal: `profile` is its client id, `key` names its secret. InputError without either."""
    client, key = sign_in.profile, sign_in.key
    if client is None or key is None:
        raise InputError(
            "signing in to Databricks needs `profile` and `key`",
            hint="the id and the OAuth secret of a service principal",
        )

    def fetch(url: str, now_s: float) -> Token:
        parts = urlsplit(url)
        asked = f"{parts.scheme}://{parts.netloc}/oidc/v1/token"
        basic = b64encode(f"{client}:{read_key(key)}".encode()).decode()
        form = {"grant_type": "client_credentials", "scope": sign_in.scope or "all-apis"}
        return _posted(asked, form, {"authorization": f"Basic {basic}"}, now_s)

    return TokenSigner(fetch)


def _posted(url: str, form: dict[str, str], headers: dict[str, str], now_s: float) -> Token:
    try:
        answer = httpx.post(url, data=form, headers=headers, timeout=TIMEOUT_S)
        said = answer.json() if answer.status_code == 200 else None
    except (httpx.HTTPError, ValueError) as error:
        raise SignInError(
            f"{url} gave no token: {type(error).__name__}", hint="is the upstream's address right?"
        ) from error
    token, lives_s = (said.get("access_token"), said.get("expires_in")) if isinstance(said, dict) else (None, None)
    if not isinstance(token, str) or not isinstance(lives_s, int | float):
        what = f"{url} answered {answer.status_code} and no token with its time to live"
        raise SignInError(what, hint="check the client id and its secret")
    return Token(token, now_s + lives_s)


def google_signer(sign_in: SignIn) -> TokenSigner:
    """Application default credentials. Raises MissingExtra without google-auth, InputError without credentials."""
    try:
        auth, transport = import_module("google.auth"), import_module("google.auth.transport.requests")
    except ImportError as error:
        raise MissingExtra("signing in to Google", "google") from error
    wrong = auth.exceptions.GoogleAuthError
    try:
        credentials, _ = auth.default(scopes=[sign_in.scope or GOOGLE_SCOPE])
    except wrong as error:
        raise InputError(f"Google: {error}", hint="gcloud auth application-default login") from error
    return TokenSigner(lambda _url, _now_s: _google_token(credentials, transport.Request(), wrong))


def _google_token(credentials: Any, request: Any, wrong: type[Exception]) -> Token:
    try:
        credentials.refresh(request)
    except wrong as error:
        raise SignInError(f"Google gave no token: {error}", hint="gcloud auth application-default login") from error
    return Token(credentials.token, credentials.expiry.replace(tzinfo=UTC).timestamp())


def azure_signer(sign_in: SignIn) -> TokenSigner:
    """Azure's default credentials. Raises MissingExtra without azure-identity."""
    try:
        identity, core = import_module("azure.identity"), import_module("azure.core.exceptions")
    except ImportError as error:
        raise MissingExtra("signing in to Azure", "azure") from error
    credential = identity.DefaultAzureCredential()

    def fetch(_url: str, _now_s: float) -> Token:
        try:
            found = credential.get_token(sign_in.scope or AZURE_SCOPE)
        except core.AzureError as error:
            raise SignInError(f"Azure gave no token: {error}", hint="az login") from error
        return Token(found.token, float(found.expires_on))

    return TokenSigner(fetch)
