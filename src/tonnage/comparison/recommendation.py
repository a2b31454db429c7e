"""Who wins by organisation size and horizon, and how the work would be split over several things."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from itertools import combinations
from typing import Annotated

from pydantic import Field

from tonnage.comparison.aspects import Aspect
from tonnage.comparison.compliance import Standing
from tonnage.comparison.computed import Total, add
from tonnage.comparison.door import Name, Text, parse_entries
from tonnage.comparison.request import HORIZONS, Request, Thing
from tonnage.comparison.scoring import Scored, score_all, weighted
from tonnage.sizing.estimates import Figure
from tonnage.workload.file.fields import Count, Door

WEEKS_PER_MONTH = 365.25 / 12 / 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """A size of organisation and what it usually weighs more or less."""

    name: str
    title: str
    from_employees: int
    factors: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    source: str
    sizes: tuple[Size, ...]

    def of(self, employees: int | None) -> Size | None:
        """The size that many people make; None where it is not said."""
        if employees is None:
            return None
        return max((one for one in self.sizes if one.from_employees <= employees), key=lambda one: one.from_employees)


class SizeEntry(Door):
    title: Text
    from_employees: Count
    factors: dict[Name, Annotated[float, Field(ge=0, le=10)]]


class SizesFile(Door):
    source: Text
    organisations: dict[Name, SizeEntry]


@lru_cache(maxsize=1)
def load_sizes() -> Sizes:
    """The packaged sizes, smallest first."""
    text = files("tonnage.comparison").joinpath("data/organisations.yaml").read_text("utf-8")
    entries, _ = parse_entries(text, SizesFile, file="organisations.yaml", page="docs/compare.md")
    found = [
        Size(name=name, title=one.title, from_employees=one.from_employees, factors=one.factors)
        for name, one in entries.organisations.items()
    ]
    return Sizes(source=entries.source, sizes=tuple(sorted(found, key=lambda one: one.from_employees)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What it takes to be on a thing: one-time dollars and weeks; nothing for where one is already."""

    usd: Figure | None
    weeks: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """The recommendation of one size and horizon. `choice` None: nothing can do all the work in that time."""

    size: Size
    horizon: str
    weeks: float
    choice: str | None
    ranking: tuple[Scored, ...]
    costs: Mapping[str, Figure | None]  # of the whole horizon, entry and people included
    out: Mapping[str, str]  # things that are not in the running: why
    because: str


def advise(
    request: Request,
    aspects: Sequence[Aspect],
    totals: Mapping[str, Total],
    entries: Mapping[str, Entry],
    standing: Standing,
) -> tuple[Advice, ...]:
    """One recommendation for each size and horizon."""
    sizes = load_sizes().sizes
    return tuple(
        _advice(request, aspects, totals, entries, standing, size, name) for size in sizes for name in HORIZONS
    )


def _advice(
    request: Request,
    aspects: Sequence[Aspect],
    totals: Mapping[str, Total],
    entries: Mapping[str, Entry],
    standing: Standing,
    size: Size,
    horizon: str,
) -> Advice:
    weeks = request.horizon_weeks[horizon]
    origin = totals.get(request.move.origin) if request.move is not None else None
    costs = {name: horizon_cost(totals[name], entries[name], weeks, origin=origin) for name in totals}
    out = {name: why for name in totals if (why := _out_of(totals[name], entries[name], weeks, standing.why_not(name)))}
    running = [thing.name for thing in request.things if thing.name not in out]
    scores = score_all(aspects, request.things, totals, costs)
    weights = {key: weight * size.factors.get(key, 1.0) for key, weight in request.weights.items()}
    ranking = weighted(scores, weights, running)
    return Advice(
        size=size, horizon=horizon, weeks=weeks, choice=ranking[0].thing if ranking else None, ranking=ranking,
        costs=costs, out=out, because=_because(ranking, costs, request.things),
    )  # fmt: skip


def horizon_cost(total: Total, entry: Entry, weeks: float, *, origin: Total | None = None) -> Figure | None:
    """Entry once, then run and people for the weeks of the horizon.

    Until the move is done the work runs where it runs today (`origin`, where it is compared and its cost known), and
    only then on the target. Both at once, during the parallel run, are not counted.
    """
    if total.usd_per_month is None:
        return None
    before = origin.usd_per_month if origin is not None and origin.thing != total.thing else None
    moving = min(entry.weeks or 0.0, weeks) if before is not None else 0.0
    parts = [total.usd_per_month.scaled((weeks - moving) / WEEKS_PER_MONTH)]
    if before is not None:
        parts.append(before.scaled(moving / WEEKS_PER_MONTH))
    return add((*parts, *([] if entry.usd is None else [entry.usd])))


@dataclass(frozen=True, slots=True, kw_only=True)
class Payback:
    """Months until a move has paid for itself. None: never (`high`: not at the far end of the intervals)."""

    months: float | None
    low: float | None
    high: float | None


def payback(entry: Figure, before: Figure, after: Figure) -> Payback:
    """What it takes to move over what is saved a month, with the ends that suit the move best and worst.

    >>> exact = lambda value: Figure(value=value, low=value, high=value)
    >>> payback(exact(1200.0), exact(300.0), exact(200.0)).months
    12.0
    >>> payback(exact(1200.0), exact(200.0), exact(300.0)).months is None
    True
    """
    return Payback(
        months=_months(entry.value, before.value - after.value),
        low=_months(entry.low, before.high - after.low),
        high=_months(entry.high, before.low - after.high),
    )


def _months(usd: float, saved_usd: float) -> float | None:
    return usd / saved_usd if saved_usd > 0 else None


def _out_of(total: Total, entry: Entry, weeks: float, rules: str) -> str:
    if not total.can_do:
        lacking = next(row for row in total.rows if row.option is None)
        return f"cannot do {lacking.work}: {lacking.why_not}"
    if entry.weeks is not None and entry.weeks > weeks:
        return f"takes {entry.weeks:.1f} weeks to get there, the horizon has {weeks:g}"
    return rules and f"is not known to meet the rules: {rules}"


def _because(ranking: Sequence[Scored], costs: Mapping[str, Figure | None], things: Sequence[Thing]) -> str:
    if not ranking:
        return "none can do all the work within this horizon"
    titles = {thing.name: thing.title for thing in things}
    best = ranking[0]
    said = f"highest weighted score, {best.total:.2f} of 5"
    if len(ranking) == 1:
        return f"the only one that can do all the work within this horizon ({said})"
    second = ranking[1]
    said += f", {best.total - second.total:.2f} ahead of {titles[second.thing]}"
    mine, other = costs[best.thing], costs[second.thing]
    if mine is None or other is None or mine.value <= 0 or other.value <= 0:
        return said
    ratio = mine.value / other.value
    return f"{said}; at {ratio:.2f} times its cost over the horizon"


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """Each workload where it costs least, beside the best single thing. Run cost a month; people of each thing used."""

    places: tuple[tuple[str, str | None], ...]  # workload, thing
    usd_per_month: Figure | None
    single: str | None
    single_usd_per_month: Figure | None
    worth_it: bool
    because: str


def best_split(totals: Mapping[str, Total], standing: Standing) -> Split:
    """The cheapest way to spread the work over any set of things, the operation of each one used included.

    Only things that are known to meet every rule count.

    Exact: every set of things is tried (at most 4,095), each workload going where it costs least within the set.
    """
    works = [row.work for row in next(iter(totals.values())).rows]
    totals = {name: totals[name] for name in standing.allowed(totals)}
    singles = [(cost, name) for name, total in totals.items() if (cost := total.usd_per_month) is not None]
    cost, single = min(singles, key=lambda one: (one[0].value, one[1]), default=(None, None))
    found = [way for way in map(_spread, _sets(totals)) if way is not None]
    if not found:
        nowhere = tuple((work, None) for work in works)
        return Split(
            places=nowhere, usd_per_month=None, single=single, single_usd_per_month=cost, worth_it=False,
            because=f"some work can be done by none of them that is known to meet {standing.titles}"
            if standing.needs else "some work can be done by none of them",
        )  # fmt: skip
    whole, places = min(found, key=lambda way: (way[0].value, len({name for _, name in way[1]}), way[1]))
    used = sorted({name for _, name in places})
    worth = len(used) > 1 and (cost is None or whole.value < cost.value)
    return Split(
        places=places, usd_per_month=whole, single=single, single_usd_per_month=cost, worth_it=worth,
        because=_split_words(whole, cost, used),
    )  # fmt: skip


def _sets(totals: Mapping[str, Total]) -> Iterator[tuple[Total, ...]]:
    for count in range(1, len(totals) + 1):
        yield from combinations(totals.values(), count)


def _spread(chosen: tuple[Total, ...]) -> tuple[Figure, tuple[tuple[str, str], ...]] | None:
    """Each workload where it costs least among `chosen`; None where one of them is idle or some work has no place."""
    places, costs = [], []
    for rows in zip(*(total.rows for total in chosen), strict=True):
        able = [(row.usd_per_month, row.thing) for row in rows if row.usd_per_month is not None]
        if not able:
            return None
        cost, name = min(able, key=lambda one: (one[0].value, one[1]))
        places.append((rows[0].work, name))
        costs.append(cost)
    used = {name for _, name in places}
    if len(used) < len(chosen):
        return None
    whole = add([*costs, *(one.people_usd_per_month for one in chosen if one.people_usd_per_month is not None)])
    assert whole is not None
    return whole, tuple(places)


def _split_words(whole: Figure, single: Figure | None, used: Sequence[str]) -> str:
    if len(used) == 1:
        return "all the work costs least in one place: no split"
    if single is None:
        return "no single one can do all the work: it must be split"
    return f"saves ${single.value - whole.value:,.0f} a month, the operation of every platform used included"
