"""A plan as people read it: the job, what it needs, the ranking, why the others lost, how old the prices are."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from tonnage.planning.plan import CatalogStamp, MachineOption, NearMiss, Need, Option, Plan, Refusal
from tonnage.reports.blocks import Block, Bullets, Column, Heading, Page, Pairs, Paragraph, Table
from tonnage.reports.cheaper import cheaper_blocks
from tonnage.reports.ledger_blocks import ledger_blocks
from tonnage.reports.option_table import option_table, render_hardware
from tonnage.reports.reasons import miss_words, risk_words
from tonnage.reports.reasons.distances import distance_words
from tonnage.reports.reasons.flips import near_miss_lifts, relaxation_words
from tonnage.reports.reasons.notes import note_words
from tonnage.reports.reasons.origins import origin_words
from tonnage.reports.spot_words import spot_words
from tonnage.reports.wording import (
    PROMISES,
    plural,
    render_bought,
    render_date,
    render_duration,
    render_gpus,
    render_interval,
    render_machines,
    render_money,
    render_money_interval,
    render_quantity,
    render_time_interval,
)

ORDER_WORDS = {"cost": "lowest cost first", "time": "fastest first", "pareto": "Pareto front of cost and time first"}


def plan_page(plan: Plan, *, top: int) -> Page:
    """The report of a plan; `top` options are shown."""
    blocks: list[Block] = [*workload_blocks(plan.summary), *need_blocks(plan.need)]
    if plan.options:
        blocks += [*_verdict(plan), *_best_ledger(plan), *_ranking(plan, top), *_best_per_provider(plan)]
        blocks += [*_best_per_platform(plan), *_pareto_front(plan, top)]
    else:
        blocks += nothing_fits_blocks(plan)
    blocks += [*_losers(plan), *price_blocks(plan.catalog)]
    of_best = map(note_words, plan.best.run.notes) if isinstance(plan.best, MachineOption) else ()
    if notes := (*(f"the first option: {note}" for note in of_best), *map(note_words, plan.notes)):
        blocks += [Heading(text="Notes"), Bullets(items=notes)]
    return Page(title=f"Plan for {plan.name} ({plan.kind}), as of {plan.as_of:%Y-%m-%d}", blocks=tuple(blocks))


def workload_blocks(summary: tuple[tuple[str, str], ...]) -> Iterator[Block]:
    yield Heading(text="The job")
    yield Pairs(rows=summary)


def need_blocks(need: Need) -> Iterator[Block]:
    yield Heading(text="What it needs, wherever it runs")
    rows = []
    for key, figure, how in need.figures:
        label, text = render_quantity(key, figure.value)
        rows.append((label, text, origin_words(how)))
    columns = (Column(title=""), Column(title="", align="right"), Column(title="", wraps=True))
    yield Table(columns=columns, rows=tuple(rows))


def _verdict(plan: Plan) -> Iterator[Block]:
    best = plan.options[0]
    yield Heading(text="Best")
    yield Paragraph(text=describe_option(best, horizon=plan.horizon), tone="good")
    held = ""
    if isinstance(best, MachineOption):
        where = "a GPU" if best.gpu else "a machine"
        held = f"; {render_interval(best.run.memory_gib, 'GiB')} of {best.run.memory_available_gib:.1f} GiB on {where}"
    yield Paragraph(text=f"{best.layout}{held}.")
    if best.risks:
        yield Paragraph(text="Mind: " + "; ".join(risk_words(risk) for risk in best.risks) + ".", tone="warning")
    if best.spot is not None:
        yield Paragraph(text=spot_words(best.spot), tone="faint")
    yield from cheaper_blocks(plan)


def describe_option(option: Option, *, horizon: str) -> str:
    """One sentence: what, where, how bought, how long, how much."""
    place = f" in {option.region}" if option.region else ""
    machines = render_machines(option.count, option.instance_type)
    text = (
        f"{machines} ({render_hardware(option)}) "
        f"at {option.provider}{place}, {render_bought(option.purchase, option.platform)}: "
    )
    cost = f"{render_money(option.cost_usd.value)}{_bracketed(render_money_interval(option.cost_usd))}"
    if horizon == "month":
        promised = option.promised
        promise = "" if promised is None else f", {PROMISES[promised[0]]} {render_duration(promised[1].value)}"
        return f"{text}{cost} a month{promise}."
    if option.time_s is None:
        return f"{text}{cost}, finish time not known."
    return f"{text}{cost} in {render_duration(option.time_s.value)}{_bracketed(render_time_interval(option.time_s))}."


def _doubt_order(plan: Plan) -> str | None:
    """What comes first for its price; None where doubt puts nothing behind."""
    least = min((option.doubt_level for option in plan.options), default=0)
    behind = sum(option.doubt_level > least for option in plan.options)
    if not behind or plan.any_price:
        return None
    host = any(not option.relied_on and not option.price_doubts for option in plan.options)
    what = "price and host" if host else "price"
    if least:
        return (f"Every fee of the platform is in doubt here; options whose machine's {what} one can rely on come "
                f"first, the other {behind:,} follow them.")  # fmt: skip
    return f"Options whose {what} one can rely on come first; the other {behind:,} (marked ?) follow them."


def _bracketed(interval: str) -> str:
    return f" ({interval})" if interval else ""


def _ranking(plan: Plan, top: int) -> Iterator[Block]:
    shown = plan.options[:top]
    yield Heading(
        text=f"Ranking: {ORDER_WORDS[plan.objective]}, {len(shown):,} of {plural(len(plan.options), 'option')}"
    )
    if (order := _doubt_order(plan)) is not None:
        yield Paragraph(text=order, tone="faint")
    table, legend = option_table(plan, shown, best_first=True)
    yield table
    if legend.rows:
        yield Paragraph(text="Risks", tone="faint")
        yield legend


def _best_ledger(plan: Plan) -> Iterator[Block]:
    yield from ledger_blocks(
        plan.options[0], horizon=plan.horizon, as_of=plan.as_of.date(), title="What the best costs"
    )


def _best_per_provider(plan: Plan) -> Iterator[Block]:
    """The best option of each provider, where there are several."""
    first: dict[str, Option] = {}
    for option in plan.options:
        first.setdefault(option.provider, option)
    if len(first) > 1:
        yield from _firsts(plan, "Best of each provider", tuple(first.values()))


def _best_per_platform(plan: Plan) -> Iterator[Block]:
    """The best option through each platform, where there are several: what management costs."""
    first: dict[str, Option] = {}
    for option in plan.options:
        first.setdefault(option.platform, option)
    if len(first) > 1:
        yield from _firsts(plan, "Best on each platform", tuple(first.values()))


def _pareto_front(plan: Plan, top: int) -> Iterator[Block]:
    """Options that nothing beats in both cost and time, the cheapest first; the ranking itself where that is asked."""
    front = [option for option in plan.options if option.pareto]
    if plan.horizon == "month" or plan.objective == "pareto" or len(front) < 2:
        return
    front.sort(key=lambda option: option.cost_usd.value)
    shown = tuple(front[:top])
    yield from _firsts(plan, f"Pareto front of cost and time, {len(shown)} of {len(front)} (--rank pareto)", shown)


def _firsts(plan: Plan, title: str, options: tuple[Option, ...]) -> Iterator[Block]:
    yield Heading(text=title)
    service = plan.horizon == "month"
    columns = (
        Column(title="#", align="right"),
        Column(title="provider", folds=1, fold_text="at {}"),
        Column(title="machines", wraps=True),
        Column(title="GPUs", folds=4),
        Column(title="bought", folds=3),
        Column(title="p95" if service else "time", align="right", folds=2),
        Column(title="cost a month" if service else "cost", align="right"),
        Column(title="loses by", folds=5, wraps=True),
    )
    yield Table(columns=columns, rows=tuple(_provider_row(option, service) for option in options))


def _provider_row(option: Option, service: bool) -> tuple[str, ...]:
    promised = option.promised
    time = promised[1] if service and promised else option.time_s
    return (
        str(option.rank),
        option.provider,
        render_machines(option.count, option.instance_type),
        render_hardware(option),
        render_bought(option.purchase, option.platform),
        render_duration(time.value if time else None),
        render_money(option.cost_usd.value),
        distance_words(option.loses_by) or "the winner",
    )


def nothing_fits_blocks(plan: Plan) -> Iterator[Block]:
    """The nearest misses, each with changes that were tried and let it in."""
    yield Heading(text="Nothing fits")
    tried = plural(len(plan.refused), "candidate")
    said = f"None of {tried} meets the job and its constraints."
    if plan.nearest_misses:
        yield Paragraph(text=f"{said} The nearest misses:", tone="warning")
        yield _near_miss_table(plan.nearest_misses)
    else:
        yield Paragraph(text=f"{said} No change that was tried lets one in.", tone="warning")
    if plan.relaxations:
        yield Paragraph(text="One constraint less would do:")
        yield Bullets(items=tuple(relaxation_words(one) for one in plan.relaxations))


def miss_table(misses: Sequence[Refusal], *, limit: bool = True) -> Table:
    """Refusals, one a row; `limit`: with the limit that binds."""
    rows = [_miss_row(miss, miss_words(miss.miss).lifts, limit=limit) for miss in misses]
    return _misses(rows, "would fit with" if limit else "what lifts this limit", limit=limit)


def _near_miss_table(misses: Sequence[NearMiss]) -> Table:
    """Refusals with the changes that were tried."""
    rows = [_miss_row(one.refusal, near_miss_lifts(one), limit=True) for one in misses]
    return _misses(rows, "would fit with", limit=True)


def _misses(rows: Sequence[tuple[str, ...]], lifts: str, *, limit: bool) -> Table:
    columns = (
        Column(title="provider"),
        Column(title="machines", wraps=True),
        Column(title="GPUs", folds=2),
        Column(title="bought", folds=3),
        *((Column(title="limit"),) if limit else ()),
        Column(title="needs", wraps=True, folds=1, fold_text="needs {}"),
        Column(title="has", wraps=True, folds=1, fold_text="has {}"),
        Column(title=lifts, wraps=True, folds=1, fold_text="→ {}"),
    )
    return Table(columns=columns, rows=tuple(rows))


def _miss_row(miss: Refusal, lifts: str, *, limit: bool) -> tuple[str, ...]:
    words = miss_words(miss.miss)
    return (
        miss.provider,
        render_machines(miss.count, miss.instance_type),
        render_gpus(miss.gpu, miss.gpu_count, miss.count),
        render_bought(miss.purchase, miss.platform),
        *((miss.binding,) if limit else ()),
        words.needs,
        words.has,
        lifts,
    )


def by_binding(refused: Sequence[Refusal]) -> list[tuple[str, list[Refusal]]]:
    """Refusals by the limit that binds, most frequent limit first; within one the nearest miss first."""
    groups: dict[str, list[Refusal]] = defaultdict(list)
    for refusal in refused:
        groups[refusal.binding].append(refusal)
    for group in groups.values():
        group.sort(
            key=lambda miss: (miss.shortfall, miss.gpu is None, miss.provider, miss.instance_type, miss.purchase or "")
        )
    return sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))


def _losers(plan: Plan) -> Iterator[Block]:
    if not plan.refused:
        return
    yield Heading(text=f"Why {plural(len(plan.refused), 'other')} fell out")
    columns = (
        Column(title="limit"),
        Column(title="out", align="right"),
        Column(title="nearest", wraps=True),
        Column(title="needs", wraps=True, folds=1, fold_text="needs {}"),
        Column(title="has", wraps=True, folds=2, fold_text="has {}"),
        Column(title="what lifts this limit", wraps=True, folds=3, fold_text="→ {}"),
    )
    rows = tuple(_loser_row(binding, group) for binding, group in by_binding(plan.refused))
    yield Table(columns=columns, rows=rows)


def _loser_row(binding: str, group: Sequence[Refusal]) -> tuple[str, ...]:
    nearest = group[0]
    words = miss_words(nearest.miss)
    machines = f"{nearest.provider} {render_machines(nearest.count, nearest.instance_type)}"
    return (binding, f"{len(group):,}", machines, words.needs, words.has, words.lifts)


def price_blocks(stamp: CatalogStamp) -> Iterator[Block]:
    yield Heading(text="Prices")
    text = f"Catalog {stamp.snapshot} (built {stamp.built_on}), {stamp.offers:,} prices. Of those compared here"
    if stamp.oldest_price:
        text += f" the oldest was read on {render_date(stamp.oldest_price)}"
        text += f", and {stamp.undated_prices:,} carry no date." if stamp.undated_prices else "."
    else:
        text += f" {stamp.undated_prices:,} carry no date."
    yield Paragraph(text=text)
