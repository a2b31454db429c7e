"""Sealed streams: AES-256-GCM in chunks, so that what was changed, cut off or reordered is found.

A random data key encrypts the chunks; a key derived from the user's secret (scrypt, RFC 7914) wraps it, so that the
secret itself encrypts 32 bytes alone. Each chunk's nonce is its number, and the last one is marked in what is
authenticated: the STREAM construction (Hoang, Reyhanitabar, Rogaway and Vizár 2015, https://eprint.iacr.org/2015/189).
"""

from __future__ import annotations

import os
import struct
from typing import IO, Any, Final

from tonnage.errors import DataError, MissingExtra

MAGIC: Final = b"TNSEAL1\n"
CHUNK_BYTES: Final = 1 << 20
TAG_BYTES: Final = 16
_SALT_BYTES: Final = 16
_NONCE_BYTES: Final = 12
_KEY_BYTES: Final = 32
_SCRYPT: Final = {"n": 1 << 15, "r": 8, "p": 1}
_WRAPPED_BYTES: Final = _KEY_BYTES + TAG_BYTES
_LAST: Final = (b"\0", b"\1")


class SealedWriter:
    """Takes bytes, writes them sealed to `out`; `close` seals the last chunk, and leaves `out` open."""

    def __init__(self, out: IO[bytes], secret: str) -> None:
        self._out, self._held, self._number = out, bytearray(), 0
        salt, nonce, key = os.urandom(_SALT_BYTES), os.urandom(_NONCE_BYTES), os.urandom(_KEY_BYTES)
        out.write(MAGIC + salt + nonce + aead(derived_key(secret, salt)).encrypt(nonce, key, MAGIC))
        self._cipher = aead(key)

    def write(self, data: bytes) -> int:
        self._held += data
        while len(self._held) > CHUNK_BYTES:
            self._seal(bytes(self._held[:CHUNK_BYTES]), last=False)
            del self._held[:CHUNK_BYTES]
        return len(data)

    def close(self) -> None:
        self._seal(bytes(self._held), last=True)

    def _seal(self, chunk: bytes, *, last: bool) -> None:
        self._out.write(self._cipher.encrypt(_nonce(self._number), chunk, _LAST[last]))
        self._number += 1


class SealedReader:
    """Reads what `SealedWriter` wrote. DataError where the secret is another, or the file was changed or cut."""

    def __init__(self, source: IO[bytes], secret: str, *, what: str) -> None:
        self._source, self._what, self._number, self._held, self._ended = source, what, 0, bytearray(), False
        head = source.read(len(MAGIC) + _SALT_BYTES + _NONCE_BYTES + _WRAPPED_BYTES)
        if not head.startswith(MAGIC) or len(head) < len(MAGIC) + _SALT_BYTES + _NONCE_BYTES + _WRAPPED_BYTES:
            raise DataError(f"{what} is not a sealed file", hint="leave the key out, if it was written without one")
        salt = head[len(MAGIC) :][:_SALT_BYTES]
        nonce = head[len(MAGIC) + _SALT_BYTES :][:_NONCE_BYTES]
        key = self._opened(aead(derived_key(secret, salt)), nonce, head[-_WRAPPED_BYTES:], MAGIC)
        self._cipher = aead(key)
        self._ahead = source.read(CHUNK_BYTES + TAG_BYTES)

    def read(self, size: int = -1) -> bytes:
        while not self._ended and (size < 0 or len(self._held) < size):
            self._held += self._chunk()
        taken = bytes(self._held) if size < 0 else bytes(self._held[:size])
        del self._held[: len(taken)]
        return taken

    def _chunk(self) -> bytes:
        now, self._ahead = self._ahead, self._source.read(CHUNK_BYTES + TAG_BYTES)
        self._ended = not self._ahead
        found = self._opened(self._cipher, _nonce(self._number), now, _LAST[self._ended])
        self._number += 1
        return found

    def _opened(self, cipher: Any, nonce: bytes, content: bytes, beside: bytes) -> bytes:
        from cryptography.exceptions import InvalidTag

        try:
            found: bytes = cipher.decrypt(nonce, content, beside)
        except InvalidTag as error:
            words = f"{self._what} cannot be opened: the key is another, or the file was changed or cut off"
            raise DataError(words, hint="check the key; else take an older backup") from error
        return found


def is_sealed(head: bytes) -> bool:
    """Whether a file that begins so is sealed."""
    return head.startswith(MAGIC)


def _nonce(number: int) -> bytes:
    return struct.pack(">4xQ", number)


def derived_key(secret: str, salt: bytes) -> bytes:
    """32 bytes from a secret, by scrypt: some 0.1 s of a processor and 32 MiB."""
    from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

    return Scrypt(salt=salt, length=_KEY_BYTES, **_SCRYPT).derive(secret.encode())


def aead(key: bytes) -> Any:
    """AES-256-GCM with a key. MissingExtra without `cryptography`."""
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ModuleNotFoundError as error:
        raise MissingExtra("encryption", "backup") from error
    return AESGCM(key)
