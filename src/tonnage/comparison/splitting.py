"""How the work would be spread over several alternatives, and whether that costs less than the best single one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, product
from typing import Literal

from tonnage.comparison.compliance import ComplianceStanding
from tonnage.comparison.computed import Total, WorkRow, add
from tonnage.sizing.estimates import Figure
from tonnage.values import dataclass

SplitGround = Literal["no place", "one place", "needed", "saves", "saves nothing"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """Each workload where it costs least, beside the best single alternative. Run cost a month; people of each
    alternative used."""

    places: tuple[tuple[str, str | None], ...]  # workload, alternative
    usd_per_month: Figure | None
    single: str | None
    single_usd_per_month: Figure | None
    ground: SplitGround
    rules: str = ""  # that must be met
    without_people: tuple[tuple[str, str | None], ...] = ()  # the places if nobody's hours were counted

    @property
    def worth_it(self) -> bool:
        return self.ground in ("needed", "saves")

    @property
    def saves_usd_per_month(self) -> float | None:
        """Against the best single alternative."""
        if self.usd_per_month is None or self.single_usd_per_month is None:
            return None
        return self.single_usd_per_month.value - self.usd_per_month.value

    @property
    def people_decide(self) -> bool:
        """Whether people-hours, which are judged, make the places."""
        return bool(self.without_people) and self.without_people != self.places


def best_split(totals: Mapping[str, Total], standing: ComplianceStanding) -> Split:
    """The cheapest way to spread the work over any set of alternatives, the operation of each one used included.

    Only alternatives that are known to meet every rule count.

    Exact: every set of alternatives is tried (at most 4,095), each workload going where it costs least within the set.
    """
    works = [row.work for row in next(iter(totals.values())).rows]
    totals = {name: totals[name] for name in standing.allowed(totals)}
    singles = [(cost, name) for name, total in totals.items()
               if total.as_asked and (cost := total.usd_per_month) is not None]  # fmt: skip
    cost, single = min(singles, key=lambda one: (one[0].value, one[1]), default=(None, None))
    found = [way for way in map(_spread, _sets(totals)) if way is not None]
    if not found:
        nowhere = tuple((work, None) for work in works)
        return Split(
            places=nowhere, usd_per_month=None, single=single, single_usd_per_month=cost, ground="no place",
            rules=standing.titles if standing.needs else "",
        )  # fmt: skip
    whole, places = min(found, key=lambda way: (way[0].value, len({name for _, name in way[1]}), way[1]))
    used = sorted({name for _, name in places})
    bare = {name: replace(total, people_usd_per_month=None) for name, total in totals.items()}
    alone = [way[1] for way in sorted(filter(None, map(_spread, _sets(bare))), key=lambda way: (way[0].value, way[1]))]
    return Split(
        places=places, usd_per_month=whole, single=single, single_usd_per_month=cost,
        ground=_ground(whole, cost, used), without_people=alone[0],
    )  # fmt: skip


def _sets(totals: Mapping[str, Total]) -> Iterator[tuple[Total, ...]]:
    for count in range(1, len(totals) + 1):
        yield from combinations(totals.values(), count)


def _spread(chosen: tuple[Total, ...]) -> tuple[Figure, tuple[tuple[str, str], ...]] | None:
    """Each workload where it costs least among `chosen`; None where one of them is idle or some work has no place.

    A model that is tuned is the one that is served: work on one model is done with one model, wherever it runs.
    """
    columns = list(zip(*(total.rows for total in chosen), strict=True))
    tuned = sorted({column[0].model for column in columns if column[0].kind == "train"} - {""})
    with_ = [sorted({row.done_with for column in columns for row in column if row.model == model}) for model in tuned]
    ways = [way for names in product(*with_) if (way := _cheapest(columns, dict(zip(tuned, names, strict=True))))]
    people = [one.people_usd_per_month for one in chosen if one.people_usd_per_month is not None]
    found = []
    for rows in ways:
        if len({row.alternative for row in rows}) == len(chosen):
            whole = add([*(row.usd_per_month for row in rows), *people])
            assert whole is not None
            found.append((whole, tuple((row.work, row.alternative) for row in rows)))
    return min(found, key=lambda one: (one[0].value, one[1]), default=None)


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


def _ground(whole: Figure, single: Figure | None, used: Sequence[str]) -> SplitGround:
    if len(used) == 1:
        return "one place"
    return "needed" if single is None else "saves" if whole.value < single.value else "saves nothing"
