"""What a change costs a month: the plans before and after, and what each changed key did to the price."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from tonnage.planning.plan import Option, Plan
from tonnage.planning.whatif.key_changes import KeyChange
from tonnage.sizing.estimates import Figure
from tonnage.values import dataclass

Lacks = Literal["no file", "nothing fits"]
MOST_STEPS = 12  # keys tried one by one; each takes a plan


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeSide:
    """One side of a change: the winner and its cost a month, or what is lacking.

    A service's cost is that of a month; a job's is of one run, `runs` times a month.
    """

    month_usd: Figure | None
    winner: Option | None
    runs: float | None  # a month; None: a service
    lacks: Lacks | None = None

    @property
    def counted_usd(self) -> float | None:
        """The month's cost as sums count it: nothing for a file that is not there; None where nothing fits."""
        if self.lacks == "no file":
            return 0.0
        return None if self.month_usd is None else self.month_usd.value


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyStep:
    """What the price did when one key (or, where a state between cannot be, several at once) changed."""

    changes: tuple[KeyChange, ...]
    change_usd: float | None  # a month; None: nothing fits before or after it


@dataclass(frozen=True, slots=True, kw_only=True)
class CostChange:
    """One workload before and after. `kept_usd`: what the former winner would cost a month now, if it is still had."""

    name: str
    file: str
    before: ChangeSide
    after: ChangeSide
    steps: tuple[KeyStep, ...] = ()
    changes: tuple[KeyChange, ...] = ()  # all that differ, also where there are too many to try one by one
    kept_usd: float | None = None

    @property
    def change_usd(self) -> float | None:
        """USD a month more (or less); None where nothing fits on a side."""
        before, after = self.before.counted_usd, self.after.counted_usd
        return None if before is None or after is None else after - before

    @property
    def change_fraction(self) -> float | None:
        """The change over what it cost before; None where it cost nothing or nothing fitted."""
        before, change = self.before.counted_usd, self.change_usd
        return change / before if before and change is not None else None

    @property
    def same_winner(self) -> bool:
        """Whether the same machine, bought the same way, wins on both sides."""
        before, after = self.before.winner, self.after.winner
        return before is not None and after is not None and before.identity == after.identity


NO_FILE = ChangeSide(month_usd=None, winner=None, runs=None, lacks="no file")


def side_of(plan: Plan, *, service: bool, runs_per_month: float) -> ChangeSide:
    """A plan's side of a change."""
    runs = None if service else runs_per_month
    if plan.best is None:
        return ChangeSide(month_usd=None, winner=None, runs=runs, lacks="nothing fits")
    return ChangeSide(month_usd=_of_month(plan.best, runs), winner=plan.best, runs=runs)


def kept_usd(before: ChangeSide, now: Plan) -> float | None:
    """What the former winner costs a month in the plan of now; None where it is no option any more."""
    if before.winner is None:
        return None
    same = next((one for one in now.options if _machine(one) == _machine(before.winner)), None)
    return None if same is None else _of_month(same, before.runs).value


def steps_of(
    before: ChangeSide,
    after: ChangeSide,
    changes: Sequence[KeyChange],
    priced: Callable[[KeyChange], ChangeSide | None],
) -> tuple[KeyStep, ...]:
    """The price's way from `before` to `after`, key by key. `priced` is the state after a change, None if it cannot be.

    A key's share depends on the order, which is the file's; the shares add up to the whole change.
    """
    if not changes or len(changes) > MOST_STEPS:
        return ()
    steps: list[KeyStep] = []
    held: list[KeyChange] = []
    usd = before.counted_usd
    for change in changes:
        held.append(change)
        side = after if change is changes[-1] else priced(change)
        if side is None:
            continue
        here = side.counted_usd
        steps.append(KeyStep(changes=tuple(held), change_usd=None if usd is None or here is None else here - usd))
        usd, held = here, []
    return tuple(steps)


def total(changes: Sequence[CostChange]) -> tuple[float, float] | None:
    """(before, after) USD a month of all workloads; None where nothing fits one of them."""
    sides = [(one.before.counted_usd, one.after.counted_usd) for one in changes]
    before = [old for old, _ in sides if old is not None]
    after = [new for _, new in sides if new is not None]
    return (sum(before), sum(after)) if len(before) == len(after) == len(sides) else None


def _machine(option: Option) -> tuple[str, str, str, str]:
    """The machine and how it is bought, however many of it."""
    return (option.provider, option.instance_type, option.region, option.purchase)


def _of_month(option: Option, runs: float | None) -> Figure:
    return option.cost_usd if runs is None else option.cost_usd.scaled(runs)
