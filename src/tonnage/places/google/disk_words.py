"""Words of Compute Engine's disks, and of ours about them: types, access modes, labels. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

HYPERDISK_ML: Final = "hyperdisk-ml"
WRITTEN_BY_ONE, READ_BY_MANY = "READ_WRITE_SINGLE", "READ_ONLY_MANY"
FILL: Final = "tonnage-fill"  # label: the content's key, as much as a label holds
DIGEST: Final = "tonnage-digest"  # label of a disk that is whole: of all its files
LABEL: Final = 60  # characters of a key in a label, of 63


def is_whole(disk: Mapping[str, Any]) -> bool:
    """Whether many machines can read a disk that was filled, and all of its content is there."""
    return disk.get("accessMode") == READ_BY_MANY and DIGEST in (disk.get("labels") or {})
