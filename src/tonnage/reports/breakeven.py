"""An own fleet, or a queue of machines, beside prices per token (`tonnage/breakeven@1`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tonnage.reports.blocks import Block, Bullets, Heading, Page, Pairs, Paragraph
from tonnage.reports.breakeven_document import POINT_COLUMNS, breakeven_document, point_rows, tokens_per_request
from tonnage.reports.listing import Fields, cell, field_table
from tonnage.reports.plan_page import nothing_fits_blocks, price_blocks
from tonnage.reports.rendering import Report
from tonnage.reports.wording import (
    UNKNOWN,
    render_count,
    render_date,
    render_duration,
    render_gpus,
    render_money,
    render_money_interval,
    render_price,
    render_purchase,
    render_unit_money,
    short,
)
from tonnage.service.answer import ApiCost, BreakEven, CurvePoint
from tonnage.service.crossings import Crossing
from tonnage.service.economics import MonthFleet
from tonnage.sizing.estimates import Figure


def breakeven_report(found: BreakEven) -> Report:
    """The report of a service."""
    return Report(
        page=lambda: _page(found),
        document=lambda: breakeven_document(found, _notes(found)),
        columns=POINT_COLUMNS,
        rows=lambda: point_rows(found),
    )


def _page(found: BreakEven) -> Page:
    blocks: list[Block] = [*_demand_blocks(found)]
    if found.fleet is None:
        blocks += nothing_fits_blocks(found.plan)
    else:
        blocks += [*_fleet_blocks(found, found.fleet), *api_blocks(found), *_curve_blocks(found)]
    blocks += [*price_blocks(found.catalog), Heading(text="Notes"), Bullets(items=_notes(found))]
    title = f"Break-even of {found.workload.name}, a month, as of {found.workload.as_of:%Y-%m-%d}"
    return Page(title=title, blocks=tuple(blocks))


def _demand_blocks(found: BreakEven) -> Iterator[Block]:
    demand, policy = found.question.demand, found.question.policy
    requests = found.requests_per_month
    yield Heading(text="What arrives")
    scaling = f"as many machines as the busy rate needs, all month; {policy.spare} spare replicas"
    if policy.enabled and not demand.curve.flat:
        bounds = f"{policy.minimum} or more" if policy.maximum is None else f"{policy.minimum} to {policy.maximum}"
        warm, idle = render_duration(policy.warm_up_s), render_duration(policy.scale_in_delay_s)
        scaling = f"{bounds} machines, {policy.spare} spare replicas; warm after {warm}, given back after {idle}"
    yield Pairs(
        rows=(
            ("rate", _rate(found)),
            (
                "a month",
                f"{render_count(requests)} requests, {render_count(requests * tokens_per_request(found))} tokens",
            ),
            ("gaps", f"variation {short(demand.variation)} (1: Poisson)"),
            ("fleet", scaling),
        )
    )


def _rate(found: BreakEven) -> str:
    demand, busy = found.question.demand, found.job.rate_per_s
    if demand.curve.flat:
        return f"{short(busy)} requests/s, all day alike"
    return f"{short(busy)} requests/s when it is busiest, {short(demand.mean_per_s(busy))} on the day's average"


def _fleet_blocks(found: BreakEven, fleet: MonthFleet) -> Iterator[Block]:
    option, cost = fleet.unit.option, found.usd_per_month
    assert cost is not None
    yield Heading(text="Own fleet")
    interval = render_money_interval(cost)
    machine = f"{option.instance_type} ({render_gpus(option.gpu, option.gpu_count)}) at {option.provider}"
    text = (
        f"{render_money(cost.value)}{f' ({interval})' if interval else ''} a month: "
        f"{short(fleet.machines_mean)} machines on average, {short(fleet.machines_peak)} at most, "
        f"{machine}, {render_purchase(option.purchase)}."
    )
    yield Paragraph(text=text, tone="good")
    rows = [
        ("per 1,000 requests", _money_of(cost.scaled(1000.0 / found.requests_per_month))),
        ("per million tokens", _money_of(cost.scaled(1e6 / (found.requests_per_month * tokens_per_request(found))))),
        ("utilisation", f"{100 * fleet.utilisation:.0f} % of the capacity of all replicas at the busy rate"),
        *([("reserved base", base)] if (base := _base(fleet)) else []),
        ("promise", _promise(found)),
    ]
    standing = found.standing
    if standing is not None and not found.question.demand.curve.flat:
        rows.insert(0, ("without autoscaling", _standing(standing)))
    yield Pairs(rows=tuple(rows))


def _standing(fleet: MonthFleet) -> str:
    option = fleet.unit.option
    machine = f"{short(fleet.machines_mean)} x {option.instance_type} at {option.provider}"
    return f"{_money_of(option.cost_usd)} a month, the plan's fleet: {machine}, {render_purchase(option.purchase)}"


def _money_of(figure: Figure) -> str:
    interval = render_money_interval(figure)
    return render_money(figure.value) + (f" ({interval})" if interval else "")


def _base(fleet: MonthFleet) -> str:
    if fleet.unit.reserved_usd_per_hour is None:
        return ""
    price = render_price(fleet.unit.reserved_usd_per_hour)
    return f"{short(fleet.base)} machines committed all month at {price} an hour; the others come and go"


def _promise(found: BreakEven) -> str:
    seen, promise = found.verified, found.question.quantile
    if seen is None:
        return "not verified by simulation"
    limits = found.job.p95_latency_s, found.job.p95_ttft_s
    said = [
        f"{promise} {name} {render_duration(value)} of {render_duration(limit)} promised"
        for name, value, limit in (("latency", seen.latency_s, limits[0]), ("TTFT", seen.ttft_s, limits[1]))
        if limit is not None
    ]
    held = "; ".join(said) or "no latency is promised"
    text = f"simulated at the planned {short(seen.planned_per_s)} requests/s a replica: {held}"
    if seen.kept:
        return text
    return text + (
        f"; it holds at {100 * seen.factor:.0f} % of that load" if seen.factor else "; it holds at no load tried"
    )


def api_blocks(found: BreakEven) -> Iterator[Block]:
    """Prices per token: a month of them, and where the own fleet crosses each."""
    yield Heading(text="Beside prices per token")
    if not found.apis:
        yield Paragraph(
            text="No token prices were given: --api-model NAME, --input-usd and --output-usd, or --against FILE.",
            tone="faint",
        )
        return
    fields: Fields[ApiCost] = (
        cell("API", lambda api: api.name, wraps=True),
        cell("a month", lambda api: render_money(api.usd_per_month), right=True),
        cell("per 1,000", lambda api: render_unit_money(api.usd_per_1000_requests), right=True),
        cell("break-even", lambda api: describe(found, api), wraps=True),
        cell("read", lambda api: render_date(api.prices.read_on), folds=1, fold_text="read {}"),
    )
    yield field_table(fields, found.apis)


def describe(found: BreakEven, api: ApiCost) -> str:
    """Where the two cross, in words; «never» is an answer."""
    demand = found.question.demand
    if api.cheaper_throughout is not None:
        low, high = (render_count(demand.requests_per_month(rate)) for rate in found.volumes_per_s)
        return f"never crosses: the {api.cheaper_throughout} is cheaper from {low} to {high} requests a month"
    parts = []
    for one in api.crossings:
        at = render_count(demand.requests_per_month(one.rate_per_s))
        parts.append(f"the {one.cheaper_above} is cheaper above {at}{_ends(found, one)} requests a month")
    return "; ".join(parts[:5]) + (f"; {len(parts) - 5} more crossings" if len(parts) > 5 else "")


def _ends(found: BreakEven, one: Crossing) -> str:
    def end(rate: float | None) -> str:
        return "never" if rate is None else render_count(found.question.demand.requests_per_month(rate))

    if one.low_per_s == one.high_per_s == one.rate_per_s:
        return ""
    return f" ({end(one.low_per_s)}–{end(one.high_per_s)})"


def _curve_blocks(found: BreakEven) -> Iterator[Block]:
    for curve in found.curves:
        yield Heading(text=f"By {curve.name}: dollars per 1,000 requests")
        yield field_table(_curve_fields(found, volume=curve.name == "volume", unit=curve.unit), curve.points)


def _curve_fields(found: BreakEven, *, volume: bool, unit: str) -> Fields[CurvePoint]:
    def own(point: CurvePoint) -> str:
        return "no machine" if (cost := point.own_usd_per_1000) is None else render_unit_money(cost.value)

    def interval(point: CurvePoint) -> str:
        return UNKNOWN if (cost := point.own_usd_per_1000) is None else render_money_interval(cost)

    def api(place: int) -> Callable[[CurvePoint], str]:
        return lambda point: render_unit_money(point.api_usd_per_1000[place])

    def crossing(place: int) -> Callable[[CurvePoint], str]:
        return lambda point: "never" if (rate := point.crossing_per_s[place]) is None else _month(found, rate)

    names = [api.name for api in found.apis]
    crossings = [] if volume else names
    return (
        cell(unit, lambda point: render_count(point.value) if volume else short(point.value)),
        cell("own fleet", own, right=True),
        cell("80 %", interval, right=True, folds=2),
        *(cell(name, api(place), right=True) for place, name in enumerate(names)),
        *(cell(f"cheaper than {name} from", crossing(place), right=True, folds=1)
          for place, name in enumerate(crossings)),
    )  # fmt: skip


def _month(found: BreakEven, rate: float) -> str:
    return render_count(found.question.demand.requests_per_month(rate))


def _notes(found: BreakEven) -> tuple[str, ...]:
    question = found.question
    notes = [
        "the rate of the workload file is the busy rate; 80 % intervals are those of the predicted throughput alone",
        "rate, capacity, utilisation and the other words are those of docs/glossary.md, as in `tonnage plan`",
        "the closed form of the autoscaled fleet is checked against an event simulation (docs/break-even.md)",
    ]
    if question.demand.variation != 1.0:
        notes.append("load that bursty arrivals leave is taken from Kingman's approximation, then simulated")
    if question.cached_fraction and not question.own_prefix_cache:
        notes.append("the own fleet reads cached input again; --prefix-cache says that it does not")
    if question.quantile == "p99":
        notes.append("machines are planned for p95 and then slowed until the simulated p99 keeps the promise")
    if any(api.prices.read_on is None for api in found.apis):
        notes.append("token prices without a date are as you gave them")
    return tuple(notes)
