"""A plan as people read it: the job, what it needs, the ranking, why the others lost, how old the prices are."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from tonnage.planning.plan import CatalogStamp, MachineOption, NearMiss, Need, Option, Plan, Refusal
from tonnage.planning.reasons.misses import Miss
from tonnage.planning.reasons.origins import Origin
from tonnage.reports.blocks import Block, Bullets, Heading, Page, Pairs, Paragraph, Table
from tonnage.reports.cheaper import cheaper_blocks
from tonnage.reports.ledger_blocks import ledger_blocks
from tonnage.reports.listing import Fields, cell, field_table
from tonnage.reports.option_table import (
    leading_fields,
    option_table,
    render_cost,
    render_hardware,
    render_option_bought,
    render_time,
)
from tonnage.reports.reasons import miss_words, risk_words
from tonnage.reports.reasons.distances import distance_words
from tonnage.reports.reasons.flips import near_miss_lifts, relaxation_words
from tonnage.reports.reasons.miss_words import MissWords
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
from tonnage.sizing.estimates import Figure

_NEED: Fields[tuple[str, Figure, Origin]] = (
    cell("", lambda row: render_quantity(row[0], row[1].value)[0]),
    cell("", lambda row: render_quantity(row[0], row[1].value)[1], right=True),
    cell("", lambda row: origin_words(row[2]), wraps=True),
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
    yield field_table(_NEED, need.figures)


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
    time, cost = ("p95", "cost a month") if plan.horizon == "month" else ("time", "cost")
    fields: Fields[Option] = (
        *leading_fields(provider_folds=1, gpus_fold=4),
        cell("bought", render_option_bought, folds=3),
        cell(time, lambda one: render_time(one, plan), right=True, folds=2),
        cell(cost, render_cost, right=True),
        cell("loses by", lambda one: distance_words(one.loses_by) or "the winner", folds=5, wraps=True),
    )
    yield field_table(fields, options)


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
    rows = [(miss, miss_words(miss.miss).lifts) for miss in misses]
    return field_table(_miss_fields("would fit with" if limit else "what lifts this limit", limit=limit), rows)


def _near_miss_table(misses: Sequence[NearMiss]) -> Table:
    """Refusals with the changes that were tried."""
    return field_table(
        _miss_fields("would fit with", limit=True), [(one.refusal, near_miss_lifts(one)) for one in misses]
    )


def _miss_fields(lifts: str, *, limit: bool) -> Fields[tuple[Refusal, str]]:
    """The columns of refusals and what lifts their limit."""
    limits: Fields[tuple[Refusal, str]] = (cell("limit", lambda row: row[0].binding),) if limit else ()
    return (
        cell("provider", lambda row: row[0].provider),
        cell("machines", lambda row: render_machines(row[0].count, row[0].instance_type), wraps=True),
        cell("GPUs", lambda row: render_gpus(row[0].gpu, row[0].gpu_count, row[0].count), folds=2),
        cell("bought", lambda row: render_bought(row[0].purchase, row[0].platform), folds=3),
        *limits,
        cell("needs", lambda row: miss_words(row[0].miss).needs, wraps=True, folds=1, fold_text="needs {}"),
        cell("has", lambda row: miss_words(row[0].miss).has, wraps=True, folds=1, fold_text="has {}"),
        cell(lifts, lambda row: row[1], wraps=True, folds=1, fold_text="→ {}"),
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
    yield limits_table(
        "nearest",
        [(binding, len(group), _name(group[0]), group[0].miss) for binding, group in by_binding(plan.refused)],
    )


def _name(miss: Refusal) -> str:
    return f"{miss.provider} {render_machines(miss.count, miss.instance_type)}"


def limits_table(example: str, limits: Sequence[tuple[str, int, str, Miss]]) -> Table:
    """Limits that bind: how many each leaves out, the name of one of them, and what that one misses."""
    fields: Fields[tuple[str, int, str, MissWords]] = (
        cell("limit", lambda row: row[0]),
        cell("out", lambda row: f"{row[1]:,}", right=True),
        cell(example, lambda row: row[2], wraps=True),
        cell("needs", lambda row: row[3].needs, wraps=True, folds=1, fold_text="needs {}"),
        cell("has", lambda row: row[3].has, wraps=True, folds=2, fold_text="has {}"),
        cell("what lifts this limit", lambda row: row[3].lifts, wraps=True, folds=3, fold_text="→ {}"),
    )
    return field_table(fields, [(limit, out, name, miss_words(miss)) for limit, out, name, miss in limits])


def price_blocks(stamp: CatalogStamp) -> Iterator[Block]:
    yield Heading(text="Prices")
    text = f"Catalog {stamp.snapshot} (built {stamp.built_on}), {stamp.offers:,} prices. Of those compared here"
    if stamp.oldest_price:
        text += f" the oldest was read on {render_date(stamp.oldest_price)}"
        text += f", and {stamp.undated_prices:,} carry no date." if stamp.undated_prices else "."
    else:
        text += f" {stamp.undated_prices:,} carry no date."
    yield Paragraph(text=text)
