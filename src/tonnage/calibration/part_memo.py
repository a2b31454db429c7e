"""Parts of training steps remembered while a search moves one parameter at a time, which most parts do not read."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Final, cast

from tonnage.sizing.assumptions import Assumptions
from tonnage.sizing.devices import Devices
from tonnage.sizing.estimates import Array
from tonnage.sizing.training_time import PartSeconds, part_seconds
from tonnage.sizing.training_work import OperatorWork
from tonnage.values import dataclass

KEPT: Final = 6  # results of a part: where the search stands, and the last it tried


class _Reads:
    """Assumptions that note which of their values are read."""

    __slots__ = ("held", "read")

    def __init__(self, held: Assumptions) -> None:
        self.held, self.read = held, dict[str, Any]()

    def __getattr__(self, name: str) -> Any:
        value = self.read[name] = getattr(self.held, name)
        if callable(value):
            raise TypeError(f"what {name}() reads would go unnoticed")
        return value


@dataclass(frozen=True, slots=True, kw_only=True)
class _Result:
    """What a part took, the values it read, and the peaks of the devices it ran on."""

    read: dict[str, Any]
    peaks: bytes
    seconds: PartSeconds

    def holds(self, peaks: bytes, assumed: Assumptions) -> bool:
        return peaks == self.peaks and all(getattr(assumed, name) == value for name, value in self.read.items())


class PartMemo:
    """`part_seconds` of one table on one set of devices: a part is worked out anew where a value that it reads, or a
    device's sustained rate, has changed."""

    def __init__(self) -> None:
        self._held: dict[int, OrderedDict[int, _Result]] = {}
        self._made = 0

    def __call__(self, part: OperatorWork, devices: Devices, element: Array, assumed: Assumptions) -> PartSeconds:
        held = self._held.setdefault(id(part), OrderedDict())
        peaks = devices.peak_flop_per_s.tobytes()
        for number, found in reversed(held.items()):
            if found.holds(peaks, assumed):
                held.move_to_end(number)
                return found.seconds
        reads = _Reads(assumed)
        seconds = part_seconds(part, devices, element, cast(Assumptions, reads))
        self._made += 1
        held[self._made] = _Result(read=reads.read, peaks=peaks, seconds=seconds)
        if len(held) > KEPT:
            held.popitem(last=False)
        return seconds
