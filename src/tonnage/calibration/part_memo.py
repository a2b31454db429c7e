"""Parts of training steps remembered while a search moves one parameter at a time, which most parts do not read."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import fields, replace
from typing import Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from tonnage.calibration.memo import Reads
from tonnage.sizing.assumptions import Assumptions
from tonnage.sizing.devices import Devices
from tonnage.sizing.estimates import Array
from tonnage.sizing.operators import Operator
from tonnage.sizing.training_parts import PartScales, PartSeconds, part_scales, part_seconds
from tonnage.sizing.training_work import OperatorWork
from tonnage.values import dataclass

KEPT: Final = 6  # results of a part: where the search is, and the last it tried
MOST_RECOMPUTED: Final = 0.7  # share of a part's entries up to which only those of the changed rows are computed again


@dataclass(frozen=True, slots=True, kw_only=True)
class _Result:
    """What a part took, the values it read, and the peaks of the devices it ran on."""

    read: dict[str, Any]
    peaks: Array
    seconds: PartSeconds

    def read_as(self, assumed: Assumptions) -> bool:
        return all(getattr(assumed, name) == value for name, value in self.read.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Laid:
    """A part, or its entries of some rows, with its scales."""

    part: OperatorWork
    scales: PartScales


class _Part:
    """One part with what it took lately."""

    def __init__(self, part: OperatorWork, devices: Devices, element: Array) -> None:
        self.whole = _Laid(part=part, scales=part_scales(part, devices, element))
        self._some: dict[bytes, _Laid | None] = {}
        self._held: OrderedDict[int, _Result] = OrderedDict()
        self._made = 0

    def seconds(self, devices: Devices, element: Array, assumed: Assumptions) -> PartSeconds:
        """As `part_seconds` has them."""
        peaks = devices.peak_flop_per_s
        near: _Result | None = None
        for number, found in reversed(self._held.items()):
            if not found.read_as(assumed):
                continue
            if self.whole.part.operator.kind == "elementwise" or np.array_equal(peaks, found.peaks):
                self._held.move_to_end(number)
                return found.seconds
            near = near or found
        made = self._beside(near, devices, element, assumed) if near else None
        return self._hold(made or self._whole(devices, element, assumed))

    def _hold(self, made: _Result) -> PartSeconds:
        self._made += 1
        self._held[self._made] = made
        if len(self._held) > KEPT:
            self._held.popitem(last=False)
        return made.seconds

    def _whole(self, devices: Devices, element: Array, assumed: Assumptions) -> _Result:
        reads = Reads(assumed)
        seconds = part_seconds(self.whole.part, devices, element, cast(Assumptions, reads), self.whole.scales)
        return _Result(read=reads.read, peaks=devices.peak_flop_per_s, seconds=seconds)

    def _beside(self, near: _Result, devices: Devices, element: Array, assumed: Assumptions) -> _Result | None:
        """A result that read the same values, with the rows whose devices' peaks have changed computed again; None
        where those are most."""
        changed = near.peaks != devices.peak_flop_per_s
        some = self._entries_of(changed, devices, element)
        if some is None:
            return None
        recomputed = part_seconds(some.part, devices, element, assumed, some.scales)
        merged = tuple(np.where(changed, new, old) for new, old in zip(recomputed, near.seconds, strict=True))
        return _Result(read=near.read, peaks=devices.peak_flop_per_s, seconds=cast(PartSeconds, merged))

    def _entries_of(self, changed: NDArray[np.bool_], devices: Devices, element: Array) -> _Laid | None:
        """The entries of these rows; None where they are most of the part."""
        key, owner = changed.tobytes(), self.whole.part.owner
        if key not in self._some:
            index = np.flatnonzero(changed if owner is None else changed[owner])
            few = owner is not None and len(index) <= MOST_RECOMPUTED * len(owner)
            part = _taken(self.whole.part, index) if few else None
            self._some[key] = _Laid(part=part, scales=part_scales(part, devices, element)) if part else None
        return self._some[key]


class PartMemo:
    """`part_seconds` of one table on one set of devices: a part is computed again where a value that it reads has
    changed, or, for those rows alone, a device's sustained rate."""

    def __init__(self) -> None:
        self._parts: dict[int, _Part] = {}

    def __call__(self, part: OperatorWork, devices: Devices, element: Array, assumed: Assumptions) -> PartSeconds:
        held = self._parts.get(id(part))
        if held is None:
            held = self._parts[id(part)] = _Part(part, devices, element)
        return held.seconds(devices, element, assumed)


def _taken(part: OperatorWork, index: NDArray[np.intp]) -> OperatorWork:
    """Some entries of a part of many rows."""

    def of(value: Any) -> Any:
        return value[index] if isinstance(value, np.ndarray) and value.ndim else value

    operator = replace(part.operator, **{one.name: of(getattr(part.operator, one.name)) for one in fields(Operator)})
    return replace(
        part, operator=operator, times=of(part.times), backward=of(part.backward), again=of(part.again),
        fused=of(part.fused), owner=of(part.owner),
    )  # fmt: skip
