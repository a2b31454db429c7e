"""Replay of many windows at once, tick by tick, under rules that no policy can break.

The model of Wu et al., «Can't Be Late», NSDI 2024: spot costs 1 an hour, on-demand k; each launch takes d, billed,
without progress; on-demand is always there; a policy sees only whether spot is up now. Slack, the time left minus the
work left, falls only while the job waits or starts. An idle job with slack under the guard goes to on-demand for good,
and nothing may start spot, wait or move below it: so no deadline is missed as long as on-demand exists.
"""

from __future__ import annotations

from dataclasses import field
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from tonnage.spot_instances.job import TICK_H, SpotJob
from tonnage.values import dataclass

IDLE: Final = -2
ON_DEMAND: Final = -1  # 0 and above: spot in that zone
TINY: Final = 1e-9

Flags = NDArray[np.bool_]
Places = NDArray[np.int16]
Hours = NDArray[np.float64]


@dataclass(slots=True)
class Moment:
    """What a policy may look at: every array has one entry a window; hours left, work left, where the job runs."""

    job: SpotJob
    tick: int
    left_h: float  # to the deadline, the same in every window
    up: Flags  # [window, zone]
    place: Places  # IDLE, ON_DEMAND or the zone
    starting_h: Hours
    work_h: Hours  # work left
    cost: Hours
    finished_h: Hours  # NaN while it runs
    final: Flags  # on-demand for good
    launches: NDArray[np.int32] = field(repr=False)

    @property
    def slack_h(self) -> Hours:
        """Time left minus work left."""
        return self.left_h - self.work_h

    @property
    def running(self) -> Flags:
        return np.isnan(self.finished_h)


class SpotPolicy(Protocol):
    """Chooses where to be in the next tick. `start` is called before the first one."""

    def start(self, job: SpotJob, windows: int, zones: int) -> None: ...

    def choose(self, moment: Moment) -> Places: ...


class World(Protocol):
    """Says in which zones spot is up, and may look at the job to do its worst (tests do)."""

    def up(self, tick: int, moment: Moment | None) -> Flags: ...


@dataclass(frozen=True, slots=True)
class Recorded:
    """The world as a trace has it: `ups[window, tick, zone]`."""

    ups: Flags

    def up(self, tick: int, moment: Moment | None) -> Flags:
        del moment
        return np.asarray(self.ups[:, tick])


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOutcome:
    """Per window: the bill in spot hours, when the job was done, whether that was too late, launches made."""

    cost: Hours
    finished_h: Hours
    missed: Flags
    launches: NDArray[np.int32]


def replay(job: SpotJob, world: World, policy: SpotPolicy) -> ReplayOutcome:
    """Run one policy over every window of a world until the deadline."""
    up = world.up(0, None)
    count, zones = up.shape
    now = Moment(
        job=job, tick=0, left_h=job.deadline_h, up=up, place=np.full(count, IDLE, np.int16), starting_h=np.zeros(count),
        work_h=np.full(count, job.work_h), cost=np.zeros(count), finished_h=np.full(count, np.nan),
        final=np.zeros(count, np.bool_), launches=np.zeros(count, np.int32),
    )  # fmt: skip
    policy.start(job, count, zones)
    for tick in range(job.ticks):
        now.tick, now.left_h = tick, job.deadline_h - tick * TICK_H
        if tick:
            now.up = world.up(tick, now)
        _preempt(now)
        _move(now, _lawful(now, policy.choose(now)))
        _advance(now)
        if not now.running.any():
            break
    missed = now.running | (now.finished_h > job.deadline_h + 1e-6)
    return ReplayOutcome(cost=now.cost, finished_h=now.finished_h, missed=missed, launches=now.launches)


def _preempt(now: Moment) -> None:
    on_spot = now.place >= 0
    alive = now.up[np.arange(len(now.place)), np.maximum(now.place, 0)]
    lost = on_spot & ~alive
    now.place = np.where(lost, IDLE, now.place).astype(np.int16)
    now.starting_h = np.where(lost, 0.0, now.starting_h)


def _lawful(now: Moment, wanted: Places) -> Places:
    """The policy's choice, as far as the rules let it: the net, no spot that is down, no risk without slack."""
    short = now.slack_h < now.job.guard_h - TINY
    now.final |= short & (now.place == IDLE) & now.running
    down = (wanted >= 0) & ~now.up[np.arange(len(wanted)), np.maximum(wanted, 0)]
    wanted = np.where(down, IDLE, wanted)
    stays = (wanted == now.place) | (wanted == ON_DEMAND)
    kept = np.where(short & ~stays, now.place, wanted)
    kept = np.where(short & (kept == ON_DEMAND) & (now.place >= 0), now.place, kept)
    return np.where(now.final, ON_DEMAND, kept).astype(np.int16)


def _move(now: Moment, place: Places) -> None:
    launched = (place != now.place) & (place != IDLE) & now.running
    now.starting_h = np.where(launched, now.job.changeover_h, np.where(place == IDLE, 0.0, now.starting_h))
    now.launches += launched
    now.place = place


def _advance(now: Moment) -> None:
    """One tick: first the start-up runs off, then work; the last tick is billed as far as it is used."""
    busy = (now.place != IDLE) & now.running
    used = np.where(busy, np.minimum(TICK_H, now.starting_h + now.work_h), 0.0)
    starting = np.minimum(used, now.starting_h)
    now.cost += used * np.where(now.place == ON_DEMAND, now.job.price_ratio, 1.0)
    now.starting_h = now.starting_h - starting
    now.work_h = now.work_h - (used - starting)
    done = busy & (now.work_h <= TINY)
    now.finished_h = np.where(done, now.tick * TICK_H + used, now.finished_h)
    now.work_h = np.where(done, 0.0, now.work_h)
