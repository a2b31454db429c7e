"""Signing in by OpenID Connect: the authorization code flow with PKCE, state and nonce (OpenID Connect Core 1.0,
section 3.1; RFC 7636; RFC 9207)."""

from __future__ import annotations

import secrets
from base64 import urlsafe_b64encode
from collections import OrderedDict
from collections.abc import Callable, Mapping
from hashlib import sha256
from http import HTTPStatus
from threading import Lock
from time import monotonic
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

import httpx
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet

from tonnage.values import dataclass
from tonnage.web.access import Denied, WebCaller

if TYPE_CHECKING:
    from tonnage.web.oidc_file import OidcFile

CALLBACK: Final = "/login/oidc/callback"
STATE_COOKIE: Final = "tonnage_login"
PENDING_S: Final = 600.0
MOST_PENDING: Final = 1_000
LEEWAY_S: Final = 60
TIMEOUT_S: Final = 10.0
# none by a secret that two share
SIGNATURES: Final = (
    "RS256",
    "RS384",
    "RS512",
    "PS256",
    "PS384",
    "PS512",
    "ES256",
    "ES384",
    "ES512",
)
NEEDED: Final = ("authorization_endpoint", "token_endpoint", "jwks_uri")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pending:
    nonce: str
    verifier: str
    until_s: float


class OidcSignIn:
    """One issuer. `secret` None: the client is public. `http` is asked for its documents and tokens."""

    def __init__(
        self, file: OidcFile, secret: str | None, *, http: httpx.Client | None = None,
        clock: Callable[[], float] = monotonic,
    ) -> None:  # fmt: skip
        self.file, self._secret, self._clock = file, secret, clock
        self._http = http or httpx.Client(timeout=TIMEOUT_S, follow_redirects=False)
        self._pending: OrderedDict[str, _Pending] = OrderedDict()
        self._lock = Lock()
        self._known: dict[str, Any] | None = None
        self._keys: KeySet | None = None

    def close(self) -> None:
        """End its connections."""
        self._http.close()

    def begin(self) -> tuple[str, str]:
        """Where the browser is sent, and the state that its cookie holds meanwhile. Raises Denied: 502."""
        known = self._discovered()
        state, pending = secrets.token_urlsafe(24), _Pending(
            nonce=secrets.token_urlsafe(24), verifier=secrets.token_urlsafe(48), until_s=self._clock() + PENDING_S
        )  # fmt: skip
        with self._lock:
            self._pending[state] = pending
            while len(self._pending) > MOST_PENDING:
                self._pending.popitem(last=False)
        challenge = urlsafe_b64encode(sha256(pending.verifier.encode()).digest()).rstrip(b"=").decode()
        query = {
            "response_type": "code", "client_id": self.file.client_id, "redirect_uri": self._redirect,
            "scope": " ".join(self.file.scopes), "state": state, "nonce": pending.nonce, "code_challenge": challenge,
            "code_challenge_method": "S256",
        }  # fmt: skip
        endpoint: str = known["authorization_endpoint"]
        return f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(query)}", state

    def finish(self, query: Mapping[str, str], cookie: str | None) -> WebCaller:
        """Who the issuer says it is. Raises Denied: 401 for what does not belong together, 403 for no role, 502."""
        state = query.get("state", "")
        with self._lock:
            pending = self._pending.pop(state, None)
        if pending is None or pending.until_s < self._clock() or not secrets.compare_digest(state, cookie or ""):
            raise _refused("this sign-in was not begun here, or too long ago", hint="begin again at /login")
        if "error" in query:
            raise _refused(f"the issuer refused: {query['error'][:80]}", hint=query.get("error_description", "")[:200])
        if query.get("iss", self.file.issuer) != self.file.issuer:
            raise _refused("the answer is of another issuer")
        tokens = self._tokens(query.get("code", ""), pending)
        claims = self._claims(str(tokens.get("id_token", "")), pending.nonce)
        return self._person({**self._more_claims(claims, tokens), **claims})

    @property
    def _redirect(self) -> str:
        return self.file.url.rstrip("/") + CALLBACK

    def _discovered(self) -> dict[str, Any]:
        if self._known is None:
            found = self._json("GET", f"{self.file.issuer.rstrip('/')}/.well-known/openid-configuration")
            if found.get("issuer") != self.file.issuer:
                raise _unusable(f"{self.file.issuer} says that it is {str(found.get('issuer'))[:200]}")
            if missing := [key for key in NEEDED if not isinstance(found.get(key), str)]:
                raise _unusable(f"{self.file.issuer} does not say its {missing[0]}")
            self._known = found
        return self._known

    def _tokens(self, code: str, pending: _Pending) -> dict[str, Any]:
        known = self._discovered()
        form = {
            "grant_type": "authorization_code", "code": code, "redirect_uri": self._redirect,
            "code_verifier": pending.verifier,
        }  # fmt: skip
        if self._secret is None:
            return self._json("POST", known["token_endpoint"], data={**form, "client_id": self.file.client_id})
        methods = known.get("token_endpoint_auth_methods_supported", ["client_secret_basic"])
        if "client_secret_basic" in methods:
            basic = httpx.BasicAuth(self.file.client_id, self._secret)
            return self._json("POST", known["token_endpoint"], data=form, auth=basic)
        named = {"client_id": self.file.client_id, "client_secret": self._secret}
        return self._json("POST", known["token_endpoint"], data={**form, **named})

    def _claims(self, token: str, nonce: str) -> dict[str, Any]:
        """The claims of an ID token whose signature, issuer, audience, times and nonce are right."""
        offered = self._discovered().get("id_token_signing_alg_values_supported", ["RS256"])
        algorithms = [one for one in SIGNATURES if one in offered]
        try:
            try:
                claims = jwt.decode(token, self._key_set(), algorithms=algorithms).claims
            except (JoseError, ValueError):  # the issuer may have changed its keys
                claims = jwt.decode(token, self._key_set(anew=True), algorithms=algorithms).claims
            jwt.JWTClaimsRegistry(
                leeway=LEEWAY_S, iss={"essential": True, "value": self.file.issuer}, sub={"essential": True},
                aud={"essential": True, "value": self.file.client_id}, exp={"essential": True},
                iat={"essential": True}, nonce={"essential": True, "value": nonce},
            ).validate(claims)  # fmt: skip
        except (JoseError, ValueError, TypeError) as error:
            raise _refused(f"the issuer's token does not hold: {error}") from error
        audience = claims["aud"]
        if isinstance(audience, list) and len(audience) > 1 and claims.get("azp") != self.file.client_id:
            raise _refused("the issuer's token is of another client")
        return dict(claims)

    def _key_set(self, *, anew: bool = False) -> KeySet:
        if self._keys is None or anew:
            self._keys = KeySet.import_key_set(self._json("GET", self._discovered()["jwks_uri"]))  # type: ignore[arg-type]
        return self._keys

    def _more_claims(self, claims: Mapping[str, Any], tokens: Mapping[str, Any]) -> dict[str, Any]:
        """Those that the issuer gives at its userinfo alone; its subject must be the token's."""
        wanted = {self.file.name_claim, *(one.claim for one in self.file.grants)}
        endpoint, access = self._discovered().get("userinfo_endpoint"), tokens.get("access_token")
        if wanted <= claims.keys() or not isinstance(endpoint, str) or not isinstance(access, str):
            return {}
        found = self._json("GET", endpoint, headers={"authorization": f"Bearer {access}"})
        return found if found.get("sub") == claims["sub"] else {}

    def _person(self, claims: dict[str, Any]) -> WebCaller:
        name = str(claims.get(self.file.name_claim) or claims["sub"])[:200]
        grant = next((one for one in self.file.grants if one.holds(claims)), None)
        if grant is None:
            raise Denied(HTTPStatus.FORBIDDEN, f"{name} has no role here", hint="an admin gives roles in oidc.toml")
        projects = None if grant.projects is None else frozenset(grant.projects)
        return WebCaller(name=name, role=grant.role, by_cookie=True, projects=projects)

    def _json(self, method: str, url: str, **more: Any) -> dict[str, Any]:
        """An answer of the issuer; neither codes nor tokens are in the error."""
        try:
            answer = self._http.request(method, url, **more)
            found = answer.json()
        except (httpx.HTTPError, ValueError) as error:
            raise _unusable(f"{self.file.issuer} cannot be asked: {type(error).__name__}") from error
        if not answer.is_success or not isinstance(found, dict):
            said = found.get("error") if isinstance(found, dict) else None
            raise _unusable(f"{self.file.issuer} answers {answer.status_code}{f': {said}'[:80] if said else ''}")
        return found


def _refused(message: str, *, hint: str = "begin again at /login") -> Denied:
    return Denied(HTTPStatus.UNAUTHORIZED, message, hint=hint)


def _unusable(message: str) -> Denied:
    return Denied(HTTPStatus.BAD_GATEWAY, message, hint="try again; a key signs in meanwhile")
