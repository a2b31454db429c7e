"""What the client and the machine that fills a disk say to each other in the bucket, and what a filled disk holds."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Final, Literal

from tonnage.errors import TonnageError
from tonnage.values import dataclass

FILLED: Final = ".tonnage-filled.json"  # of a disk whose content is whole and verified
WORKING: Final = ".tonnage-working"  # of a disk that is not: caches, and what has arrived in part
Stage = Literal["fetching", "verified", "filled", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FillRequest:
    """What a machine is to fetch."""

    key: str  # of the content
    sources: tuple[str, ...]
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    sums: str = ""

    def content(self) -> bytes:
        return json.dumps(asdict(self), sort_keys=True).encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class FillState:
    """How far a machine is. `verified`: all of it is there; `filled`: and the disk is no longer mounted."""

    stage: Stage
    digest: str = ""  # of all names and SHA-256: 64 hexadecimal digits
    files: int = 0
    size_bytes: int = 0
    arrived_bytes: int = 0  # by this machine
    reason: str = ""

    def content(self) -> bytes:
        return json.dumps(asdict(self), sort_keys=True).encode()


def request_key(disk_id: str) -> str:
    """Of the request in the bucket. A disk that is made again has another id, and nothing of the older one counts."""
    return f"fills/{disk_id}/request.json"


def state_key(disk_id: str) -> str:
    return f"fills/{disk_id}/state.json"


def read_request(content: bytes) -> FillRequest:
    request = json.loads(content)
    lists = {name: tuple(request[name]) for name in ("sources", "include", "exclude")}
    return FillRequest(key=request["key"], sums=request["sums"], **lists)


def read_state(content: bytes, where: str) -> FillState:
    """TonnageError where it is not one."""
    try:
        return FillState(**json.loads(content))
    except (ValueError, TypeError) as error:
        raise TonnageError(f"{where} is no state of a disk: {error}", hint="remove that object") from error


def content_digest(sha256: Mapping[str, str]) -> str:
    """Of files by name and SHA-256.

    >>> content_digest({"b": "1", "a": "2"}) == content_digest({"a": "2", "b": "1"})
    True
    """
    lines = "".join(f"{sha256[name]}  {name}\n" for name in sorted(sha256))
    return hashlib.sha256(lines.encode()).hexdigest()
