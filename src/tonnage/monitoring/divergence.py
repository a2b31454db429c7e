"""Why a run is slower than predicted, as far as the figures of the alert's own window tell."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tonnage.monitoring.alerts.rules import Condition, Take
from tonnage.monitoring.alerts.windows import RecentFigures
from tonnage.monitoring.figures import SeriesKey
from tonnage.runs.diagnosis import OTHERS, WAITED

SLOW: Final = "tonnage_run_rate_to_predicted_low_ratio"
UNEXPLAINED: Final = "data wait, clocks, other programs and memory do not explain it"
SCARCE: Final = 0.05  # of the machine's memory is available


def likely_reason(run: str, recent: RecentFigures, at: float, over_s: float) -> str:
    """What is seen of a run in the last `over_s` seconds, by the limits of a run's report; or that nothing is.

    Nothing is recorded of networks but a GPU's replays on its bus, so that a slow network is never named by itself.
    """
    return "; ".join(_seen(_Window(run, recent, at, over_s))) or UNEXPLAINED


class _Window:
    """Figures of one run over one window."""

    def __init__(self, run: str, recent: RecentFigures, at: float, over_s: float) -> None:
        self._run, self._recent, self._at, self._over_s = run, recent, at, over_s

    def all(self, metric: str, take: Take = "mean") -> dict[SeriesKey, float]:
        """Every series of the run; a mean of less than half of the window is not known, and not there."""
        asked = Condition(
            metric=f"tonnage_{metric}", labels=(("run", self._run),), take=take, over_s=self._over_s,
            direction="above", limit=0.0, clear_at=0.0,
        )  # fmt: skip
        return {one.key: one.value for one in self._recent.read(asked, self._at)}

    def one(self, metric: str, take: Take = "mean") -> float | None:
        """The largest of its series; None: not known."""
        return max(self.all(metric, take).values(), default=None)


def _seen(window: _Window) -> Iterator[str]:
    waited, step = window.one("run_data_wait_seconds"), window.one("run_step_seconds")
    if waited is not None and step and waited / step > WAITED:
        yield f"{100 * waited / step:.0f} % of the step time was waiting for data"
    reasons = sorted({key.label("reason") or "?" for key in window.all("gpu_throttled")})
    if reasons:
        yield f"a GPU's clocks were held back ({', '.join(reasons)})"
    machine, own = window.one("machine_cpu_ratio"), window.one("run_cpu_ratio")
    if machine is not None and own is not None and machine - own > OTHERS:
        yield f"other programs took {100 * (machine - own):.0f} % of the processors"
    retries = window.one("run_allocation_retries_total", "increase")
    if retries:
        yield f"memory was short: the allocator gave back what it kept {retries:.0f} times"
    free, total = window.one("machine_memory_available_bytes"), window.one("machine_memory_total_bytes")
    if free is not None and total and free / total < SCARCE:
        yield f"{100 * free / total:.0f} % of the machine's memory was available"
    replays = window.one("gpu_pcie_replays_total", "increase")
    if replays:
        yield f"{replays:.0f} transfers on a GPU's bus were repeated"
