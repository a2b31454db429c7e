"""Digests of files: computed in one pass, held against what was stated, and `SHA256SUMS` files read."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from tonnage.errors import InputError
from tonnage.fetching.remote import BLOCK_BYTES, Checksum
from tonnage.values import dataclass

_LINE: Final = re.compile(r"\\?([0-9a-fA-F]{64})(?: [ *]?(\S.*))?")
_BSD_LINE: Final = re.compile(r"SHA256 ?\((.+)\) ?= ?([0-9a-fA-F]{64})")
LARGEST_SUMS_BYTES: Final = 16 * 2**20


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A stated digest that the bytes do not have."""

    stated: Checksum
    found: str

    def __str__(self) -> str:
        return f"{self.stated.algorithm} is {self.found}, the {self.stated.stated_by} says {self.stated.hex}"


def digests(path: Path, algorithms: Iterable[str]) -> dict[str, str]:
    """Hex digests of a file, read once; `git-blob` is git's name for a file of these bytes."""
    makers = {}
    for name in {"sha256", *algorithms}:
        makers[name] = hashlib.sha1(usedforsecurity=False) if name == "git-blob" else hashlib.new(name)
    if "git-blob" in makers:
        makers["git-blob"].update(f"blob {path.stat().st_size}\0".encode())
    with path.open("rb", buffering=0) as stream:
        while block := stream.read(4 * BLOCK_BYTES):
            for maker in makers.values():
                maker.update(block)
    return {name: maker.hexdigest() for name, maker in makers.items()}


def first_mismatch(found: Mapping[str, str], stated: Iterable[Checksum]) -> Mismatch | None:
    """The first stated digest that is not the one found."""
    for one in stated:
        if found[one.algorithm] != one.hex.lower():
            return Mismatch(one, found[one.algorithm])
    return None


def read_sha256(text: str, what: str) -> str:
    """A SHA-256 in hex; InputError on anything else."""
    if not re.fullmatch(r"[0-9a-fA-F]{64}", text):
        raise InputError(f"{what}: found {text[:80]!r}, expected 64 hexadecimal digits")
    return text.lower()


def parse_sums(text: str, name: str) -> dict[str, str]:
    """Name to SHA-256 of a `SHA256SUMS` (GNU or BSD form) or a `FILE.sha256`, whose lone digest is that of FILE.

    >>> parse_sums("ab" * 32 + "  ./data/a.bin", "SHA256SUMS")["data/a.bin"][:4]
    'abab'
    """
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        if bsd := _BSD_LINE.fullmatch(line.strip()):
            found[bsd[1].removeprefix("./")] = bsd[2].lower()
        elif plain := _LINE.fullmatch(line.strip()):
            found[(plain[2] or name.rpartition("/")[2].removesuffix(".sha256")).removeprefix("./")] = plain[1].lower()
        else:
            raise InputError(
                f"{name}:{number}: found {line[:60]!r}, expected a SHA-256 and a name",
                hint="the form that `sha256sum FILE...` prints",
            )
    return found


def is_sums_name(name: str) -> bool:
    """Whether a file of this name states the SHA-256 of others."""
    last = name.rpartition("/")[2]
    return last.upper() in ("SHA256SUMS", "SHA256SUMS.TXT", "SHA256SUM", "SHA256SUM.TXT") or last.endswith(".sha256")


def stated_in_sums(name: str, sums: Mapping[str, Mapping[str, str]]) -> list[Checksum]:
    """What sums files (their name to what they hold) state about `name`; their entries start at their own folder."""
    found = []
    for sums_name, entries in sums.items():
        folder = sums_name.rpartition("/")[0]
        inner = name.removeprefix(f"{folder}/") if folder else name
        if (not folder or name.startswith(f"{folder}/")) and inner in entries:
            found.append(Checksum(algorithm="sha256", hex=entries[inner], stated_by=sums_name.rpartition("/")[2]))
    return found
