"""The work spread over several alternatives, decided as the answer is: by the cost of the horizon, moving included."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations, product
from typing import Final, Literal

from tonnage.comparison.computed import Total, WorkRow
from tonnage.comparison.horizons import Bill, EntryCost, horizon_cost
from tonnage.comparison.verdict import DecisionInputs, Verdict, decide_verdict, without_hours
from tonnage.sizing.estimates import Figure, add_figures
from tonnage.values import dataclass

LEAST_SAVING: Final = 0.05  # of the answer's cost, that a second platform must save: a judgement of ours
SplitGround = Literal["no place", "one place", "needed", "saves", "saves too little", "saves nothing"]
EntryOf = Callable[[str, frozenset[str]], EntryCost]  # what it takes to do these works on that alternative
Places = tuple[tuple[str, str | None], ...]  # workload, alternative


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """Where each work goes: over several alternatives where that costs so much less over the horizon than the cheapest
    single one does that a second platform is worth it, or where no single one can do it all; else all to the answer.

    `usd`, `single_usd`, `least_usd`: over the horizon, moving and people included; `cheapest`: the cheapest way to use
    several; `least`: the cheapest single alternative, which is not the answer where worth or judgement decide.
    """

    places: Places
    usd_per_month: Figure | None
    usd: Figure | None
    single: str | None  # the answer to the comparison
    single_usd_per_month: Figure | None
    single_usd: Figure | None
    weeks: float
    ground: SplitGround
    least: str | None = None
    least_usd: Figure | None = None
    cheapest: Placement | None = None
    rules: str = ""  # that must be met
    without_hours_of: tuple[str, ...] = ()  # alternatives of the cheapest way, and the cheapest, whose are not known
    people_counted: bool = True  # of any at all
    without_people: Places = ()  # the places without people's hours

    @property
    def worth_it(self) -> bool:
        return self.ground in ("needed", "saves")

    @property
    def saves_usd(self) -> float | None:
        """What the cheapest way to use several costs less over the horizon than the cheapest single alternative."""
        if self.cheapest is None or self.least_usd is None:
            return None
        return self.least_usd.value - self.cheapest.usd.value

    @property
    def people_decide(self) -> bool:
        """Whether people-hours, which are judged, make the places."""
        return bool(self.without_people) and self.without_people != self.places


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """One way to use several alternatives: `usd` over the horizon."""

    places: Places
    usd_per_month: Figure
    usd: Figure


def best_split(totals: Mapping[str, Total], inputs: DecisionInputs, verdict: Verdict, entry_of: EntryOf) -> Split:
    """The cheapest way to spread the work over two alternatives or more, beside the answer of the comparison.

    Every set of alternatives that may be used is tried (at most 4,095), each workload going where it runs at the least
    cost within the set. A set costs the set-up of what it uses for the work that goes there, today's bill until all of
    that is reached, then the running and the people of each.
    """
    works = [row.work for row in next(iter(totals.values())).rows]
    cheapest, single, month = _cheapest_placement(totals, inputs, entry_of), verdict.choice, None
    if single is not None:
        month = inputs.bills[single].usd_per_month
    least = min(verdict.contenders, key=lambda one: one.usd.value, default=None)
    ground = _ground(cheapest, None if least is None else least.usd.value, single)
    split = cheapest if ground in ("needed", "saves") else None
    chosen = verdict.chosen
    alone = None if chosen is None else chosen.usd
    return Split(
        places=tuple((work, single) for work in works) if split is None else split.places,
        usd_per_month=month if split is None else split.usd_per_month,
        usd=alone if split is None else split.usd,
        single=single,
        single_usd_per_month=month,
        single_usd=alone,
        weeks=inputs.weeks,
        ground=ground,
        least=None if least is None else least.alternative,
        least_usd=None if least is None else least.usd,
        cheapest=cheapest,
        rules=inputs.standing.titles if inputs.standing.needs else "",
        without_hours_of=_without_hours_of(inputs, cheapest, None if least is None else least.alternative),
        people_counted=any(bill.people is not None for bill in inputs.bills.values()),
        without_people=_without_people(totals, inputs, entry_of, works),
    )


def _ground(cheapest: Placement | None, least_usd: float | None, single: str | None) -> SplitGround:
    """`least_usd`: what the cheapest single alternative costs over the horizon."""
    if single is None or least_usd is None:
        return "no place" if cheapest is None else "needed"
    if cheapest is None:
        return "one place"
    if cheapest.usd.value >= least_usd:
        return "saves nothing"
    return "saves" if cheapest.usd.value <= (1 - LEAST_SAVING) * least_usd else "saves too little"


def _without_hours_of(inputs: DecisionInputs, cheapest: Placement | None, least: str | None) -> tuple[str, ...]:
    """Of the alternatives that are set against each other, those whose hours count as none, being unknown."""
    named = {name for _, name in (() if cheapest is None else cheapest.places)} | {least}
    return tuple(name for name, bill in inputs.bills.items() if name in named and bill.people is None)


def _without_people(
    totals: Mapping[str, Total], inputs: DecisionInputs, entry_of: EntryOf, works: Sequence[str]
) -> Places:
    """The places without people's hours, neither of running nor of moving."""
    bare = without_hours(inputs)
    verdict = decide_verdict(bare)
    spread = _cheapest_placement(totals, bare, lambda name, done: EntryCost(usd=None, weeks=entry_of(name, done).weeks))
    least = min((one.usd.value for one in verdict.contenders), default=None)
    if spread is not None and _ground(spread, least, verdict.choice) in ("needed", "saves"):
        return spread.places
    return () if verdict.choice is None else tuple((work, verdict.choice) for work in works)


def _cheapest_placement(totals: Mapping[str, Total], inputs: DecisionInputs, entry_of: EntryOf) -> Placement | None:
    """The cheapest way over two alternatives or more, each of which has work; None where there is none."""
    preferred = inputs.preference
    names = [
        name
        for name in inputs.standing.allowed(totals)
        if not preferred.must or preferred.alternatives is None or name in preferred.alternatives
    ]
    found = []
    for count in range(2, len(names) + 1):
        for chosen in combinations(names, count):
            for rows in _ways(tuple(totals[name] for name in chosen)):
                spread = _priced(rows, inputs, entry_of)
                if spread is not None:
                    found.append(spread)
    return min(found, key=lambda one: (one.usd.value, one.places), default=None)


def _priced(rows: Sequence[WorkRow], inputs: DecisionInputs, entry_of: EntryOf) -> Placement | None:
    """What a way to spread the work costs; None where it is not reached within the horizon or a cost is not known.

    One team sets the platforms up one after the other: their weeks add up.
    """
    used = {name: frozenset(row.work for row in rows if row.alternative == name)
            for name in sorted({row.alternative for row in rows})}  # fmt: skip
    entries = [entry_of(name, works) for name, works in used.items() if name != inputs.origin]
    taken = [one.weeks for one in entries if one.weeks is not None]
    weeks = sum(taken) if taken else None
    people = [bill.people for name in used if (bill := inputs.bills[name]).people is not None]
    once = [one.usd for one in entries if one.usd is not None]
    bill = Bill(
        run=add_figures(row.usd_per_month for row in rows),
        people=add_figures(people) if people else None,
        entry=EntryCost(usd=add_figures(once) if once else None, weeks=weeks),
    )
    today = None if inputs.origin is None else inputs.bills[inputs.origin]
    usd, month = horizon_cost(bill, inputs.weeks, today=today), bill.usd_per_month
    if usd is None or month is None or (weeks is not None and weeks > inputs.weeks):
        return None
    return Placement(places=tuple((row.work, row.alternative) for row in rows), usd_per_month=month, usd=usd)


def _ways(chosen: tuple[Total, ...]) -> Iterator[list[WorkRow]]:
    """Each workload where it costs least among `chosen`, for each model that the work on a tuned one may be done with;
    only ways in which none of them is idle.

    A model that is tuned is the one that is served: work on one model is done with one model, wherever it runs.
    """
    columns = list(zip(*(total.rows for total in chosen), strict=True))
    tuned = sorted({column[0].model for column in columns if column[0].kind == "train"} - {""})
    with_ = [sorted({row.done_with for column in columns for row in column if row.model == model}) for model in tuned]
    for names in product(*with_):
        rows = _cheapest(columns, dict(zip(tuned, names, strict=True)))
        if rows is not None and len({row.alternative for row in rows}) == len(chosen):
            yield rows


def _cheapest(columns: Sequence[tuple[WorkRow, ...]], models: Mapping[str, str]) -> list[WorkRow] | None:
    """The cheapest row of each workload, where `models` says what the work on a tuned model is done with."""
    out = []
    for column in columns:
        able = [(row.usd_per_month.value, row.alternative, row) for row in column
                if row.usd_per_month is not None and row.instead is None
                and models.get(row.model, row.done_with) == row.done_with]  # fmt: skip
        if not able:
            return None
        out.append(min(able, key=lambda one: one[:2])[2])
    return out
