"""Options of every kind in one order: ranks, the Pareto front over all of them, how far each loser is from winning."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tonnage.planning.plan import MachineOption, Objective, Option, TokenOption, may_win
from tonnage.planning.reasons.distances import (
    DearerDistance,
    Distance,
    DoubtedDistance,
    SameCostDistance,
    SlowerDistance,
)
from tonnage.workload.jobs import Trust


def ranked(options: Sequence[Option], objective: Objective, *, trust: Trust = "dated") -> tuple[Option, ...]:
    """`options` (better ones of one kind first) in the order of `objective`, ranks and distances filled in; those
    whose price is least in doubt before the others, unless any is trusted.

    Ledgers round each line, so options are put in the order of their printed totals.
    """
    joint = _joint_front(options, trust)
    least = min((option.doubt_level for option in joint), default=0)
    ordered = sorted(
        joint, key=lambda option: (trust == "dated" and option.doubt_level > least, *order_key(option, objective))
    )
    if not ordered:
        return ()
    winner = ordered[0]
    doubted = next((option for option in ordered if option.doubt_level > winner.doubt_level), None)
    return tuple(
        replace(option, rank=rank, loses_by=_distance(option, winner, doubted, objective, trust))
        for rank, option in enumerate(ordered, start=1)
    )


def _distance(
    option: Option, winner: Option, doubted: Option | None, objective: Objective, trust: Trust
) -> Distance | None:
    """What an option lacks, None for the winner; `doubted`: the first whose price is in more doubt."""
    if option is winner:
        return None
    ahead = order_key(option, objective) < order_key(winner, objective)
    if trust == "any" or not ahead or option.doubt_level <= winner.doubt_level:
        return loses_by(option, winner, objective)
    return DoubtedDistance(
        times=_times(option, winner), wins_if_trusted=option is doubted, host=not option.price_doubts
    )


def _times(option: Option, winner: Option) -> float | None:
    """Its cost over the winner's; None where the winner costs nothing."""
    return option.cost_usd.value / winner.cost_usd.value if winner.cost_usd.value > 0 else None


def order_key(option: Option, objective: Objective) -> tuple[float, ...]:
    """What options are put in order by, the smallest first."""
    cost = option.cost_usd.value
    if objective == "time" and option.time_s is not None:
        return (option.time_s.value, cost)
    if objective == "pareto":
        return (float(not option.pareto), cost)
    return (cost,)


def _joint_front(options: Sequence[Option], trust: Trust) -> list[Option]:
    """Machines and token APIs judged together: the front of each kind, less what the other kind beats in both. A price
    that is in more doubt beats none that is in less."""
    sure = may_win(options, any_price=trust == "any")
    tokens = [option for option in sure if isinstance(option, TokenOption)]
    front = [option for option in options if isinstance(option, MachineOption) and option.pareto]
    out = []
    for option in options:
        rivals: Sequence[Option] = tokens if isinstance(option, MachineOption) else [*front, *tokens]
        beaten = any(_beats(rival, option) for rival in rivals if rival is not option)
        kept = option.pareto and not beaten
        out.append(option if option.pareto == kept else replace(option, pareto=kept))
    return out


def _beats(rival: Option, option: Option) -> bool:
    """Whether `rival` is no dearer and no slower, and better in one."""
    if rival.time_s is None or option.time_s is None:
        return False
    ahead = (option.cost_usd.value - rival.cost_usd.value, option.time_s.value - rival.time_s.value)
    return min(ahead) >= 0 and max(ahead) > 0


def loses_by(option: Option, winner: Option, objective: Objective) -> Distance:
    """How far an option is from winning, and the smallest change of its price (or speed) that would make it win."""
    if objective == "time" and option.time_s and winner.time_s:
        return SlowerDistance(times=option.time_s.value / winner.time_s.value)
    more = option.cost_usd.value - winner.cost_usd.value
    if more <= 0:
        return SameCostDistance()
    hourly = option.usd_per_instance_hour
    machines = sum(float(line.usd) for line in option.ledger.lines if line.unit in ("instance-hour", "DBU"))
    return DearerDistance(
        times=_times(option, winner),
        more_usd=more,
        faster=option.pareto,
        usd_per_instance_hour=hourly or None,
        wins_below_usd_per_instance_hour=hourly * (machines - more) / machines if hourly and machines > more else None,
    )
