"""What became of a switch: its predicted gain, its measured one, the quality before and after, and the advice."""

from __future__ import annotations

from math import sqrt
from typing import Final, Literal

from tonnage.calibration.local_profile import NORMAL_80
from tonnage.optimisations.switches import Switch
from tonnage.planning.reasons.misses import Miss
from tonnage.sizing.estimates import Figure
from tonnage.values import dataclass

Advice = Literal["switch on", "open", "leave", "refused", "unknown"]
ENOUGH_TURNS: Final = 2  # one turn has no interval


@dataclass(frozen=True, slots=True, kw_only=True)
class Unpredicted:
    """Why a gain has no prediction: the device refuses the change (`miss`), or in words what is not known."""

    said: str
    miss: Miss | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Quality:
    """Right answers (fractions) of the work as it is and with the switch, on the same labelled rows.

    `loss`: before less after, with its 80 % interval: of the same rows answered twice that of paired differences, of
    two trained models that of two proportions. `paired` tells which.
    """

    metric: str
    before: float
    after: float
    rows: int
    loss: Figure
    paired: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredSwitch:
    """What processes on this machine came to. `gain`: of the same turn, over all turns. `reason`: why it failed, or why
    it was `left_out`: nothing here can be timed with it, or someone ended the measuring before its first turn."""

    rate_per_s: Figure | None = None
    gain: Figure | None = None
    turns: int = 0
    reason: str | None = None
    quality: Quality | None = None
    agreement: float | None = None  # of rows without labels: the share of answers that are the same
    peak_rss_bytes: Figure | None = None
    warm_up_s: Figure | None = None
    left_out: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchOutcome:
    """One switch. `rate_per_s` is predicted; None with `why_none`."""

    switch: Switch
    rate_per_s: Figure | None = None
    gain: Figure | None = None
    why_none: Unpredicted | None = None
    measured: MeasuredSwitch | None = None

    def advice(self, most_loss: float) -> Advice:
        """By the measured gain where there is one, else by the predicted; refused beyond a loss of quality."""
        measured = self.measured
        if measured is not None and measured.quality is not None and measured.quality.loss.value > most_loss:
            return "refused"
        if measured is not None and measured.gain is not None and measured.turns < ENOUGH_TURNS:
            return "open"
        known = measured.gain if measured is not None and measured.gain is not None else self.gain
        if known is None:
            return "unknown"
        return "switch on" if known.low > 1.0 else "leave" if known.high <= 1.0 else "open"


def paired_loss(before: list[bool], after: list[bool]) -> Figure:
    """Share of rows answered right before less that after, with the 80 % interval of paired differences.

    With b rows right before alone and c right after alone of n, the loss is (b - c)/n with a variance of
    (b + c - (b - c)²/n)/n² (McNemar's table; Agresti 2013, *Categorical Data Analysis*, 11.1.1).

    >>> loss = paired_loss([True, True, True, False], [True, True, False, False])
    >>> loss.value, round(loss.high, 3)
    (0.25, 0.527)
    """
    count = len(before)
    lost = sum(one and not other for one, other in zip(before, after, strict=True))
    won = sum(other and not one for one, other in zip(before, after, strict=True))
    value = (lost - won) / count
    half = NORMAL_80 * sqrt(max(lost + won - (lost - won) ** 2 / count, 0.0)) / count
    return Figure(value=value, low=value - half, high=value + half, basis="measured")


def unpaired_loss(before: float, after: float, rows: int) -> Figure:
    """The same of two models judged on as many rows each: the interval of a difference of two proportions.

    >>> loss = unpaired_loss(0.9, 0.88, 1000)
    >>> round(loss.value, 3), round(loss.low, 3)
    (0.02, 0.002)
    """
    half = NORMAL_80 * sqrt((before * (1 - before) + after * (1 - after)) / rows)
    value = before - after
    return Figure(value=value, low=value - half, high=value + half, basis="measured")
