"""The log of a run's workers: all that they print, secrets masked, cut into files of a bounded size."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

from tonnage.http.urls import without_secrets
from tonnage.runs.logs import LogIndex, index_file
from tonnage.runs.secrets import secret_values

LARGEST_BYTES: Final = 64 << 20
OLDER: Final = 3  # files kept beside the newest: log.1.txt is the one before it
LONGEST_LINE: Final = 1 << 16  # a longer one is written in pieces


def older_file(log: Path, number: int) -> Path:
    """`log.txt` as it was, `number` changes ago."""
    return log.with_name(f"{log.stem}.{number}{log.suffix}")


class LogKeeper:
    """Writes blocks of output. What cannot be written is counted, and said once there is room again."""

    def __init__(self, path: Path, *, largest_bytes: int = LARGEST_BYTES) -> None:
        self._path, self._largest = path, largest_bytes
        self._secrets = tuple(value.encode() for value in secret_values(os.environ))
        self._file, self._lost, self._rest = -1, 0, b""

    def keep(self, source: int) -> None:
        """Copy all that comes from a descriptor, until it ends."""
        while block := os.read(source, 65536):
            self.write(block)
        self._put(self._rest)

    def write(self, block: bytes) -> None:
        """Whole lines at once; the beginning of one waits for its end where it may hold half a secret."""
        block = self._rest + block
        end = max(block.rfind(b"\n"), block.rfind(b"\r")) + 1
        rest = block[end:]
        self._rest = rest if self._may_hold_secret(rest) and len(rest) < LONGEST_LINE else b""
        self._put(block[: len(block) - len(self._rest)])

    def _may_hold_secret(self, part: bytes) -> bool:
        return b":" in part or bool(self._secrets)

    def _put(self, block: bytes) -> None:
        block = self._masked(block)
        try:
            self._open()
            if self._lost:
                os.write(
                    self._file, f"\n[tonnage: {self._lost:,} bytes of log are missing: the disk was full]\n".encode()
                )
                self._lost = 0
            while block:
                block = block[os.write(self._file, block) :]
        except OSError:
            self._lost += len(block)

    def _masked(self, block: bytes) -> bytes:
        for secret in self._secrets:
            block = block.replace(secret, b"***")
        if b"://" not in block:
            return block
        return without_secrets(block.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")

    def _open(self) -> None:
        """The file to write to, a new one where the old is full; notes when what follows is written."""
        if self._file >= 0 and os.fstat(self._file).st_size >= self._largest:
            os.close(self._file)
            self._file = -1
            self._turn()
        if self._file < 0:
            self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            self._index = LogIndex(self._path)
        self._index.note(os.fstat(self._file).st_size)

    def _turn(self) -> None:
        for number in range(OLDER - 1, 0, -1):
            with contextlib.suppress(FileNotFoundError):
                os.replace(older_file(self._path, number), older_file(self._path, number + 1))
        os.replace(self._path, older_file(self._path, 1))
        index_file(self._path).unlink(missing_ok=True)
