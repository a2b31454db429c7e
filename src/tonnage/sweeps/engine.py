"""Carry a sweep out: choose values, start trials, watch them, tell the study how each ended.

Every fact is on the disk before anything is done that rests on it: values before a run, the mark «pruned» before a
cancellation, the end of a run before the study learns of it. After a kill, the next process finds a trial in the study,
its run by name, and from the two what is left to do.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any, Final, Protocol

from tonnage.errors import InputError, TonnageError
from tonnage.runs.states import RunReason, RunStatus
from tonnage.sweeps.folder import SweepFolder
from tonnage.sweeps.sweep import Sweep
from tonnage.trials.study import OptunaStudy, Tried, best_of
from tonnage.values import dataclass

CLOCK_EVERY_S: Final = 5.0
LOST_AT_MOST: Final = 2  # times that one trial is started again after its supervisor was gone
_GOES_ON: Final = (RunStatus.LOST, RunStatus.STOPPED)  # ended states that a resumption of the sweep takes up


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenTrial:
    """The current state of a trial's run."""

    state: RunStatus
    over: bool  # ended, and no process works on it any more
    reason: RunReason | None = None
    message: str = ""
    step: int = 0
    metrics: Mapping[str, float] = field(default_factory=dict)  # of the finished model
    evaluations: Mapping[int, Mapping[str, float]] = field(default_factory=dict)  # on the way, by step
    seconds: float | None = None
    usd: float | None = None


class Launcher(Protocol):
    """Starts and ends runs; `tonnage run`'s own way."""

    def observe(self, number: int) -> SeenTrial | None:
        """The run of a trial; None where there is none."""

    def start(self, number: int, values: Mapping[str, Any]) -> None: ...

    def resume(self, number: int) -> None: ...

    def stop(self, number: int) -> None:
        """Ask it to save and end."""

    def cancel(self, number: int) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepEnd:
    """How a session of a sweep ended."""

    why: str  # done, interrupted, cost limit, time limit
    message: str = ""
    paused: int = 0  # trials that a resumption goes on with


class SweepSession:
    """One session of a sweep."""

    def __init__(
        self,
        sweep: Sweep,
        folder: SweepFolder,
        study: OptunaStudy,
        launcher: Launcher,
        *,
        say: Callable[[str], None],
        look_every_s: float = 0.5,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._sweep, self._folder, self._study, self._launcher = sweep, folder, study, launcher
        self._say, self._look_every_s, self._clock = say, look_every_s, clock
        self._began, self._earlier_s, self._saved_at = clock(), folder.seconds(), -math.inf
        self._live: dict[int, int] = {}  # trial -> times it was found lost
        self._paused: set[int] = set()
        self._spent: dict[int, float] = {}

    def run(self) -> SweepEnd:
        """Until every trial has ended, a limit is reached or someone interrupts."""
        try:
            self._take_up()
            while True:
                self._look()
                if (reached := self._limit()) is not None:
                    return self._end(*reached)
                self._begin()
                if not self._live:
                    return self._ended("done")
                time.sleep(self._look_every_s)
        except KeyboardInterrupt:
            self._say("\ninterrupted: trials under way save and end")
            return self._end("interrupted", "interrupted")
        except InputError:
            self._end("failed", "")
            raise

    def _take_up(self) -> None:
        """Trials that an earlier session left under way."""
        for one in self._study.tried():
            seen = self._launcher.observe(one.number)
            self._spent[one.number] = (seen and seen.usd) or 0.0
            if one.state != "running":
                continue
            self._live[one.number] = 0
            if seen is None:
                self._try(one.number, lambda one=one: self._start(self._study.complete(one.number)))  # type: ignore[misc]
            elif seen.over and seen.state in _GOES_ON and not _pruned(one):
                self._say(f"trial {one.number} ({self._sweep.run_name(one.number)}) goes on from step {seen.step}")
                self._try(one.number, lambda one=one: self._launcher.resume(one.number))  # type: ignore[misc]

    def _begin(self) -> None:
        """Start as many trials as may run."""
        while len(self._live) < self._sweep.terms.parallel and len(self._study.tried()) < self._sweep.trials:
            chosen = self._study.begin()
            self._live[chosen.number] = 0
            self._try(chosen.number, lambda chosen=chosen: self._start(chosen))  # type: ignore[misc]

    def _start(self, chosen: Tried) -> None:
        shown = ", ".join(f"{name} {_short(value)}" for name, value in chosen.values.items())
        self._say(f"trial {chosen.number} of {self._sweep.trials} starts: {shown}")
        self._launcher.start(chosen.number, chosen.values)

    def _try(self, number: int, work: Callable[[], None]) -> None:
        """Do it; a trial that cannot be started has failed."""
        try:
            work()
        except TonnageError as error:
            self._tell(number, "failed", message=error.message)

    def _look(self) -> None:
        for number in list(self._live):
            seen = self._launcher.observe(number)
            if seen is None:
                continue
            self._spent[number] = seen.usd or 0.0
            pruned = self._prune(number, seen)
            if seen.over:
                self._settle(number, seen, pruned=pruned)
        self._save_clock()

    def _prune(self, number: int, seen: SeenTrial) -> bool:
        """Whether the trial is one that is given up; it is cancelled when that is found."""
        if self._sweep.terms.pruning == "none":
            return False
        if _pruned(self._study.tried()[number - 1]):
            if not seen.over:
                self._launcher.cancel(number)
            return True
        figure = self._sweep.figure
        course = {
            step: one[figure] for step, one in seen.evaluations.items() if math.isfinite(one.get(figure, math.nan))
        }
        if seen.over or not self._study.is_poor(number, course):
            return False
        self._study.note(number, pruned_at=max(course))
        self._launcher.cancel(number)
        return True

    def _settle(self, number: int, seen: SeenTrial, *, pruned: bool) -> None:
        """The run of a trial is over."""
        if seen.state is RunStatus.SUCCEEDED:
            self._complete(number, seen)
        elif pruned:
            self._tell(number, "pruned", seen=seen)
        elif seen.state is RunStatus.LOST and self._live[number] < LOST_AT_MOST:
            self._live[number] += 1
            self._try(number, lambda: self._launcher.resume(number))
        elif seen.state is RunStatus.STOPPED and seen.reason in (RunReason.USER_STOPPED, RunReason.PREEMPTED):
            self._live.pop(number)
            self._paused.add(number)
            self._say(f"trial {number} has stopped at step {seen.step}; --resume goes on with it")
        else:
            why = seen.reason.value if seen.reason else seen.state.value
            self._tell(number, "failed", seen=seen, message=f"{why}: {seen.message}" if seen.message else why)

    def _complete(self, number: int, seen: SeenTrial) -> None:
        figure = self._sweep.figure
        value = seen.metrics.get(figure)
        if value is None:
            self._tell(number, "failed", seen=seen, message=f"its evaluation has no figure '{figure}'")
            known = ", ".join(seen.metrics) or "none"
            raise InputError(f"no evaluation has a figure named '{figure}'", hint=f"`objective`: one of {known}")
        if math.isfinite(value):
            self._tell(number, "complete", seen=seen, value=value)
        else:
            self._tell(number, "failed", seen=seen, message=f"{figure} is not a number")

    def _tell(
        self, number: int, state: str, *, seen: SeenTrial | None = None, value: float | None = None, message: str = ""
    ) -> None:
        facts: dict[str, Any] = {"message": message, "step": seen.step if seen else 0}
        facts |= {"seconds": seen.seconds if seen else None, "usd": seen.usd if seen else None}
        self._study.note(number, **facts)
        self._study.tell(number, state, value)
        self._live.pop(number, None)
        self._say(self._line(number, state, value, message))

    def _line(self, number: int, state: str, value: float | None, message: str) -> str:
        """How a trial ended, the best so far and how long the others may take."""
        tried, figure = self._study.tried(), self._sweep.figure
        ended = [one for one in tried if one.state != "running"]
        said = f"{figure} {value:.6g}" if value is not None else state + (f" ({message})" if message else "")
        parts = [f"trial {number} of {self._sweep.trials} ({self._sweep.run_name(number)}): {said}"]
        if (top := best_of(tried, self._sweep.direction)) is not None:
            parts.append(f"best {top.value:.6g} (trial {top.number})")
        times = [one.attributes["seconds"] for one in ended if one.attributes.get("seconds")]
        left = self._sweep.trials - len(ended)
        if times and left:
            # Trials under way are counted whole: an upper end.
            parts.append(f"about {_duration(sum(times) / len(times) * left / self._sweep.terms.parallel)} left")
        return "; ".join(parts)

    def _limit(self) -> tuple[str, str] | None:
        limits, spent = self._sweep.terms.limits, sum(self._spent.values())
        if limits.cost_usd is not None and spent >= limits.cost_usd:
            return "cost limit", f"${spent:,.2f} of ${limits.cost_usd:,.2f} are spent"
        if limits.wall is not None and self.seconds() >= limits.wall:
            return "time limit", f"{_duration(self.seconds())} of {_duration(limits.wall)} are up"
        return None

    def seconds(self) -> float:
        """How long the sweep has been under way, all sessions together."""
        return self._earlier_s + self._clock() - self._began

    def _end(self, why: str, message: str) -> SweepEnd:
        """Let what runs save and end. A second interrupt leaves it to itself."""
        if message and why != "interrupted":
            self._say(f"limit reached: {message}; trials under way save and end")
        for number in self._live:
            seen = self._launcher.observe(number)
            if seen is not None and not seen.over:
                self._launcher.stop(number)
        while self._live:
            for number in list(self._live):
                seen = self._launcher.observe(number)
                if seen is None or (seen.over and seen.state is not RunStatus.SUCCEEDED):
                    self._live.pop(number)
                    self._paused.add(number)
                elif seen.over:
                    self._complete(number, seen)
            if self._live:
                time.sleep(self._look_every_s)
        return self._ended(why, message)

    def _ended(self, why: str, message: str = "") -> SweepEnd:
        self._folder.save_seconds(self.seconds())
        return SweepEnd(why=why, message=message, paused=len(self._paused))

    def _save_clock(self) -> None:
        if self._clock() - self._saved_at >= CLOCK_EVERY_S:
            self._saved_at = self._clock()
            self._folder.save_seconds(self.seconds())


def _pruned(one: Tried) -> bool:
    return "pruned_at" in one.attributes


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _duration(seconds: float) -> str:
    whole = max(0, round(seconds))
    hours, minutes, rest = whole // 3600, whole // 60 % 60, whole % 60
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
