"""A signer for each way to sign in."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from importlib import import_module
from typing import Any, Final, Protocol

from tonnage.errors import InputError, MissingExtra
from tonnage.gateway.signing.sign_in import SignIn
from tonnage.gateway.signing.tokens import SignInError
from tonnage.http.connection import Headers
from tonnage.secret_references import parse_reference, read_reference

REREAD_S: Final = 60.0  # a key that is changed in its file is followed
REMOTE_REREAD_S: Final = 300.0  # and one in a store of secrets, where each reading costs
REMOTE_HOLDS_S: Final = 86_400.0  # so long the key before serves where the store does not answer


class Signer(Protocol):
    """What signs a request to an upstream. `preparing`: what must end before `headers` answers at once, if anything;
    `renew`: called now and then, begins what `preparing` would have to wait for later."""

    def headers(self, method: str, url: str, body: bytes, now_s: float) -> Headers: ...
    def preparing(self, url: str, now_s: float) -> Future[None] | None: ...
    def renew(self, url: str, now_s: float) -> None: ...


class KeySigner:
    """A key in a header. It is read again once a minute, and no message shows it."""

    def __init__(self, reference: str, header: bytes, prefix: bytes = b"") -> None:
        self._reference, self._header, self._prefix = reference, header, prefix
        self._made: Headers = ()
        self._read_s = float("-inf")

    def headers(self, method: str, url: str, body: bytes, now_s: float) -> Headers:  # noqa: ARG002
        """Raises InputError where the key is not there."""
        if now_s - self._read_s > REREAD_S:
            self._made = [(self._header, self._prefix + read_key(self._reference).encode())]
            self._read_s = now_s
        return self._made

    def preparing(self, url: str, now_s: float) -> Future[None] | None:
        """Nothing: a key is read from this machine."""

    def renew(self, url: str, now_s: float) -> None:
        """Nothing."""


def read_key(reference: str) -> str:
    """The secret that a reference names. Raises as `read_reference` does; InputError: it is no header."""
    found = read_reference(reference, os.environ, "the key").strip()
    if not found.isascii() or any(ord(letter) < 32 for letter in found):
        raise InputError(f"{reference} holds what is no key", hint="a key is one line of ASCII")
    return found


def make_signer(sign_in: SignIn) -> Signer:
    """The signer of a sign-in. Raises InputError, MissingExtra."""
    make = _MAKERS.get(sign_in.kind)
    if make is None:
        raise InputError(f"no way to sign in by '{sign_in.kind}'", hint=f"one of {', '.join(_MAKERS)}")
    return make(sign_in)


def _key(header: bytes, prefix: bytes = b"") -> Callable[[SignIn], Signer]:
    def make(sign_in: SignIn) -> Signer:
        assert sign_in.key is not None
        if parse_reference(sign_in.key).remote:
            return _remote(sign_in.key, header, prefix)
        return KeySigner(sign_in.key, header, prefix)

    return make


def _remote(reference: str, header: bytes, prefix: bytes) -> Signer:
    """A key of a store of secrets: read in a thread of its own, so that other requests go on meanwhile."""
    from tonnage.gateway.signing.tokens import Token, TokenSigner

    def fetch(_url: str, now_s: float) -> Token:
        return Token(read_key(reference), now_s + REMOTE_HOLDS_S, now_s + REMOTE_REREAD_S)

    return TokenSigner(fetch, header, prefix)


def _aws(sign_in: SignIn) -> Signer:

    return aws_signer(sign_in)


def _google(sign_in: SignIn) -> Signer:
    from tonnage.gateway.signing.tokens import google_signer

    return google_signer(sign_in)


def _azure(sign_in: SignIn) -> Signer:
    from tonnage.gateway.signing.tokens import azure_signer

    return azure_signer(sign_in)


def _databricks(sign_in: SignIn) -> Signer:
    from tonnage.gateway.signing.tokens import databricks_signer

    return databricks_signer(sign_in, read_key)


_MAKERS: Final[dict[str, Callable[[SignIn], Signer]]] = {
    "bearer": _key(b"authorization", b"Bearer "),
    "x-api-key": _key(b"x-api-key"),
    "api-key": _key(b"api-key"),
    "aws": _aws,
    "google": _google,
    "azure": _azure,
    "databricks": _databricks,
}


SIGNED = ("Authorization", "X-Amz-Date", "X-Amz-Security-Token")


class AwsSigner:
    """botocore renews credentials that expire, a quarter of an hour ahead."""

    def __init__(self, credentials: Any, region: str, service: str) -> None:
        self._credentials, self._region, self._service = credentials, region, service
        self._auth = import_module("botocore.auth")
        self._request = import_module("botocore.awsrequest").AWSRequest
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="sign-in")
        self._renewing: Future[None] | None = None

    def preparing(self, url: str, now_s: float) -> Future[None] | None:  # noqa: ARG002
        """The renewal of credentials that expire, one for all that wait; None where they hold or never expire."""
        needed = getattr(self._credentials, "refresh_needed", None)
        if needed is None or not needed():
            return None
        if self._renewing is None or self._renewing.done():
            self._renewing = self._thread.submit(self._renewed)
        return self._renewing

    def renew(self, url: str, now_s: float) -> None:
        """Begin it, aside."""
        self.preparing(url, now_s)

    def _renewed(self) -> None:
        try:
            self._credentials.get_frozen_credentials()
        except import_module("botocore.exceptions").BotoCoreError as error:
            raise SignInError(
                f"AWS credentials are not renewed: {error}", hint="aws sts get-caller-identity"
            ) from error

    def headers(self, method: str, url: str, body: bytes, now_s: float) -> Headers:  # noqa: ARG002
        """The signature is of the clock's time: AWS refuses another. SignInError where credentials are not renewed."""
        try:
            request = self._request(method=method, url=url, data=body)
            frozen = self._credentials.get_frozen_credentials()
            self._auth.SigV4Auth(frozen, self._service, self._region).add_auth(request)
        except import_module("botocore.exceptions").BotoCoreError as error:
            raise SignInError(
                f"AWS credentials are not renewed: {error}", hint="aws sts get-caller-identity"
            ) from error
        made = request.headers
        return [(name.lower().encode(), made[name].encode()) for name in SIGNED if name in made]


def aws_signer(sign_in: SignIn) -> AwsSigner:
    """Raises MissingExtra without botocore, InputError without credentials or a region."""
    try:
        session_module = import_module("botocore.session")
    except ImportError as error:
        raise MissingExtra("signing in to AWS", "fetch") from error
    try:
        session = session_module.Session(profile=sign_in.profile)
        credentials = session.get_credentials()
    except import_module("botocore.exceptions").BotoCoreError as error:
        raise InputError(f"AWS: {error}", hint="aws configure list-profiles") from error
    if credentials is None:
        raise InputError("there are no AWS credentials", hint="aws configure, AWS_PROFILE or a role of the machine")
    region = sign_in.region or session.get_config_variable("region")
    if not region:
        raise InputError("the region of AWS is not stated", hint="`region:` in sign_in, or AWS_REGION")
    return AwsSigner(credentials, region, sign_in.service or "bedrock")
