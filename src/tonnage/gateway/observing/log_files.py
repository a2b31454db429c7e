"""The files of a request log: one is written by each worker, ended by its size or its age; the oldest ones go."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from time import time
from typing import Final

PREFIX: Final = "requests-"
SUFFIX: Final = ".jsonl"
TIDY_S: Final = 60.0


def log_files(folder: Path) -> list[Path]:
    """The files of a request log, oldest first: their names begin with the moment at which they were begun."""
    return sorted(folder.glob(f"{PREFIX}*{SUFFIX}"))


class LogFiles:
    """Of one worker, in one thread. The file being written is locked, so that no other worker removes it."""

    def __init__(
        self, folder: Path, *, file_bytes: int, file_age_s: float, keep_bytes: int, keep_s: float,
        now: Callable[[], float] = time,
    ) -> None:  # fmt: skip
        self.folder, self.file_bytes, self.file_age_s = folder, file_bytes, file_age_s
        self.keep_bytes, self.keep_s, self._now = keep_bytes, keep_s, now
        self._file: int | None = None
        self._size, self._begun_s, self._tidied_s = 0, 0.0, 0.0

    def write(self, lines: Sequence[bytes]) -> None:
        """Append lines, whole ones or none of those that did not fit. Raises OSError."""
        now_s = self._now()
        if self._file is not None and now_s - self._begun_s > self.file_age_s:
            self._end()
        for batch in self._batches(lines):
            if self._file is None:
                self._begin()
            self._append(batch)
            if self._size >= self.file_bytes:
                self._end()
                self.tidy()
        if now_s - self._tidied_s > TIDY_S:
            self.tidy()

    def tidy(self) -> None:
        """Remove files that are too old, then the oldest ones until the rest is small enough."""
        self._tidied_s = now_s = self._now()
        found = []
        for path in log_files(self.folder):
            with suppress(FileNotFoundError):  # another worker was quicker
                known = path.stat()
                found.append((path, known.st_size, known.st_mtime))
        total = sum(size for _, size, _ in found)
        for path, size, changed_s in found:
            if (now_s - changed_s > self.keep_s or total > self.keep_bytes) and _remove(path):
                total -= size

    def close(self) -> None:
        if self._file is not None:
            self._end()

    def _batches(self, lines: Sequence[bytes]) -> Iterator[bytes]:
        """Lines together, each time as many as the file that is being written takes."""
        batch: list[bytes] = []
        room = self.file_bytes - self._size
        for line in lines:
            batch.append(line)
            room -= len(line)
            if room <= 0:
                yield b"".join(batch)
                batch, room = [], self.file_bytes
        if batch:
            yield b"".join(batch)

    def _begin(self) -> None:
        self._begun_s = self._now()
        begun = datetime.fromtimestamp(self._begun_s, UTC).strftime("%Y%m%dT%H%M%S%f")
        path = self.folder / f"{PREFIX}{begun}-{os.getpid()}-{os.urandom(2).hex()}{SUFFIX}"
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._file, self._size = file, 0

    def _append(self, data: bytes) -> None:
        assert self._file is not None
        written = 0
        try:
            while written < len(data):
                written += os.write(self._file, data[written:])
        except OSError:
            os.ftruncate(self._file, self._size)  # no torn line in the middle of a file
            raise
        self._size += len(data)

    def _end(self) -> None:
        assert self._file is not None
        os.close(self._file)
        self._file = None


def _remove(path: Path) -> bool:
    """Remove a file that no process writes."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink(missing_ok=True)
    except BlockingIOError:
        return False
    finally:
        os.close(file)
    return True
