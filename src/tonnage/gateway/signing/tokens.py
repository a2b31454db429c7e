"""Tokens that expire: fetched once, renewed ahead in a thread of their own, so that no request waits for it."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from datetime import UTC
from importlib import import_module
from threading import Lock, Thread
from typing import Any, Final
from urllib.parse import urlsplit

import httpx

from tonnage.errors import InputError, MissingExtra, TonnageError
from tonnage.gateway.signing.sign_in import SignIn
from tonnage.http.upstream import Headers

AHEAD_S: Final = 300.0  # a token is renewed this long before it expires, or at half of its life where that is short
AGAIN_S: Final = 10.0  # after a renewal that failed
TIMEOUT_S: Final = 20.0
GOOGLE_SCOPE: Final = "https://www.googleapis.com/auth/cloud-platform"
AZURE_SCOPE: Final = "https://cognitiveservices.azure.com/.default"


class SignInError(TonnageError):
    """The provider gave no token, or there are no credentials to ask with."""


class Token:
    """What stands in the header, and until when. No `repr` shows it."""

    __slots__ = ("expires_s", "value")

    def __init__(self, value: str, expires_s: float) -> None:
        self.value, self.expires_s = value, expires_s

    def __repr__(self) -> str:
        return f"Token(expires_s={self.expires_s})"


Fetch = Callable[[str, float], Token]  # the upstream's URL, now -> a token. Raises SignInError


class TokenSigner:
    """Only the first request waits for a token; the others have the one before while the next is fetched."""

    def __init__(self, fetch: Fetch) -> None:
        self._fetch = fetch
        self._token: Token | None = None
        self._renew_s = float("-inf")
        self._lock = Lock()
        self._renewing: Thread | None = None

    def headers(self, method: str, url: str, body: bytes, now_s: float) -> Headers:  # noqa: ARG002
        """Raises SignInError where there is no token that still holds."""
        token = self._token
        if token is None or now_s >= token.expires_s:
            token = self._renewed(url, now_s)
        elif now_s >= self._renew_s:
            self._renew_aside(url, now_s)
        return [(b"authorization", b"Bearer " + token.value.encode())]

    def wait(self) -> None:
        """Until a renewal under way has ended."""
        if self._renewing is not None:
            self._renewing.join()

    def _renewed(self, url: str, now_s: float) -> Token:
        with self._lock:
            if self._token is not None and now_s < self._token.expires_s:
                return self._token  # another thread was faster
            token = self._fetch(url, now_s)
            self._keep(token, now_s)
            return token

    def _keep(self, token: Token, now_s: float) -> None:
        life_s = token.expires_s - now_s
        self._token, self._renew_s = token, token.expires_s - min(AHEAD_S, life_s / 2)

    def _renew_aside(self, url: str, now_s: float) -> None:
        self._renew_s = now_s + AGAIN_S  # one at a time; the next after a pause, should this one fail
        self._renewing = Thread(target=self._try_renewal, args=(url, now_s), daemon=True, name="sign-in")
        self._renewing.start()

    def _try_renewal(self, url: str, now_s: float) -> None:
        try:
            token = self._fetch(url, now_s)
        except SignInError:
            return  # the token before still holds; once it does not, the request itself raises this
        self._keep(token, now_s)


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
