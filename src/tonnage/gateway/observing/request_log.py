"""The request log: a line of JSON for each request, sampled, written by a thread of its own into files that end by
their size or their age; the oldest ones go.

A request is never held up and never fails for its line: what cannot be written, or waits in too great a number, is
lost, counted and said.
"""

from __future__ import annotations

import fcntl
import os
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from time import time
from typing import Any, Final

import orjson

from tonnage.encryption.data_keys import DataKeys
from tonnage.errors import DataError, InputError
from tonnage.files import make_private_folder
from tonnage.gateway.file.kept_entries import RequestLogEntry
from tonnage.gateway.measures import GatewayMeasures
from tonnage.gateway.observing.beside import BackgroundConsumer
from tonnage.gateway.observing.record import SLACK_BYTES, RequestRecord
from tonnage.gateway.observing.redaction import redacted
from tonnage.gateway.observing.spoken import spoken_text

MOST_WAITING_BYTES: Final = 32 << 20
FAILED_STATUS: Final = 400
BODIES: Final = ("body", "answer")
SEALED: Final = "sealed:"  # before a body that is encrypted, in base64
PREFIX: Final = "requests-"
SUFFIX: Final = ".jsonl"
TIDY_S: Final = 60.0


class RequestLogWriter:
    """Of one worker. `say`: is called when lines begin to be lost, and when they are written again."""

    def __init__(
        self, entry: RequestLogEntry, measures: GatewayMeasures, say: Callable[[str], None], *,
        keys: DataKeys | None = None, seed: int | None = None,
    ) -> None:  # fmt: skip
        """`keys`: bodies are encrypted with these. InputError where the folder cannot be made."""
        self._keys = keys
        assert entry.folder is not None  # the file's reader has named one
        self.entry, self._say = entry, say
        folder = Path(entry.folder)
        try:
            make_private_folder(folder)
        except OSError as error:
            raise InputError(f"request_log: {folder} cannot be made: {error.strerror or error}",
                             hint="name another `folder:`") from error  # fmt: skip
        self._files = LogFiles(
            folder, file_bytes=int(entry.file_mb * 1e6), file_age_s=entry.file_age, keep_bytes=int(entry.keep_mb * 1e6),
            keep_s=entry.keep,
        )  # fmt: skip
        cells = [measures.cell("tonnage_gateway_log_total", (("result", one),)) for one in ("written", "left-out")]
        self._written, self._left_out = cells
        lost = [measures.cell("tonnage_gateway_log_total", (("result", one),)) for one in ("lost", "not-kept-up")]
        self._lost, self._late = lost
        self._random, self._share = Random(seed), entry.sample_percent / 100.0
        self._losing = False
        self._beside = BackgroundConsumer(
            "gateway-request-log", self._write, self._files.close, most_bytes=MOST_WAITING_BYTES
        )

    @property
    def body_bytes(self) -> int | None:
        """The most that is kept of a request and of an answer; None: nothing."""
        return int(self.entry.body_kb * 1000) if self.entry.bodies else None

    def put(self, record: RequestRecord) -> None:
        """A request that has ended: all that failed are kept, of the others a sample."""
        failed = record.status >= FAILED_STATUS or not record.status
        share = 1.0 if failed else self._share
        if share < 1.0 and self._random.random() >= share:
            self._left_out[0] += 1
        elif not self._beside.put((record, share), record.size):
            self._late[0] += 1

    def close(self) -> None:
        """Write what waits, for a few seconds at most."""
        self._beside.close()

    # in the thread

    def _write(self, records: list[tuple[RequestRecord, float]]) -> None:
        made = [self._document(record, share) for record, share in records]
        lines = [orjson.dumps(one, option=orjson.OPT_APPEND_NEWLINE) for one in made]
        try:
            self._files.write(lines)
        except OSError as error:
            self._lost[0] += len(lines)
            if not self._losing:
                self._losing = True
                self._say(f"the request log loses lines, requests go on: {error.strerror or error}")
            return
        self._written[0] += len(lines)
        if self._losing and lines:
            self._losing = False
            self._say("the request log is written again")

    def _document(self, record: RequestRecord, share: float) -> dict[str, Any]:
        document = record.document(share)
        most = self.body_bytes
        if most is not None and record.asked is not None:
            document["body"] = self._shown(record.asked.body[: most + SLACK_BYTES].decode("utf-8", "replace"), most)
            said = b"".join(record.answer)
            answer = spoken_text(record.surface, said) if record.asked.stream else said.decode("utf-8", "replace")
            document["answer"] = self._shown(answer, most)
            if self._keys is not None:
                for name in BODIES:
                    sealed = self._keys.seal(document[name].encode(), _context(document, name))
                    document[name] = SEALED + b64encode(sealed).decode()
        return document

    def _shown(self, text: str, most: int) -> str:
        return (redacted(text) if self.entry.redact else text)[:most]


def opened_line(document: Mapping[str, Any], keys: DataKeys | None) -> dict[str, Any]:
    """A line of the log with its bodies in the clear. DataError where one does not open, or there are no keys."""
    made = dict(document)
    for name in BODIES:
        found = made.get(name)
        if isinstance(found, str) and found.startswith(SEALED):
            if keys is None:
                raise DataError("its bodies are encrypted", hint="`encrypt:` in the gateway file names the key")
            content = keys.open(b64decode(found.removeprefix(SEALED)), _context(made, name))
            made[name] = content.decode("utf-8", "replace")
    return made


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


def _context(document: Mapping[str, Any], name: str) -> bytes:
    """What a body is authenticated with: its request and which of the two it is."""
    return f"request log\0{document.get('request')}\0{document.get('at_s')}\0{name}".encode()


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
