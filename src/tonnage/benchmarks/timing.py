"""Time short calls on a noisy machine: many repeats, medians and quartiles, disturbed repeats set aside."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import field
from pathlib import Path
from statistics import quantiles
from typing import Final

from tonnage.calibration.local_profile import Timing
from tonnage.values import dataclass

MOST_REPEATS: Final = 400
ENOUGH: Final = 3  # undisturbed repeats
PATIENCE_S: Final = 0.3
DISTURBED_SHARE: Final = 0.02  # of a call spent waiting for a processor, from which on it is disturbed
TASKS: Final = Path("/proc/self/task")

Call = Callable[[], object]


@dataclass(slots=True)
class Samples:
    """Seconds of repeats of one call: undisturbed ones, and those during which a thread waited for a processor."""

    seconds: list[float] = field(default_factory=list)
    corrected: list[float] = field(default_factory=list)  # of disturbed repeats, the wait taken off

    def timing(self, times: float = 1.0, *, threads: int = 1) -> Timing:
        """Median and quartiles of one of `times` equal pieces of work that each call did.

        With one thread the wait is known and disturbed repeats count without it. Threads that wait for one another lose
        more than the longest wait of one, so there undisturbed repeats count alone where there are enough.
        """
        alone = threads > 1 and len(self.seconds) >= ENOUGH
        kept = self.seconds if alone else [*self.seconds, *self.corrected]
        low, middle, high = quantiles(kept, n=4, method="inclusive") if len(kept) > 1 else kept * 3
        return Timing(
            median_s=middle / times, low_quartile_s=low / times, high_quartile_s=high / times,
            repeats=len(kept), disturbed=0 if alone else len(self.corrected),
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class CallTimer:
    """How a call is timed: `synchronise` waits for a device; `threads` do the work (0: a device of its own does)."""

    synchronise: Call
    threads: int

    def time(self, call: Call) -> tuple[float, bool]:
        """Seconds of one call, and whether the system kept one of its threads waiting for a processor meanwhile.

        That wait is no work of the call: the longest of a thread is taken off, though never more than leaves the
        processor time the threads got. (Several threads may wait one after the other: the rest is an upper bound.)
        """
        before = run_delays() if self.threads else {}
        worked, start = time.process_time(), time.perf_counter()
        call()
        self.synchronise()
        wall_s, worked_s = time.perf_counter() - start, time.process_time() - worked
        after = run_delays() if self.threads else {}
        waited_s = max((delay - before.get(thread, 0.0) for thread, delay in after.items()), default=0.0)
        if waited_s < DISTURBED_SHARE * wall_s:
            return wall_s, False
        return max(wall_s - waited_s, worked_s / self.threads), True


def run_delays() -> dict[str, float]:
    """Seconds each thread of this process has stood ready and waited for a processor; empty where the system does not
    tell (Linux: the second figure of `schedstat`, nanoseconds; Documentation/scheduler/sched-stats)."""
    found = {}
    for place in TASKS.iterdir() if TASKS.is_dir() else ():
        try:
            found[place.name] = int((place / "schedstat").read_text().split()[1]) * 1e-9
        except OSError:  # a thread that ended meanwhile
            continue
    return found


def take_samples(call: Call, clock: CallTimer, samples: Samples, *, budget_s: float, fewest: int = 1) -> None:
    """Repeat `call` for about `budget_s`, at least `fewest` times; the very first call does not count.

    With several threads it goes on for up to `PATIENCE_S` until enough repeats were undisturbed.
    """
    if not samples.seconds and not samples.corrected:
        clock.time(call)
    start = time.perf_counter()
    for done in range(1, MOST_REPEATS + 1):
        seconds, disturbed = clock.time(call)
        (samples.corrected if disturbed else samples.seconds).append(seconds)
        taken_s = time.perf_counter() - start
        patient = clock.threads > 1 and len(samples.seconds) < ENOUGH and taken_s < PATIENCE_S
        if taken_s >= budget_s and done >= fewest and not patient:
            return
