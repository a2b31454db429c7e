"""Records of rows gathered into jobs as large as a platform takes them, and none smaller than it takes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from tempfile import TemporaryFile
from typing import IO, Any, Final, Protocol
from uuid import uuid4

from tonnage.batches.job_notes import JobNote, joined_keys
from tonnage.traffic.batch import BatchRow

SHARE_FILLED: Final = 0.9  # of the bytes of a job


class Sizes(Protocol):
    """What a platform takes in one job."""

    least_rows: int
    most_rows: int
    most_bytes: int


class Chunk:
    """Records of one job, in a file without a name."""

    def __init__(self, model: str, path: str) -> None:
        self.model, self.path, self.token = model, path, uuid4().hex
        self.lines: list[int] = []
        self.keys = joined_keys(())
        self.size_bytes = 0
        self.most_written: int | None = 0  # tokens; None: not said
        self.file: IO[bytes] = TemporaryFile()  # noqa: SIM115

    def add(self, row: BatchRow, line: bytes, max_tokens: int | None) -> None:
        self.lines.append(row.line)
        self.keys = joined_keys((self.keys, row.key))
        self.file.write(line + b"\n")
        self.size_bytes += len(line) + 1
        if row.path == "/v1/embeddings":
            max_tokens = 0
        known = self.most_written is not None and isinstance(max_tokens, int)
        self.most_written = (self.most_written or 0) + (max_tokens or 0) if known else None

    def take_up(self, other: Chunk) -> None:
        """Its rows too; its file is closed."""
        other.file.seek(0)
        shutil.copyfileobj(other.file, self.file)
        other.file.close()
        self.lines += other.lines
        self.keys = joined_keys((self.keys, other.keys))
        self.size_bytes += other.size_bytes
        known = self.most_written is not None and other.most_written is not None
        self.most_written = (self.most_written or 0) + (other.most_written or 0) if known else None

    def note(self, place: str) -> JobNote:
        return JobNote(
            token=self.token,
            place=place,
            model=self.model,
            path=self.path,
            lines=self.lines,
            keys=self.keys,
            size_bytes=self.size_bytes,
            most_written=self.most_written,
        )


def full_chunks(
    records: Iterator[tuple[BatchRow, bytes]], sizes: Sizes, too_small: Callable[[Chunk], None]
) -> Iterator[Chunk]:
    """Chunks of one model and path each; the consumer closes its file. `too_small` is called with smaller ones.

    A full chunk waits until the next one has rows enough for a job: else it takes them up.
    """
    held: dict[tuple[str, str], list[Chunk]] = {}
    try:
        for row, line in records:
            body = json.loads(row.body)
            kind = (str(body.get("model")), row.path)
            chunks = held.setdefault(kind, [])
            if not chunks or _is_full(chunks[-1], line, sizes):
                chunks.append(Chunk(*kind))
            chunks[-1].add(row, line, _most_written(body))
            if len(chunks) > 1 and len(chunks[1].lines) >= sizes.least_rows:
                yield chunks.pop(0)
        for chunks in held.values():
            if len(chunks) > 1 and len(chunks[1].lines) < sizes.least_rows:
                chunks[0].take_up(chunks.pop())
            while chunks:
                if len(chunks[0].lines) >= sizes.least_rows:
                    yield chunks.pop(0)
                else:
                    too_small(chunks[0])
                    chunks.pop(0).file.close()
    finally:
        for chunk in (one for chunks in held.values() for one in chunks):
            chunk.file.close()


def _is_full(chunk: Chunk, line: bytes, sizes: Sizes) -> bool:
    """So that the rows of a small one behind it fit in."""
    most_rows = max(sizes.least_rows, sizes.most_rows - sizes.least_rows)
    return len(chunk.lines) >= most_rows or chunk.size_bytes + len(line) + 1 > SHARE_FILLED * sizes.most_bytes


def _most_written(body: Mapping[str, Any]) -> int | None:
    """Tokens of all answers that a row asks for; None where it does not say."""
    each = body.get("max_tokens", body.get("max_completion_tokens"))
    answers = [value for name in ("n", "best_of") if isinstance(value := body.get(name), int)]
    return each * max([1, *answers]) if isinstance(each, int) else None
