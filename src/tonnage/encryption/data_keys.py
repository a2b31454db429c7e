"""Envelope encryption of small values: data keys encrypt them, a secret that is kept elsewhere wraps the data keys. The
secret is not beside what it opens, and not one that can be guessed.

AES-256-GCM (NIST SP 800-38D) with random nonces of 96 bits: at most 2^32 values under one data key, of which a new one
is made by each rotation. The key that wraps is derived from the secret by scrypt (RFC 7914), once for all data keys.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import field
from datetime import datetime
from pathlib import Path
from typing import Final

from tonnage.encryption.streams import aead, derived_key
from tonnage.errors import DataError, InputError
from tonnage.secret_references import read_reference
from tonnage.values import dataclass

MAGIC: Final = b"TNVALUE1"
ID_BYTES: Final = 8
NONCE_BYTES: Final = 12
KEY_BYTES: Final = 32
SALT_BYTES: Final = 16
LEAST_CHARACTERS: Final = 20
_HEAD_BYTES: Final = len(MAGIC) + ID_BYTES + NONCE_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class WrappedKey:
    """A data key as it may lie beside the data: encrypted. `identity` is authenticated with it."""

    identity: bytes
    made_at: datetime
    salt: bytes
    nonce: bytes
    wrapped: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class DataKeys:
    """Data keys by identity; values are sealed with the `newest`. They are in no representation of this."""

    newest: bytes
    keys: Mapping[bytes, bytes] = field(repr=False)

    def seal(self, value: bytes, context: bytes) -> bytes:
        """The value encrypted; opened only with the same `context`, which says what it is and whose."""
        nonce = os.urandom(NONCE_BYTES)
        return MAGIC + self.newest + nonce + bytes(aead(self.keys[self.newest]).encrypt(nonce, value, context))

    def open(self, sealed: bytes, context: bytes) -> bytes:
        """The value. DataError where it was changed, belongs to another context, or its key is not there."""
        from cryptography.exceptions import InvalidTag

        identity = sealed[len(MAGIC) : len(MAGIC) + ID_BYTES]
        key = self.keys.get(identity)
        if not is_sealed(sealed) or key is None:
            raise DataError("the value is sealed with a key that is not there", hint="was the store restored alone?")
        nonce, rest = sealed[_HEAD_BYTES - NONCE_BYTES : _HEAD_BYTES], sealed[_HEAD_BYTES:]
        try:
            return bytes(aead(key).decrypt(nonce, rest, context))
        except InvalidTag as error:
            raise DataError("the sealed value was changed, or is of another place") from error


def is_sealed(value: bytes) -> bool:
    """Whether a value is one that `DataKeys.seal` made."""
    return value.startswith(MAGIC) and len(value) > _HEAD_BYTES


def new_wrapped(secret: str, *, now: datetime, like: WrappedKey | None = None) -> WrappedKey:
    """A new data key, wrapped; with the salt of `like`, so that one derivation opens both."""
    salt = os.urandom(SALT_BYTES) if like is None else like.salt
    return _wrapped(os.urandom(ID_BYTES), os.urandom(KEY_BYTES), secret, salt, now)


def open_keys(wrapped: Iterable[WrappedKey], secret: str, *, what: str) -> DataKeys:
    """The data keys. DataError where the secret is another or a key was changed; `what` names the secret in it."""
    from cryptography.exceptions import InvalidTag

    ordered = sorted(wrapped, key=lambda one: one.made_at)
    outer = {salt: aead(derived_key(secret, salt)) for salt in {one.salt for one in ordered}}
    found = dict[bytes, bytes]()
    for one in ordered:
        try:
            found[one.identity] = bytes(outer[one.salt].decrypt(one.nonce, one.wrapped, MAGIC + one.identity))
        except InvalidTag as error:
            raise DataError(
                f"{what} does not open the data keys: it is another than they were wrapped with",
                hint="name that key again; to change it: `tonnage gateway rotate FILE --from REFERENCE`",
            ) from error
    return DataKeys(newest=ordered[-1].identity, keys=found)


def rewrapped(wrapped: Iterable[WrappedKey], before: str, after: str, *, what: str) -> tuple[WrappedKey, ...]:
    """The same data keys, wrapped with another secret. DataError as `open_keys`."""
    ordered = tuple(wrapped)
    keys, salt = open_keys(ordered, before, what=what).keys, os.urandom(SALT_BYTES)
    return tuple(_wrapped(one.identity, keys[one.identity], after, salt, one.made_at) for one in ordered)


def read_key(reference: str, environment: Mapping[str, str], what: str, *, data: Iterable[Path]) -> str:
    """The secret that a reference names. InputError where it lies in or under one of the folders `data`, is shorter
    than 20 characters, or cannot be read; `what` names the key or option."""
    refuse_beside(reference, what, data)
    secret = read_reference(reference, environment, what)
    if len(secret) < LEAST_CHARACTERS:
        raise InputError(f"{what}: the key has {len(secret)} characters, and can be guessed",
                         hint=f"at least {LEAST_CHARACTERS}: `openssl rand -base64 32` makes one")  # fmt: skip
    return secret


def refuse_beside(reference: str, what: str, data: Iterable[Path]) -> None:
    """InputError where a reference names a file in or under one of the folders `data`, also through links."""
    scheme, _, name = reference.partition(":")
    if scheme != "file":
        return
    place = Path(name).resolve()
    for folder in data:
        if place.is_relative_to(folder.resolve()):
            raise InputError(
                f"{what}: {name} lies beside what it encrypts, in {folder}: who copies one has the other",
                hint="keep it elsewhere: another disk, keyring:, vault:, aws:, gcp: or azure: (docs/secrets.md)",
            )


def _wrapped(identity: bytes, key: bytes, secret: str, salt: bytes, made_at: datetime) -> WrappedKey:
    nonce = os.urandom(NONCE_BYTES)
    outer = aead(derived_key(secret, salt))
    return WrappedKey(identity=identity, made_at=made_at, salt=salt, nonce=nonce,
                      wrapped=outer.encrypt(nonce, key, MAGIC + identity))  # fmt: skip
