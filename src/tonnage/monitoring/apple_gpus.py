"""The GPU of a Mac as its I/O registry tells of it: how busy it is, and how much of the memory it holds.

Power, temperature and clocks take `powermetrics`, which is for administrators alone: they are not known here.
"""

from __future__ import annotations

import plistlib
import subprocess
from collections.abc import Callable, Iterator, Set
from typing import Any, Final

import psutil

from tonnage.monitoring.gpu_sample import GpuSample

IOREG: Final = ("ioreg", "-r", "-d", "1", "-w", "0", "-a", "-c", "IOAccelerator")
TIMEOUT_S: Final = 5.0


class AppleGpus:
    """The GPUs of this Mac, `most` of them. `ask` gives the registry's property list; OSError where there is none."""

    def __init__(self, ask: Callable[[], bytes] | None = None, *, most: int | None = None) -> None:
        self._ask, self._most, self._count = ask or _registry, most, 0
        self.why_none: str | None = None
        try:
            self._count = len(self._read())
            self.why_none = None if self._count else "no GPU is in the I/O registry"
        except (OSError, ValueError) as error:
            self.why_none = f"ioreg: {error}"

    def sample(self, _pids: Set[int] = frozenset(), /) -> tuple[GpuSample, ...]:
        """What holds now."""
        if self._count == 0:
            return ()
        try:
            return self._read()
        except (OSError, ValueError) as error:
            return tuple(GpuSample(index=number, name="", fault=str(error)) for number in range(self._count))

    def close(self) -> None:
        """Nothing is held."""

    def _read(self) -> tuple[GpuSample, ...]:
        return tuple(apple_samples(self._ask(), memory_bytes=psutil.virtual_memory().total))[: self._most]


def apple_samples(content: bytes, *, memory_bytes: int) -> Iterator[GpuSample]:
    """The property list of `ioreg -a`. ValueError where it is none. `memory_bytes`: of the machine, which both
    share."""
    try:
        entries = plistlib.loads(content) if content.strip() else []
    except plistlib.InvalidFileException as error:
        raise ValueError(f"not a property list: {error}") from error
    known = [one for one in entries if isinstance(one, dict) and isinstance(one.get("PerformanceStatistics"), dict)]
    for number, one in enumerate(known):
        told: dict[str, Any] = one["PerformanceStatistics"]
        model, busy, used = one.get("model", "Apple GPU"), told.get("Device Utilization %"), told.get(
            "In use system memory")  # fmt: skip
        yield GpuSample(
            index=number, name=model.decode(errors="replace").rstrip("\0") if isinstance(model, bytes) else str(model),
            utilization_fraction=None if busy is None else busy / 100,
            memory_used_bytes=None if used is None else int(used), memory_total_bytes=memory_bytes,
        )  # fmt: skip


def _registry() -> bytes:
    try:
        done = subprocess.run(IOREG, capture_output=True, timeout=TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise OSError(f"no answer for {TIMEOUT_S:g} s") from error
    if done.returncode != 0:
        raise OSError(done.stderr.decode(errors="replace")[:200] or f"exit code {done.returncode}")
    return done.stdout
