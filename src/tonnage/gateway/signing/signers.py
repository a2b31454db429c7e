"""A signer for each way to sign in."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final, Protocol

from tonnage.errors import InputError
from tonnage.gateway.signing.sign_in import SignIn
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
    """A key in a header. It is read anew once a minute, and stands in no message."""

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
    from tonnage.gateway.signing.aws import aws_signer

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
