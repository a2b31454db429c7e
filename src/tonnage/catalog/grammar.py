"""The GPU grammar: `H100:8`, `A100-80GB:1..8`, `24GB..80GB`, `..80GB:1..8`. Text in, a frozen filter out."""

from __future__ import annotations

import re
from functools import lru_cache

from tonnage.catalog.aliases import devices_called, fold_name
from tonnage.catalog.hardware import Accelerator
from tonnage.errors import InputError
from tonnage.values import dataclass

FORMS = "write NAME, NAME:8, NAME:1..8, 80GB, 24GB..80GB, 24GB.. or ..80GB:1..8"

_MEMORY = r"(?:\d+(?:\.\d+)?\s*Gi?B)"
_MEMORY_RANGE = re.compile(rf"(?P<low>{_MEMORY})?(?P<dots>\.\.)?(?P<high>{_MEMORY})?", re.IGNORECASE)
_COUNT_RANGE = re.compile(r"(?P<low>\d{1,6})?(?P<dots>\.\.)?(?P<high>\d{1,6})?")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9]*(?:[ _-][A-Za-z0-9]+)*")
_MEMORY_TOLERANCE = 0.005  # 80GB is 80 nominal GiB, give or take rounding


@dataclass(frozen=True, slots=True)
class GpuFilter:
    """Which devices, and how many. Bounds are inclusive; None means no bound.

    Memory is what one device is sold with (GiB). A name matches whole dash-separated parts from the left, or
    as the alias table says; case does not count. Whether the count is per node or per job is the caller's.
    """

    text: str
    name: str | None
    min_memory_gib: float | None
    max_memory_gib: float | None
    min_count: int
    max_count: int | None

    @property
    def states_count(self) -> bool:
        """Whether the text names a count; without one any amount matches, slices of a shared card too."""
        return ":" in self.text

    def matches(self, accelerator: Accelerator, count: float) -> bool:
        """Whether `count` of `accelerator` is what the filter asks for.

        A device whose memory is not published matches no memory bound.
        """
        return self.matches_device(accelerator) and self.matches_count(count)

    def matches_device(self, accelerator: Accelerator) -> bool:
        """Whether the device alone is one the filter asks for, whatever the count."""
        if self.name is not None and not _name_matches(self.name, accelerator.name):
            return False
        return self._memory_matches(accelerator.memory_gib)

    def matches_count(self, count: float) -> bool:
        """Whether `count` devices lie in the bounds."""
        if not self.states_count:
            return count > 0
        return self.min_count <= count and (self.max_count is None or count <= self.max_count)

    def _memory_matches(self, memory_gib: float | None) -> bool:
        low, high = self.min_memory_gib, self.max_memory_gib
        if low is None and high is None:
            return True
        if memory_gib is None:
            return False
        slack = memory_gib * _MEMORY_TOLERANCE
        return (low is None or memory_gib + slack >= low) and (high is None or memory_gib - slack <= high)

    def __str__(self) -> str:
        return self.text


def parse_gpu_filter(text: str) -> GpuFilter:
    """Read one filter; raises InputError, with the forms that work, on anything else.

    >>> parse_gpu_filter("A100-80GB:1..8").max_count
    8
    >>> parse_gpu_filter("24GB..").min_memory_gib
    24.0
    """
    cleaned = text.strip()
    device, colon, count = cleaned.partition(":")
    device = device.strip()
    if not device:
        raise _bad(text, "it names neither a GPU nor a memory size")
    low_count, high_count = _parse_count(text, count.strip()) if colon else (1, None)
    low_memory, high_memory, is_memory = _parse_memory(text, device)
    if not is_memory and not _NAME.fullmatch(device):
        raise _bad(text, f"'{device}' is neither a GPU name nor a memory size such as 80GB")
    return GpuFilter(
        text=cleaned,
        name=None if is_memory else device,
        min_memory_gib=low_memory,
        max_memory_gib=high_memory,
        min_count=low_count,
        max_count=high_count,
    )


def _parse_memory(text: str, device: str) -> tuple[float | None, float | None, bool]:
    match = _MEMORY_RANGE.fullmatch(device)
    if match is None:
        return None, None, False
    low, high = _gib(match["low"]), _gib(match["high"])
    if low is None and high is None:
        raise _bad(text, "a range needs at least one end")
    if low == 0 or high == 0:
        raise _bad(text, "a memory size must be above zero")
    if not match["dots"]:
        if low is not None and high is not None:
            raise _bad(text, "two memory sizes need '..' between them")
        return low, low, True
    if low is not None and high is not None and low > high:
        raise _bad(text, f"the range runs backwards ({match['low']} is above {match['high']})")
    return low, high, True


def _gib(size: str | None) -> float | None:
    return None if size is None else float(re.sub(r"[^\d.]", "", size))


def _parse_count(text: str, count: str) -> tuple[int, int | None]:
    match = _COUNT_RANGE.fullmatch(count)
    if match is None or not (match["low"] or match["high"]):
        raise _bad(text, f"'{count}' is not a count such as 8 or 1..8")
    low = int(match["low"]) if match["low"] else 1
    if not match["dots"]:
        if match["high"]:  # the regular expression may split one long number in two
            raise _bad(text, f"'{count}' is not a count such as 8 or 1..8")
        high: int | None = low
    else:
        high = int(match["high"]) if match["high"] else None
    if low < 1 or (high is not None and high < 1):
        raise _bad(text, "a count starts at 1")
    if high is not None and low > high:
        raise _bad(text, f"the range runs backwards ({low} is above {high})")
    return low, high


def _bad(text: str, why: str) -> InputError:
    shown = text if len(text) <= 60 else text[:57] + "..."
    return InputError(f"'{shown}' is not a GPU filter: {why}", hint=FORMS)


@lru_cache(maxsize=4096)
def _name_matches(wanted: str, accelerator: str) -> bool:
    """Whole dash-separated prefix, or the alias table says that `wanted` names this device."""
    parts, have = fold_name(wanted).split("-"), fold_name(accelerator).split("-")
    return have[: len(parts)] == parts or accelerator in devices_called(wanted)
