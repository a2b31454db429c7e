"""A break-even of a service as JSON (`tonnage/breakeven@1`) and as CSV rows."""

from __future__ import annotations

from typing import Any, Final

from tonnage.reports.plain import plain_cost, plain_day, plain_figure, plain_instant, plain_number, plain_usd
from tonnage.reports.plan_document import catalog_document
from tonnage.service.answer import ApiCost, BreakEven, CurvePoint
from tonnage.service.economics import MonthFleet

BREAKEVEN_SCHEMA: Final = "tonnage/breakeven@1"
POINT_COLUMNS: Final = (
    "curve", "at", "unit", "own_usd_per_1000_requests", "own_low", "own_high", "api", "api_usd_per_1000_requests",
    "own_cheaper_from_requests_per_month",
)  # fmt: skip


def tokens_per_request(found: BreakEven) -> float:
    """Input and output tokens of a mean request."""
    requests = found.job.requests
    return requests.input_tokens.mean + (0.0 if requests.output_tokens is None else requests.output_tokens.mean)


def breakeven_document(found: BreakEven, notes: tuple[str, ...]) -> dict[str, Any]:
    demand, policy, fleet = found.question.demand, found.question.policy, found.fleet
    cost = found.usd_per_month
    requests = found.requests_per_month
    return {
        "schema": BREAKEVEN_SCHEMA,
        "kind": "serve",
        "as_of": plain_instant(found.workload.as_of),
        "horizon": "month",
        "workload": found.workload.name,
        "demand": {
            "rate_per_s": plain_number(found.job.rate_per_s),
            "mean_rate_per_s": plain_number(demand.mean_per_s(found.job.rate_per_s)),
            "hourly_multipliers": [plain_number(value) for value in demand.curve.multipliers],
            "gap_variation": plain_number(demand.variation),
            "hours_per_month": plain_number(demand.hours_per_month),
            "requests_per_month": plain_number(requests),
            "tokens_per_month": plain_number(requests * tokens_per_request(found)),
            "cached_fraction": plain_number(found.question.cached_fraction),
        },
        "policy": {
            "autoscaled": policy.enabled and not demand.curve.flat,
            "minimum": policy.minimum,
            "maximum": policy.maximum,
            "spare": policy.spare,
            "warm_up_s": plain_number(policy.warm_up_s),
            "scale_in_delay_s": plain_number(policy.scale_in_delay_s),
        },
        "fleet": None if fleet is None else _fleet_document(fleet),
        "plan_fleet": None if found.standing is None else _fleet_document(found.standing),
        "verified": _verified_document(found),
        "cost_usd": None if cost is None else plain_cost(cost),
        "usd_per_1000_requests": None if cost is None else plain_figure(cost.scaled(1000.0 / requests)),
        "usd_per_million_tokens": None
        if cost is None
        else plain_figure(cost.scaled(1e6 / (requests * tokens_per_request(found)))),
        "apis": [api_document(found, api) for api in found.apis],
        "curves": [
            {
                "name": curve.name,
                "unit": curve.unit,
                "points": [_point_document(found, point) for point in curve.points],
            }
            for curve in found.curves
        ],
        "catalog": catalog_document(found.catalog),
        "notes": list(notes),
    }


def _fleet_document(fleet: MonthFleet) -> dict[str, Any]:
    option, unit = fleet.unit.option, fleet.unit
    return {
        "provider": option.provider,
        "instance_type": option.instance_type,
        "region": option.region,
        "purchase": option.purchase,
        "usd_per_instance_hour": plain_number(unit.usd_per_hour),
        "reserved_usd_per_instance_hour": plain_number(unit.reserved_usd_per_hour),
        "requests_per_s_per_machine": plain_figure(unit.capacity_per_s),
        "machines_mean": plain_number(fleet.machines_mean),
        "machines_peak": plain_number(fleet.machines_peak),
        "reserved_machines": plain_number(fleet.base),
        "utilisation_fraction": plain_number(fleet.utilisation),
    }


def _verified_document(found: BreakEven) -> dict[str, Any] | None:
    seen = found.verified
    if seen is None:
        return None
    return {
        "quantile": found.question.quantile,
        "planned_requests_per_s_per_replica": plain_number(seen.planned_per_s),
        "holds_at_requests_per_s_per_replica": plain_number(seen.planned_per_s * seen.factor),
        "kept": seen.kept,
        "latency_s": plain_number(seen.latency_s),
        "ttft_s": plain_number(seen.ttft_s),
    }


def api_document(found: BreakEven, api: ApiCost) -> dict[str, Any]:
    """One way to buy tokens as JSON values."""
    month = found.question.demand.requests_per_month
    return {
        "name": api.name,
        "provisioned": api.provisioned,
        "source": api.prices.source,
        "read_on": plain_day(api.prices.read_on),
        "usd_per_month": plain_usd(api.usd_per_month),
        "usd_per_1000_requests": plain_number(api.usd_per_1000_requests),
        "cheaper_throughout": api.cheaper_throughout,
        "crossings": [
            {
                "requests_per_month": {
                    "value": plain_number(month(one.rate_per_s)),
                    "low": None if one.low_per_s is None else plain_number(month(one.low_per_s)),
                    "high": None if one.high_per_s is None else plain_number(month(one.high_per_s)),
                },
                "cheaper_above": one.cheaper_above,
            }
            for one in api.crossings
        ],
    }


def _point_document(found: BreakEven, point: CurvePoint) -> dict[str, Any]:
    month = found.question.demand.requests_per_month
    return {
        "at": plain_number(point.value),
        "own_usd_per_1000_requests": plain_figure(point.own_usd_per_1000),
        "apis": [
            {
                "name": api.name,
                "usd_per_1000_requests": plain_number(usd),
                "own_cheaper_from_requests_per_month": None if rate is None else plain_number(month(rate)),
            }
            for api, usd, rate in zip(found.apis, point.api_usd_per_1000, point.crossing_per_s, strict=True)
        ],
    }


def point_rows(found: BreakEven) -> list[list[Any]]:
    month = found.question.demand.requests_per_month
    out: list[list[Any]] = []
    for curve in found.curves:
        for point in curve.points:
            own = point.own_usd_per_1000
            ends = [None if own is None else plain_number(getattr(own, end)) for end in ("value", "low", "high")]
            for api, usd, rate in zip(found.apis, point.api_usd_per_1000, point.crossing_per_s, strict=True):
                crossing = None if rate is None else plain_number(month(rate))
                out.append(
                    [curve.name, plain_number(point.value), curve.unit, *ends, api.name, plain_number(usd), crossing]
                )
    if not out and found.usd_per_month is not None:
        cost = found.usd_per_month.scaled(1000.0 / found.requests_per_month)
        ends = [plain_number(getattr(cost, end)) for end in ("value", "low", "high")]
        out.append(["volume", plain_number(found.requests_per_month), "requests a month", *ends, None, None, None])
    return out
