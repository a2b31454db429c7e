"""One measured row beside its prediction, or the reason why it cannot be judged."""

from __future__ import annotations

from tonnage.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedRow:
    """A prediction of exactly what a row states, in the row's own convention and unit.

    `unseen_factors`: how far the row is from what the calibration has seen (0: device generation, precision and
    engine all seen;
    1 for each of them that was not); intervals widen with it. `needed_gib`: of a memory row, what `sizing.fitting`
    holds against a device (its own reading may be another); `capacity_gib`: the memory a row itself says there is.
    `source`: who measured; "" where the table does not say. `bound`: the reading is no less than what is needed, and
    perhaps far more (a device under a caching allocator): an error counts, but says nothing of how far off a need is.
    """

    row_id: str
    metric: str
    family: str
    gpu: str
    measured: float
    predicted: float
    suspect: bool
    group: str  # which interval applies: "training time", "training memory", "encoder time", ...
    unseen_factors: int = 0
    foreign: int = 0  # of `unseen_factors`: generation or vendor of the device, number format
    needed_gib: float | None = None
    capacity_gib: float | None = None
    source: str = ""
    bound: bool = False
    host_share: float = 0.0  # how far a time goes with the speed of its host, which no row states


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedRow:
    """A row that is not judged, and why; `line`: of the file, where one of its cells cannot be used."""

    row_id: str
    metric: str
    reason: str
    suspect: bool = False
    line: int | None = None
