"""A file on its way: its bytes, and a journal of the ranges that have arrived, each with its CRC."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from threading import Lock
from typing import Any, Final

from tonnage.fetching.remote import BLOCK_BYTES, RemoteFile

PART_BYTES: Final = 8 * 2**20


class Partial:
    """`data` and `journal` in a folder. Opening it keeps what belongs to this version and is undamaged.

    A killed process leaves both behind: bytes are written before their line of the journal, and every range
    is read again and held against its CRC before it counts.
    """

    def __init__(self, folder: Path, file: RemoteFile, *, part_bytes: int = PART_BYTES) -> None:
        self.data = folder / "data"
        self._journal = folder / "journal"
        self._lock = Lock()
        folder.mkdir(parents=True, exist_ok=True)
        self.head = {
            "identity": file.identity, "version": file.version, "size_bytes": file.size_bytes, "part_bytes": part_bytes,
        }  # fmt: skip
        self._size = file.size_bytes
        self._part_bytes = part_bytes
        self._arrived = self._read_journal() if file.ranged else set()
        self._start_over(keep=bool(self._arrived))

    def _read_journal(self) -> set[int]:
        """The ranges that count; none when the journal is of another version, or there is none."""
        try:
            head, *lines = self._journal.read_text(encoding="utf-8").splitlines()
            if json.loads(head) != self.head or not self.data.is_file():
                return set()
        except (OSError, ValueError):  # none yet, or its first line was cut
            return set()
        stated = dict(_parts(lines))
        with self.data.open("rb", buffering=0) as stream:
            return {part for part, crc in stated.items() if self._crc(stream, part) == crc}

    def _crc(self, stream: Any, part: int) -> int | None:
        start, end = self.bounds(part)
        if not 0 <= start < end:
            return None
        stream.seek(start)
        crc, left = 0, end - start
        while left and (block := stream.read(min(left, 4 * BLOCK_BYTES))):
            crc, left = zlib.crc32(block, crc), left - len(block)
        return None if left else crc

    def _start_over(self, *, keep: bool) -> None:
        self._handle = os.open(self.data, os.O_RDWR | os.O_CREAT | (0 if keep else os.O_TRUNC), 0o600)
        if self._size is not None:
            os.ftruncate(self._handle, self._size)
        if not keep:
            self._journal.write_text(json.dumps(self.head) + "\n", encoding="utf-8")

    def bounds(self, part: int) -> tuple[int, int]:
        """Where a range starts and ends."""
        return part * self._part_bytes, min((part + 1) * self._part_bytes, self._size or 0)

    @property
    def arrived_bytes(self) -> int:
        """What need not be fetched again."""
        return sum(end - start for start, end in map(self.bounds, self._arrived))

    def missing(self) -> list[int]:
        """The ranges still to come."""
        count = -(-(self._size or 0) // self._part_bytes)
        return [part for part in range(count) if part not in self._arrived]

    def write(self, block: bytes, at: int) -> None:
        """Put bytes where they belong."""
        view = memoryview(block)
        while view:
            written = os.pwrite(self._handle, view, at)
            view, at = view[written:], at + written

    def cut(self, size: int) -> None:
        """Drop the bytes from `size` on."""
        os.ftruncate(self._handle, size)

    def done(self, part: int, crc: int) -> None:
        """Enter a range whose bytes are written."""
        with self._lock, self._journal.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps({"part": part, "crc": crc}) + "\n")
            self._arrived.add(part)

    def close(self, *, flush: bool) -> None:
        """Let go of the file; `flush` waits until its bytes are on the disk."""
        if flush:
            os.fsync(self._handle)
        os.close(self._handle)

    def remove(self) -> None:
        """Forget it all."""
        self._journal.unlink(missing_ok=True)
        self.data.unlink(missing_ok=True)
        self.data.parent.rmdir()


def _parts(lines: list[str]) -> Iterator[tuple[int, int]]:
    for line in lines:
        try:
            entry = json.loads(line)
            yield int(entry["part"]), int(entry["crc"])
        except (ValueError, KeyError, TypeError):  # the line that was being written when the process was killed
            continue


def arrived_before(folder: Path) -> int:
    """Bytes on disk of an earlier attempt, by their blocks (ranges that have not come take none)."""
    try:
        return (folder / "data").stat().st_blocks * 512
    except OSError:
        return 0
