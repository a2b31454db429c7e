"""Room on the disks, looked at before the first byte."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

from tonnage.errors import FetchError
from tonnage.fetching.targets import nearest_folder
from tonnage.units import to_gib

FreeBytes = Callable[[Path], int]


def free_bytes(path: Path) -> int:
    """Bytes free for us on the disk that holds `path`."""
    return shutil.disk_usage(nearest_folder(path)).free


def check_space(needs: Iterable[tuple[Path, int]], *, free: FreeBytes = free_bytes) -> None:
    """Raise FetchError when the disks of some folders have less room than all that is to come there."""
    by_disk: dict[int, tuple[Path, int]] = {}
    for folder, size in needs:
        disk = os.stat(nearest_folder(folder)).st_dev
        first, sum_bytes = by_disk.get(disk, (folder, 0))
        by_disk[disk] = (first, sum_bytes + size)
    for folder, sum_bytes in by_disk.values():
        have = free(folder)
        if sum_bytes > have:
            raise FetchError(
                f"the disk of {folder} has too little room: {_size(sum_bytes)} needed, {_size(have)} free",
                hint="free some, set TONNAGE_HOME (or HF_HOME) to a larger disk, or take less with --include",
            )


def _size(count: int) -> str:
    return f"{to_gib(count):,.2f} GiB ({count:,} bytes)"
