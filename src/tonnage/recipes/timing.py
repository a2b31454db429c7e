"""How long steps take, measured without making the host wait for the device."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median, quantiles
from typing import Any, Final

REMEMBERED: Final = 2000  # newest steps that the figures of a run are taken from
CARRIED: Final = 500  # of them go into a checkpoint
WARM_UP: Final = 1  # steps of each attempt left out: caches, kernels and memory are set up in them


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
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
        self.done: deque[tuple[float, float, int, int]] = deque(maxlen=REMEMBERED)  # seconds, wait, samples, tokens

    def _now(self) -> Any:
        if not self._on_gpu:
            return time.perf_counter()
        import torch

        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def begin(self) -> None:
        self._begun = self._now()

    def end(self, *, data_wait_s: float, samples: int, tokens: int) -> None:
        """One step over; `samples` and `tokens` of all processes."""
        self._open.append((self._begun, self._now(), data_wait_s, samples, tokens))

    def close_window(self) -> Window:
        """Sum up the steps since the last call. Call it after the device has been read, so that no event is open."""
        if self._on_gpu:
            self._open[-1][1].synchronize()
        measured = [
            (begin.elapsed_time(end) / 1000 if self._on_gpu else end - begin, wait, samples, tokens)
            for begin, end, wait, samples, tokens in self._open
        ]
        self.done.extend(measured[max(0, WARM_UP - self._steps) :])
        self._steps += len(measured)
        self._open.clear()
        return Window(
            steps=len(measured),
            step_s=sum(step[0] for step in measured) / len(measured),
            data_wait_s=sum(step[1] for step in measured) / len(measured),
            samples=sum(step[2] for step in measured),
            tokens=sum(step[3] for step in measured),
        )

    def figures(self) -> dict[str, float | None]:
        """Median, 90th percentile and rates over the remembered steps; None where no step was timed."""
        seconds = sorted(step[0] for step in self.done)
        total = sum(seconds)
        if not total:
            names = ("median_step_s", "p90_step_s", "samples_per_s", "tokens_per_s", "data_wait_fraction")
            return dict.fromkeys(names)
        return {
            "median_step_s": median(seconds),
            "p90_step_s": quantiles(seconds, n=10, method="inclusive")[-1] if len(seconds) > 1 else seconds[0],
            "samples_per_s": sum(step[2] for step in self.done) / total,
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
