"""The shards of several workers made into one output: every row once, a torn last line left out."""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import numpy as np

from tonnage.batches.records import line_key
from tonnage.files import move_whole

_READ_BYTES: Final = 2**22


def merge_shards(answers: Sequence[Path], errors: Sequence[Path], output: Path, output_errors: Path) -> None:
    """Write both files whole. A row with an answer is not among the errors; of two answers the first one counts.

    Eight bytes a row are kept in memory. Raises OSError.
    """
    answered = _keys(answers)
    _write(answers, output, _repeated(answered), frozenset())
    failed = _keys(errors)
    both = frozenset(np.intersect1d(answered, failed).tolist())
    _write(errors, output_errors, _repeated(failed), both)
    if not output_errors.stat().st_size:
        output_errors.unlink()


def _keys(shards: Sequence[Path]) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    found = array("Q", (int(key[:16], 16) for key, _ in _lines(shards)))
    keys = np.frombuffer(found, dtype=np.uint64).copy() if found else np.empty(0, dtype=np.uint64)
    keys.sort()
    return keys


def _repeated(keys: np.ndarray[tuple[int], np.dtype[np.uint64]]) -> frozenset[int]:
    return frozenset(keys[1:][keys[1:] == keys[:-1]].tolist()) if len(keys) > 1 else frozenset()


def _write(shards: Sequence[Path], place: Path, repeated: frozenset[int], left_out: frozenset[int]) -> None:
    beside = place.with_name(f".{place.name}.{os.getpid()}.merging")
    seen: set[bytes] = set()
    with beside.open("wb", buffering=_READ_BYTES) as stream:
        for key, line in _lines(shards):
            short = int(key[:16], 16)
            if short in left_out or key in seen:
                continue
            if short in repeated:
                seen.add(key)
            stream.write(line)
        stream.flush()
        os.fsync(stream.fileno())
    move_whole(beside, place)


def _lines(shards: Sequence[Path]) -> Iterator[tuple[bytes, bytes]]:
    """(key, line) of all whole lines."""
    for shard in shards:
        with shard.open("rb", buffering=_READ_BYTES) as stream:
            for line in stream:
                key = line_key(line)
                if key is not None and line.endswith(b"\n"):
                    yield key, line
