"""Limits a run is held to, what it took, and what it will have cost at its end. Pure: the supervisor acts on it.

What a machine costs is billed in quanta, from the first start to the last end, waiting times included. A limit asks for
a save early enough that the save itself is still inside the limit; where the save does not come, the processes are
killed inside one quantum more, and the newest whole checkpoint is what is left.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Final, Literal

from tonnage.errors import PlanRefused
from tonnage.runs.journal import Event, EventKind
from tonnage.runs.spec import GuardSpec
from tonnage.runs.states import RunReason
from tonnage.units import SECONDS_PER_HOUR
from tonnage.values import dataclass

KILL_MARGIN_S: Final = 1.0  # from the decision to kill until nothing runs any more
UNKNOWN_SAVE_S: Final = 30.0  # before the first checkpoint has shown how long one takes
UNKNOWN_SAVE_FRACTION: Final = 0.1  # and at most this share of the whole limit
SAVE_MARGIN: Final = 1.5  # a save may take this much longer than the longest so far
TEN_PERCENT_POINT: Final = 1.2816  # of the normal law: 80 % lie between minus and plus this
Limit = Literal["max_cost_usd", "max_s", "idle_s"]
_ENDS: Final = frozenset({EventKind.SUCCEEDED, EventKind.FAILED, EventKind.STOPPED, EventKind.CANCELLED})


@dataclass(frozen=True, slots=True, kw_only=True)
class SpendMeter:
    """What has been used so far."""

    held_s: float  # machines held in this session: since its first start, waiting included
    earlier_s: float = 0.0  # in sessions before it
    earlier_usd: float = 0.0
    idle_s: float = 0.0  # since the last step, checkpoint or other sign of work


@dataclass(frozen=True, slots=True, kw_only=True)
class Breach:
    """A limit that is reached."""

    limit: Limit
    value: float
    reason: RunReason
    message: str


def check_guard(guard: GuardSpec) -> None:
    """PlanRefused for a cost limit that cannot be held, since the price of an hour is unknown."""
    if guard.max_cost_usd is not None and guard.usd_per_hour is None:
        raise PlanRefused(
            f"a limit of ${guard.max_cost_usd:,.2f} cannot be held: what an hour of this machine costs is not known",
            hint="say it with --usd-per-hour (`tonnage catalog show NAME` lists prices), or limit hours: --max-hours",
        )


def billed_usd(held_s: float, usd_per_hour: float, quantum_s: float) -> float:
    """The bill for machines held so long: every quantum begun is paid.

    >>> billed_usd(61, 60.0, 60)
    2.0
    """
    return math.ceil(max(0.0, held_s) / quantum_s - 1e-9) * quantum_s / 3600 * usd_per_hour


def spent_usd(guard: GuardSpec, meter: SpendMeter, *, more_s: float = 0.0) -> float | None:
    """The bill so far, or after `more_s` more; None where no price is known."""
    if guard.usd_per_hour is None:
        return None
    return meter.earlier_usd + billed_usd(meter.held_s + more_s, guard.usd_per_hour, guard.billing_quantum_s)


def save_allowance_s(guard: GuardSpec, *, saves_s: Sequence[float], steps_s: Sequence[float]) -> float:
    """How long before a limit the save must be asked for: a step to its end, then the save, with a margin."""
    longest_step = max(steps_s, default=0.0)
    if saves_s:
        return SAVE_MARGIN * (max(saves_s) + longest_step) + KILL_MARGIN_S
    return min(UNKNOWN_SAVE_S + SAVE_MARGIN * longest_step, UNKNOWN_SAVE_FRACTION * _whole_s(guard))


def _whole_s(guard: GuardSpec) -> float:
    whole = guard.max_s if guard.max_s is not None else math.inf
    if guard.max_cost_usd is not None and guard.usd_per_hour:
        whole = min(whole, guard.max_cost_usd / guard.usd_per_hour * 3600)
    return whole


def breach(guard: GuardSpec, meter: SpendMeter, *, save_s: float) -> Breach | None:
    """The limit that is reached: a save asked for now ends just inside it. None while there is room."""
    spent = spent_usd(guard, meter)
    after = spent_usd(guard, meter, more_s=save_s)
    if guard.max_cost_usd is not None and spent is not None and after is not None and after > guard.max_cost_usd:
        message = f"${spent:,.4f} of ${guard.max_cost_usd:,.2f} spent; saving takes up to {save_s:.0f} s"
        return Breach(limit="max_cost_usd", value=spent, reason=RunReason.COST_LIMIT, message=message)
    held = meter.earlier_s + meter.held_s
    if guard.max_s is not None and held + save_s > guard.max_s:
        message = f"{held:,.0f} s of {guard.max_s:,.0f} s used; saving takes up to {save_s:.0f} s"
        return Breach(limit="max_s", value=held, reason=RunReason.TIME_LIMIT, message=message)
    if guard.idle_s is not None and meter.idle_s > guard.idle_s:
        message = f"no step for {meter.idle_s:,.0f} s, the limit is {guard.idle_s:,.0f} s"
        return Breach(limit="idle_s", value=meter.idle_s, reason=RunReason.IDLE, message=message)
    return None


def must_kill(guard: GuardSpec, meter: SpendMeter) -> bool:
    """Whether waiting any longer for a save would take the run past its limit by more than one billing quantum."""
    if guard.max_cost_usd is not None and guard.usd_per_hour is not None:
        ceiling = guard.max_cost_usd + guard.billing_quantum_s / 3600 * guard.usd_per_hour
        spent = spent_usd(guard, meter, more_s=KILL_MARGIN_S)
        if spent is not None and spent > ceiling + 1e-9:
            return True
    held = meter.earlier_s + meter.held_s + KILL_MARGIN_S
    return guard.max_s is not None and held > guard.max_s + guard.billing_quantum_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """What the run will have cost at its end, and when that is; an 80 % interval."""

    usd: float | None
    low_usd: float | None
    high_usd: float | None
    end_at: datetime
    low_end_at: datetime
    high_end_at: datetime

    def over(self, guard: GuardSpec) -> bool:
        """Whether the cost limit will more likely than not be reached before the end."""
        return guard.max_cost_usd is not None and self.usd is not None and self.usd > guard.max_cost_usd


def forecast(
    guard: GuardSpec, meter: SpendMeter, *, steps_left: int | None, steps_s: Sequence[float], now: datetime
) -> Forecast | None:
    """From the seconds recent steps took; None before there are enough, or where the end is not known.

    The interval holds the spread between steps, which shrinks with their number, and the uncertainty of their mean,
    which does not.
    """
    if steps_left is None or len(steps_s) < 3:
        return None
    mean = sum(steps_s) / len(steps_s)
    deviation = math.sqrt(sum((one - mean) ** 2 for one in steps_s) / (len(steps_s) - 1))
    spread = TEN_PERCENT_POINT * deviation * math.sqrt(steps_left + steps_left**2 / len(steps_s))
    left, low, high = steps_left * mean, max(0.0, steps_left * mean - spread), steps_left * mean + spread
    costs = [spent_usd(guard, meter, more_s=more) for more in (left, low, high)]
    return Forecast(
        usd=costs[0],
        low_usd=costs[1],
        high_usd=costs[2],
        end_at=now + timedelta(seconds=left),
        low_end_at=now + timedelta(seconds=low),
        high_end_at=now + timedelta(seconds=high),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SpendSession:
    """Machines held from a start to an end, waits between restarts included. A resumed run has several."""

    number: int  # from 1
    attempts: int  # starts of the processes in it
    started_at: datetime
    ended_at: datetime | None  # None: still running, or lost without a word
    seconds: float  # to its end, or to the last that was heard of it
    usd_per_hour: float | None
    usd: float | None  # every billing quantum begun is paid; None: no price was given, and unknown is not free


def sessions_of(events: Iterable[Event], guard: GuardSpec) -> tuple[SpendSession, ...]:
    """The sessions in a journal, oldest first."""
    groups: list[list[Event]] = []
    ended = True
    for event in events:
        if ended and event.kind is EventKind.STARTED:
            groups.append([event])
            ended = False
        elif groups:
            groups[-1].append(event)
            ended = ended or event.kind in _ENDS or event.kind is EventKind.LOST
    return tuple(_session(number, group, guard) for number, group in enumerate(groups, start=1))


def _session(number: int, events: Sequence[Event], guard: GuardSpec) -> SpendSession:
    started = events[0].at
    ended = next((event.at for event in events if event.kind in _ENDS), None)
    heard = ended or max(event.at for event in events if event.kind is not EventKind.LOST)
    seconds = max((heard - started).total_seconds(), 0.0)
    return SpendSession(
        number=number,
        attempts=sum(event.kind is EventKind.STARTED for event in events),
        started_at=started,
        ended_at=ended,
        seconds=seconds,
        usd_per_hour=guard.usd_per_hour,
        usd=None if guard.usd_per_hour is None else _billed(seconds, guard.usd_per_hour, guard.billing_quantum_s),
    )


def _billed(seconds: float, usd_per_hour: float, quantum_s: float) -> float:
    """The bill: as the guards count it.

    >>> _billed(61.0, 60.0, 60.0)
    2.0
    """
    paid_s = math.ceil(seconds / quantum_s - 1e-9) * quantum_s if quantum_s > 0 else seconds
    return paid_s / SECONDS_PER_HOUR * usd_per_hour
