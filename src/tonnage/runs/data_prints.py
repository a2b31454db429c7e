"""Fingerprints of the files a run learns from: a file that changes under a run is reported before it goes on."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from tonnage.errors import InputError
from tonnage.runs.locations import files_at, is_remote
from tonnage.runs.spec import DataSpec, FilePrint

WHOLE_BYTES: Final = 1 << 30  # a larger file is hashed in part
PIECES: Final = 256  # of it, evenly spread, the first and the last bytes among them
PIECE_BYTES: Final = 1 << 20


def with_prints(data: DataSpec) -> DataSpec:
    """The data with fingerprints of its local files. What is behind a network or in a database has none."""
    return replace(data, prints=tuple(_print(path) for path in _local_files(data)))


def check_prints(data: DataSpec) -> None:
    """InputError names the first file that is not what the run began with. Nothing where it began without prints."""
    if data.prints is None:
        return
    known = {one.path: one for one in data.prints}
    found = {str(path): path for path in _local_files(data)}
    for odd in sorted(known.keys() ^ found.keys()):
        raise _changed(odd, "is gone" if odd in known else "was not there when the run began")
    for name, path in found.items():
        if path.stat().st_size != known[name].bytes or _print(path) != known[name]:
            raise _changed(name, "is not what it was when the run began")


def _changed(path: str, how: str) -> InputError:
    hint = "restore the data as it was, or start a new run under another name"
    return InputError(f"{path} {how}: going on would learn some rows twice and others never", hint=hint)


def _local_files(data: DataSpec) -> Iterator[Path]:
    seen: set[Path] = set()
    for source in (data.train, data.validation, data.test):
        if source is None or source.format in ("hf", "sql"):
            continue
        for location in (source.location, *source.more):
            for path in () if is_remote(location) or "${" in location else files_at(location):
                if path not in seen:
                    seen.add(path)
                    yield path


def _print(path: Path) -> FilePrint:
    size = path.stat().st_size
    digest = hashlib.sha256()
    with path.open("rb") as file:
        if size <= WHOLE_BYTES:
            while block := file.read(PIECE_BYTES):
                digest.update(block)
        else:
            for piece in range(PIECES):
                file.seek((size - PIECE_BYTES) * piece // (PIECES - 1))
                digest.update(file.read(PIECE_BYTES))
    return FilePrint(path=str(path), bytes=size, sha256=digest.hexdigest())
