"""What the planner computed as charts: what a month is made of, cost against time, memory."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from tonnage.comparison.comparing import Comparison
from tonnage.comparison.computed import Total
from tonnage.comparison.fronts import pace
from tonnage.planning.plan import MachineOption, Option
from tonnage.pricing.ledger import Part
from tonnage.reports.blocks import Column, Table
from tonnage.reports.comparison.drawings import Front, FrontPoint, Stack, StackedBar
from tonnage.reports.comparison.figures import duration, money
from tonnage.reports.comparison.sections import Chart
from tonnage.reports.wording import render_interval, render_machines, render_money, render_purchase, short
from tonnage.sizing.estimates import Figure
from tonnage.units import SECONDS_PER_HOUR

PEOPLE: Final[Part] = "people"
MOST_WAYS: Final = 6  # of one alternative in a front
TIME_UNITS: Final = ((1e-3, "ms", 1.0), (1.0, "seconds", 180.0), (60.0, "minutes", 3.0 * SECONDS_PER_HOUR),
                     (float(SECONDS_PER_HOUR), "hours", 96.0 * SECONDS_PER_HOUR),
                     (24.0 * SECONDS_PER_HOUR, "days", math.inf))  # fmt: skip


def cost_stack_chart(comparison: Comparison) -> Chart | None:
    """What a month is made of, for everything that can do all the work."""
    made = {name: _month_parts(comparison, comparison.totals[name]) for name in comparison.able}
    bars = []
    for name, parts in made.items():
        total = comparison.totals[name].usd_per_month
        if total is not None:
            bars.append(
                StackedBar(
                    name=comparison.title_of[name], label=money(total), parts=tuple(parts.items()), total=total
                )
            )  # fmt: skip
    if not bars:
        return None
    return Chart(
        key="chart-costs",
        title="What a month costs and what it is made of",
        note="Whiskers: 80 % interval of the sum.",
        text="; ".join(f"{bar.name}: {bar.label}" for bar in bars),
        drawing=Stack(bars=tuple(bars), x_title="dollars a month", in_dollars=True),
        figures=_parts_table("Alternative", bars, render_money, "together"),
    )


def _month_parts(comparison: Comparison, total: Total) -> Mapping[str, float]:
    """Dollars a month by the part of the bill."""
    parts: dict[str, float] = {}
    for row, work in zip(total.rows, comparison.works, strict=True):
        times = work.jobs_per_month if work.jobs_per_month is not None else 1.0
        for line in row.option.ledger.lines if row.option else ():
            parts[line.part] = parts.get(line.part, 0.0) + float(line.usd) * times
    if total.people_usd_per_month is not None:
        parts[PEOPLE] = total.people_usd_per_month.value
    return parts


def _parts_table(first: str, bars: list[StackedBar], render: object, last: str) -> Table:
    assert callable(render)
    names = list(dict.fromkeys(name for bar in bars for name, _ in bar.parts))
    rows = tuple((bar.name, *(render(dict(bar.parts).get(name, 0.0)) for name in names), bar.label) for bar in bars)
    columns = (
        Column(title=first, wraps=True),
        *(Column(title=name, align="right") for name in names),
        Column(title=last, align="right"),
    )
    return Table(columns=columns, rows=rows)


def front_charts(comparison: Comparison) -> Iterator[Chart]:
    """For each workload, cost against time (of a service: latency); none where fewer than two ways have both."""
    for place, work in enumerate(comparison.works):
        ways = [
            (alternative.title, option)
            for alternative in comparison.request.alternatives
            for option in _thinned(comparison.totals[alternative.name].rows[place].front)
        ]
        if len(ways) > 1:
            yield _front(ways, work.name, f"chart-front-{place + 1}", service=work.jobs_per_month is None)


def _front(ways: list[tuple[str, Option]], work: str, key: str, *, service: bool) -> Chart:
    paces = [figure for _, option in ways if (figure := pace(option)) is not None]
    size, unit = _time_unit(max(figure.value for figure in paces))
    choices = tuple(
        FrontPoint(
            name=title,
            cost=option.cost_usd,
            time=found.scaled(1 / size),
            best=not any(_beats(other, option) for _, other in ways),
        )
        for (title, option), found in zip(ways, paces, strict=True)
    )
    what = "p95 latency" if service else "time of a job"
    rows = tuple(
        (title, _way(option), money(option.cost_usd), duration(found), "yes" if choice.best else "no")
        for (title, option), found, choice in zip(ways, paces, choices, strict=True)
    )
    cost = "dollars a month" if service else "dollars a job"
    titles = ("Alternative", "Way", cost.capitalize(), what.capitalize(), "Unbeaten")
    return Chart(
        key=key,
        title=f"Cost against {'latency' if service else 'time'} of {work}",
        note="Filled, joined by steps: nothing is both cheaper and faster. Crosses: 80 % intervals.",
        text="; ".join(f"{title}, {way}: {usd}, {time}" for title, way, usd, time, best in rows if best == "yes"),
        drawing=Front(
            choices=choices, x_title=cost, y_title=f"{what}, {unit}"
        ),
        figures=Table(
            columns=tuple(
                Column(title=one, wraps=one == "Way", align="right" if one in titles[2:4] else "left")
                for one in titles
            ),
            rows=rows,
        ),
    )  # fmt: skip


def _thinned(front: Sequence[Option]) -> Sequence[Option]:
    """At most MOST_WAYS of a front, its ends among them."""
    if len(front) <= MOST_WAYS:
        return front
    return [front[round(step * (len(front) - 1) / (MOST_WAYS - 1))] for step in range(MOST_WAYS)]


def _beats(rival: Option, option: Option) -> bool:
    """Whether `rival` is no dearer and no slower, and better in one."""
    theirs, ours = pace(rival), pace(option)
    assert theirs is not None
    assert ours is not None
    ahead = (option.cost_usd.value - rival.cost_usd.value, ours.value - theirs.value)
    return min(ahead) >= 0 and max(ahead) > 0


def _way(option: Option) -> str:
    machines = render_machines(option.count, option.instance_type)
    return f"{machines}, {render_purchase(option.purchase)}, {option.provider} {option.region or ''}".strip()


def _time_unit(seconds: float) -> tuple[float, str]:
    """The unit in which an axis up to `seconds` reads well.

    >>> _time_unit(0.4), _time_unit(150), _time_unit(40000)
    ((0.001, 'ms'), (1.0, 'seconds'), (3600.0, 'hours'))
    """
    return next((size, name) for size, name, limit in TIME_UNITS if seconds < limit)


def memory_charts(comparison: Comparison) -> Iterator[Chart]:
    """For each workload: memory of the cheapest ways on each device, beside what the device has; equal ones once."""
    for place, work in enumerate(comparison.works):
        alike: dict[tuple[object, ...], list[str]] = {}
        for alternative in comparison.request.alternatives:
            option = comparison.totals[alternative.name].rows[place].option
            if isinstance(option, MachineOption) and option.run.memory_parts_gib:
                run = option.run
                device = option.gpu or option.instance_type
                found = (device, run.memory_gib, run.memory_available_gib, run.memory_parts_gib)
                alike.setdefault(found, []).append(alternative.title)
        if alike:
            bars = [_memory_bar(names, *found) for found, names in alike.items()]  # type: ignore[arg-type]
            yield _memory_chart(bars, work.name, f"chart-memory-{place + 1}")


def _memory_bar(
    names: list[str], device: str, memory: Figure, available_gib: float, parts: tuple[tuple[str, float], ...]
) -> StackedBar:
    named = tuple((name.replace("_", " "), gib) for name, gib in parts if gib > 0)
    label = f"{render_interval(memory, 'GiB')} of {short(available_gib)} GiB, {device}"
    shown = names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
    return StackedBar(name=", ".join(names), shown=shown, label=label, parts=named, total=memory, limit=available_gib)


def _memory_chart(bars: list[StackedBar], work: str, key: str) -> Chart:
    return Chart(
        key=key,
        title=f"Memory of the cheapest way to do {work}, on each device",
        note="Whiskers: 80 % interval. Thick mark: what the device has.",
        text="; ".join(f"{bar.name}: {bar.label}" for bar in bars),
        drawing=Stack(bars=tuple(bars), x_title="GiB on each device"),
        figures=_parts_table("Alternative", bars, lambda gib: f"{short(gib)} GiB", "together"),
    )
