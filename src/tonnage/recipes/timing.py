"""How long steps take, measured without making the host wait for the device.

Two rates, which are not the same. In steps: samples over the seconds spent in steps; on a CPU the host's clock from
begin to end, on a GPU events from the end of one step to the end of the next, so that moments in which the device
waits for the host count. By the clock: samples over all seconds between the first timed step and the last, with what
happens between steps: waiting for data, agreement of the processes, checkpoints, evaluations.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from statistics import median, quantiles
from typing import Any, Final

from tonnage.values import dataclass

REMEMBERED: Final = 2000  # newest steps that the figures of a run are taken from
CARRIED: Final = 500  # of them go into a checkpoint
WARM_UP: Final = 1  # steps of each attempt left out: caches, kernels and memory are set up in them


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsWindow:
    """What happened since the line before in the metrics."""

    steps: int
    step_s: float  # mean
    data_wait_s: float  # mean per step
    samples: int
    tokens: int


class StepTimes:
    """Begin and end of each step: the host's clock on a CPU, events on a GPU, read where its work is done anyway."""

    def __init__(self, *, on_gpu: bool) -> None:
        self._on_gpu = on_gpu
        self._open: list[tuple[Any, Any, float, int, int]] = []  # begin, end, data wait, samples, tokens
        self._steps = 0
        self._begun: Any = None
        self._ended: Any = None  # the event that ended the step before, where nothing came between
        self.done: deque[tuple[float, float, int, int]] = deque(maxlen=REMEMBERED)  # seconds, wait, samples, tokens
        self._clock_from: float | None = None  # since when this attempt is timed by the clock
        self._clock_s, self._clock_samples = 0.0, 0  # over all attempts

    def _now(self) -> Any:
        if not self._on_gpu:
            return time.perf_counter()
        import torch

        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def begin(self) -> None:
        self._begun = self._ended or self._now()
        self._ended = None

    def interrupt(self) -> None:
        """Something else than training comes before the next step: a checkpoint, an evaluation."""
        self._ended = None

    def end(self, *, data_wait_s: float, samples: int, tokens: int) -> None:
        """One step over; `samples` and `tokens` of all processes."""
        now = self._now()
        self._open.append((self._begun, now, data_wait_s, samples, tokens))
        self._ended = now if self._on_gpu else None

    def close_window(self) -> MetricsWindow:
        """Sum up the steps since the last call. Call it after the device has been read, so that no event is open."""
        if self._on_gpu:
            self._open[-1][1].synchronize()
        measured = [
            (begin.elapsed_time(end) / 1000 if self._on_gpu else end - begin, wait, samples, tokens)
            for begin, end, wait, samples, tokens in self._open
        ]
        timed = measured[max(0, WARM_UP - self._steps) :]
        self.done.extend(timed)
        self._by_clock(timed)
        self._steps += len(measured)
        self._open.clear()
        return MetricsWindow(
            steps=len(measured),
            step_s=sum(step[0] for step in measured) / len(measured),
            data_wait_s=sum(step[1] for step in measured) / len(measured),
            samples=sum(step[2] for step in measured),
            tokens=sum(step[3] for step in measured),
        )

    def _by_clock(self, timed: Sequence[tuple[float, float, int, int]]) -> None:
        """Add the seconds since the window before; of the first window of an attempt, those of its timed steps."""
        now = time.perf_counter()
        began = self._clock_from
        self._clock_from = now
        self._clock_s += sum(step[0] + step[1] for step in timed) if began is None else now - began
        self._clock_samples += sum(step[2] for step in timed)

    def figures(self) -> dict[str, float | None]:
        """Median, 90th percentile and rates over the remembered steps; None where no step was timed."""
        seconds = sorted(step[0] for step in self.done)
        total = sum(seconds)
        if not total:
            names = (
                "timed_steps", "median_step_s", "p90_step_s", "samples_per_s", "clock_samples_per_s", "tokens_per_s",
                "data_wait_fraction",
            )  # fmt: skip
            return dict.fromkeys(names)
        return {
            "timed_steps": len(seconds),
            "median_step_s": median(seconds),
            "p90_step_s": quantiles(seconds, n=10, method="inclusive")[-1] if len(seconds) > 1 else seconds[0],
            "samples_per_s": sum(step[2] for step in self.done) / total,
            "clock_samples_per_s": self._clock_samples / self._clock_s if self._clock_s else None,
            "tokens_per_s": sum(step[3] for step in self.done) / total,
            "data_wait_fraction": min(1.0, sum(step[1] for step in self.done) / total),
        }

    def to_values(self) -> list[list[float]]:
        """The newest of them, for a checkpoint."""
        return [list(step) for step in list(self.done)[-CARRIED:]]

    def restore(self, values: Sequence[Sequence[float]]) -> None:
        """What attempts before this one measured."""
        self.done.extend((step[0], step[1], int(step[2]), int(step[3])) for step in values)

    def typical_s(self) -> float | None:
        """Median seconds of the steps known so far; None before the first."""
        return median(step[0] for step in self.done) if self.done else None
