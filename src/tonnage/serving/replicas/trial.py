"""A new version on trial beside the old one: what each answered, and whether the new one may go on. Pure."""

from __future__ import annotations

from collections import deque
from dataclasses import field
from typing import Final, Literal

from tonnage.values import dataclass

MOST_KEPT: Final = 4096
FEWEST_FOR_P95: Final = 20
FEWEST_ERRORS: Final = 2  # one alone may be chance
LONGEST_WINDOWS: Final = 4  # so many times the window where too few have been answered
SLACK_S: Final = 0.005  # two small percentiles differ by this for no reason
Decision = Literal["wait", "go on", "back"]


@dataclass(slots=True, kw_only=True)
class SeatCounts:
    """What one version has answered since its trial began."""

    errors: int = 0  # answers of 500 and above, and none
    took_s: deque[float] = field(default_factory=lambda: deque(maxlen=MOST_KEPT))
    answers: int = 0

    def note(self, took_s: float, *, error: bool) -> None:
        """One request is over."""
        if error:
            self.errors += 1
        else:
            self.answers += 1
            self.took_s.append(took_s)

    @property
    def p95_s(self) -> float | None:
        """None where too few were answered to say."""
        kept = sorted(self.took_s)
        return kept[int(0.95 * (len(kept) - 1))] if len(kept) >= FEWEST_FOR_P95 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialRules:
    """When a new version goes back. `share`: of the requests, while it is on trial; `p95_s`: what is promised;
    `predicted_high_s`: the upper end of what was predicted of a request; None: not known."""

    window_s: float = 30.0
    share: float = 0.2
    most_errors: float = 0.01
    p95_ratio: float = 1.5
    p95_s: float | None = None
    predicted_high_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialVerdict:
    """What to do, and why, in words."""

    decision: Decision
    why: str


def judge(new: SeatCounts, old: SeatCounts, rules: TrialRules, *, elapsed_s: float) -> TrialVerdict:
    """The new version beside the old one, which answered in the same time.

    Errors send it back at once, what takes time at the end of the window, or once enough were answered.
    """
    seen = new.answers + new.errors
    if new.errors >= FEWEST_ERRORS and new.errors > rules.most_errors * seen:
        return TrialVerdict(decision="back", why=f"{new.errors} of its {seen} answers failed")
    if elapsed_s < rules.window_s:
        return TrialVerdict(decision="wait", why=f"{seen} answers in {elapsed_s:.0f} s")
    p95, before = new.p95_s, old.p95_s
    if p95 is None:
        if seen and elapsed_s < LONGEST_WINDOWS * rules.window_s:
            return TrialVerdict(decision="wait", why=f"{seen} answers in {elapsed_s:.0f} s are too few to judge")
        if new.errors:
            return TrialVerdict(decision="back", why=f"{new.errors} of only {seen} answers failed")
        why = f"{seen} answers in {elapsed_s:.0f} s are too few for a percentile; none failed"
        return TrialVerdict(decision="go on", why=why)
    found = f"p95 {1000 * p95:.1f} ms over {new.answers} answers"
    for limit, words in (
        (None if before is None else before * rules.p95_ratio + SLACK_S,
         "" if before is None else f"{rules.p95_ratio:g} times that of the old version, {1000 * before:.1f} ms"),
        (rules.p95_s, f"the promise of {1000 * (rules.p95_s or 0):.1f} ms"),
        (rules.predicted_high_s, f"the predicted band, up to {1000 * (rules.predicted_high_s or 0):.1f} ms"),
    ):  # fmt: skip
        if limit is not None and p95 > limit:
            return TrialVerdict(decision="back", why=f"{found} is above {words}")
    return TrialVerdict(decision="go on", why=f"{found}, {new.errors} failed")
