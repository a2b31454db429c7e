"""A plan as JSON (`tonnage/plan@1`) and as CSV rows: every option and every refusal."""

from __future__ import annotations

from typing import Any, Final

from tonnage.planning.intervals import Interval
from tonnage.planning.plan import (
    CatalogStamp,
    HostShare,
    MachineOption,
    NearMiss,
    Need,
    Option,
    Plan,
    Refusal,
    RunDetail,
    TokenOption,
)
from tonnage.pricing.ledger import Ledger
from tonnage.reports.cheaper import cheaper_document
from tonnage.reports.ledger_blocks import source_words
from tonnage.reports.listing import Field, Fields, field_values, figure_fields, named_fields
from tonnage.reports.plain import (
    plain_cost,
    plain_day,
    plain_figure,
    plain_instant,
    plain_number,
    plain_price,
    plain_usd,
)
from tonnage.reports.reasons import miss_document, miss_words, risk_document, risk_words
from tonnage.reports.reasons.distances import distance_document, distance_words
from tonnage.reports.reasons.flips import changes_document, near_miss_lifts, relaxation_document, relaxation_words
from tonnage.reports.reasons.notes import notes_document
from tonnage.reports.reasons.origins import origin_document, origin_words
from tonnage.reports.spot_words import spot_document

PLAN_SCHEMA: Final = "tonnage/plan@1"


def plan_document(plan: Plan) -> dict[str, Any]:
    """The whole plan in plain values. Keys: docs/json.md."""
    return {
        "schema": PLAN_SCHEMA,
        "objective": plan.objective,
        "as_of": plain_instant(plan.as_of),
        "horizon": plan.horizon,
        "workload": workload_document(plan.name, plan.kind, plan.summary),
        "needs": needs_document(plan.need),
        "options": [option_document(option) for option in plan.options],
        "refused": [refusal_document(refusal) for refusal in plan.refused],
        "nearest_misses": [] if plan.options else [near_miss_document(miss) for miss in plan.nearest_misses],
        "cheaper": [cheaper_document(one, plan) for one in plan.cheaper],
        "relaxations": [relaxation_words(one) for one in plan.relaxations],
        "relaxation_values": [relaxation_document(one) for one in plan.relaxations],
        "catalog": catalog_document(plan.catalog),
        **notes_document(plan.notes),
    }


def workload_document(name: str, kind: str, summary: tuple[tuple[str, str], ...]) -> dict[str, Any]:
    return {"name": name, "kind": kind, "summary": dict(summary)}


def needs_document(need: Need) -> dict[str, Any]:
    """Key with unit -> figure, and how it was found."""
    return {
        key: {**(plain_figure(figure) or {}), "how": origin_words(how), "how_value": origin_document(how)}
        for key, figure, how in need.figures
    }


def catalog_document(stamp: CatalogStamp) -> dict[str, Any]:
    return {
        "snapshot": stamp.snapshot,
        "built_on": stamp.built_on.isoformat(),
        "oldest_price": plain_day(stamp.oldest_price),
        "undated_prices": stamp.undated_prices,
        "offers": stamp.offers,
    }


def option_document(option: Option) -> dict[str, Any]:
    """One option: identity, figures, ledger, risks."""
    return {
        "rank": option.rank,
        **field_values(_CANDIDATE, option),
        **field_values(_PRICE, option),
        "layout": option.layout,
        "time_s": plain_figure(option.time_s),
        "cost_usd": plain_cost(option.cost_usd),
        "ledger": ledger_document(option.ledger),
        "run": run_document(option.run) if isinstance(option, MachineOption) else _token_document(option),
        "spot": spot_document(option.spot),
        "risks": [risk_words(risk) for risk in option.risks],
        "risk_values": [risk_document(risk) for risk in option.risks],
        "relied_on": option.relied_on,
        "pareto": option.pareto,
        "loses_by": distance_words(option.loses_by),
        "loses_by_value": distance_document(option.loses_by),
    }


def ledger_document(ledger: Ledger) -> list[dict[str, Any]]:
    """The lines; their `usd` sum to the option's `cost_usd.value`."""
    return [
        {
            "what": line.what,
            "part": line.part,
            "quantity": float(line.quantity),
            "unit": line.unit,
            "usd_per_unit": float(line.usd_per_unit),
            "usd": plain_usd(line.usd),
            "discount_percent": plain_number(float(line.discount_percent)),
            "billed_by": line.billed_by or None,
            "source": source_words(line),
            "read_on": plain_day(line.read_on),
        }
        for line in ledger.lines
    ]


def run_document(run: RunDetail) -> dict[str, Any]:
    """How the machines do the work; memory is per device."""
    return {
        "layout": dict(run.layout_fields),
        "time_s": plain_figure(run.time_s),
        "time_parts_s": {part: plain_number(seconds) for part, seconds in run.time_parts},
        "time_parts_of": run.time_parts_of,
        "memory_gib": plain_figure(run.memory_gib),
        "memory_available_gib": plain_number(run.memory_available_gib),
        "memory_parts_gib": {part: plain_number(gib) for part, gib in run.memory_parts_gib},
        "rates": {key: plain_figure(figure) for key, figure in run.rates},
        "latency_p95_s": plain_figure(run.latency_p95_s),
        "ttft_p95_s": plain_figure(run.ttft_p95_s),
        "tpot_p95_s": plain_figure(run.tpot_p95_s),
        "utilisation_fraction": plain_number(run.utilisation),
        "percentiles_s": {of: {name: plain_number(value) for name, value in at} for of, at in run.percentiles},
        "intervals": [interval_document(one) for one in run.intervals],
        **notes_document(run.notes),
        "host": None if run.host is None else host_document(run.host),
    }


def _token_document(option: TokenOption) -> dict[str, Any]:
    """The keys of `run_document` for work that no machine of the buyer's does."""
    return {
        "layout": {"input_tokens": option.input_tokens, "output_tokens": option.output_tokens},
        "time_s": plain_figure(option.time_s), "time_parts_s": {}, "time_parts_of": "request",
        "memory_gib": None, "memory_available_gib": None, "memory_parts_gib": {}, "rates": {},
        "latency_p95_s": plain_figure(option.latency_p95_s), "ttft_p95_s": plain_figure(option.ttft_p95_s),
        "tpot_p95_s": None, "utilisation_fraction": None, "percentiles_s": {}, "intervals": [],
        **notes_document(()), "host": None,
    }  # fmt: skip


def host_document(host: HostShare) -> dict[str, Any]:
    """What all hosts get ready in a second; null where their vCPUs are not stated."""
    return {
        "stage": host.stage,
        "vcpus_per_machine": plain_number(host.vcpus),
        "items_per_s": plain_figure(host.items_per_s),
        "devices_items_per_s": plain_number(host.devices_per_s),
        "needed_vcpus": plain_number(host.needed_vcpus),
        "binds": host.binds,
    }


def interval_document(one: Interval) -> dict[str, Any]:
    """Which 80 % interval a figure of the run has, and its basis (0 rows: a judgement)."""
    return {
        "of": one.of,
        "group": one.group,
        "low_factor": plain_number(one.spread.low_factor),
        "high_factor": plain_number(one.spread.high_factor),
        "left_out_rows": one.rows,
        "left_out_families": one.families,
        "unknown": list(one.unknown),
        "unknown_rows": one.far_rows,
    }


def refusal_document(refusal: Refusal) -> dict[str, Any]:
    """One candidate that is out. `shortfall`: needs / has, null where they are not numbers."""
    words = miss_words(refusal.miss)
    return {
        **field_values(_CANDIDATE, refusal),
        "binding": refusal.binding,
        "needs": words.needs,
        "has": words.has,
        "flips_when": words.lifts,
        "shortfall": plain_number(refusal.shortfall),
        "reason": miss_document(refusal.miss),
    }


def near_miss_document(near: NearMiss) -> dict[str, Any]:
    """A refusal, the changes that were tried and let it in, and what it costs then."""
    return {
        **refusal_document(near.refusal),
        "flips_when": near_miss_lifts(near),
        "changes": changes_document(near),
        "cost_usd": plain_usd(near.flip.cost_usd),
    }


_WHERE: Final[Fields[Any]] = named_fields("provider", "instance_type", "region", "count", "purchase")
_GPUS: Final[Fields[Any]] = named_fields("gpu", "gpu_count")
_CANDIDATE: Final[Fields[Option | Refusal]] = (*_WHERE, *named_fields("platform"), *_GPUS)
_PRICE: Final[Fields[Option]] = (
    Field("usd_per_instance_hour", lambda option: option.usd_per_instance_hour, json=plain_price),
    *named_fields("price_read_on"),
)
OPTION_ROW: Final[Fields[Option]] = (
    *named_fields("rank"),
    *_WHERE,
    *_GPUS,
    *named_fields("layout"),
    *figure_fields("time{}_s", lambda option: option.time_s),
    *figure_fields("cost{}_usd", lambda option: option.cost_usd, plain_usd),
    *_PRICE,
    *figure_fields("memory{}_gib", lambda option: option.run.memory_gib if isinstance(option, MachineOption) else None),
    Field("memory_available_gib", lambda one: one.run.memory_available_gib if isinstance(one, MachineOption) else None),
    Field("latency_p95_s", lambda option: option.latency_p95_s and option.latency_p95_s.value),
    *named_fields("pareto"),
    Field("risks", lambda option: "; ".join(risk_words(risk) for risk in option.risks)),
    Field("loses_by", lambda option: distance_words(option.loses_by)),
    *named_fields("platform", "relied_on"),
)
