"""What a plan shows of an 80 % interval (made in `calibration.intervals`): its ends, and the rows behind it."""

from __future__ import annotations

from dataclasses import replace

from tonnage.sizing.estimates import Basis, Figure, Spread
from tonnage.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """Which 80 % interval a figure has, and the left-out rows behind it (0: a judgement)."""

    of: str  # time, memory, latency, ttft, rate
    group: str  # of the calibration, or what is judged
    spread: Spread
    rows: int = 0
    families: int = 0
    far_rows: int = 0  # rows that say how much wider it is for what is unknown; 0: judged, or nothing is
    unknown: tuple[str, ...] = ()  # GPU, precision, engine that no row had: each widens it

    def around(self, value: float, basis: Basis = "computed") -> Figure:
        """The figure of that value."""
        return self.spread.around(value, basis)

    def inverse(self) -> Interval:
        """The interval of one over the figure."""
        turned = Spread(low_factor=1.0 / self.spread.high_factor, high_factor=1.0 / self.spread.low_factor)
        return replace(self, spread=turned)
