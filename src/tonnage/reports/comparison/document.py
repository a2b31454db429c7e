"""A comparison as a JSON document."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tonnage.comparison.comparing import Comparison
from tonnage.comparison.computed import WorkRow
from tonnage.comparison.migration import Migration
from tonnage.comparison.owned import Owned
from tonnage.comparison.profile_file import Evidence
from tonnage.comparison.profiles import Cell
from tonnage.reports.comparison.charts import flip_fields
from tonnage.reports.comparison.choice import STEP, ranking_fields
from tonnage.reports.comparison.costs import crossing_fields, total_figure
from tonnage.reports.comparison.verdict_document import advice_document, answer_document
from tonnage.reports.ledger_blocks import source_words
from tonnage.reports.listing import field_values
from tonnage.reports.plain import (
    plain_cost,
    plain_day,
    plain_figure,
    plain_instant,
    plain_number,
    plain_price,
    plain_usd,
)
from tonnage.reports.reasons import risk_document, risk_words
from tonnage.reports.reasons.comparison import missing_words, split_words
from tonnage.reports.reasons.why_not import why_not_document, why_not_words
from tonnage.sizing.estimates import Figure

SCHEMA = "tonnage/compare@1"


def comparison_document(comparison: Comparison) -> Mapping[str, Any]:
    """Everything, each figure with its unit in the key, its 80 % interval and its basis."""
    request = comparison.request
    return {
        "schema": SCHEMA,
        "title": request.title,
        "as_of": plain_instant(comparison.as_of),
        "answer": answer_document(comparison),
        "works": [
            {
                "name": one.name,
                "kind": one.workload.kind,
                "jobs_per_month": one.jobs_per_month,
                "requests_per_month": plain_number(one.requests_per_month),
            }
            for one in comparison.works
        ],
        "things": [_alternative(comparison, alternative.name) for alternative in request.alternatives],
        "break_even": [field_values(crossing_fields(comparison), one) for one in comparison.crossings],
        "decision": decision_document(comparison),
        "scores": _scores(comparison),
        "recommendation": [advice_document(one) for one in comparison.advice],
        "organisation": comparison.size.name if comparison.size else None,
        "split": {
            "places": dict(comparison.split.places),
            "weeks": plain_number(comparison.split.weeks),
            "usd": _money(comparison.split.usd),
            "usd_per_month": _money(comparison.split.usd_per_month),
            "single": comparison.split.single,
            "single_usd": _money(comparison.split.single_usd),
            "single_usd_per_month": _money(comparison.split.single_usd_per_month),
            "worth_it": comparison.split.worth_it,
            "because": split_words(comparison.split, comparison.title_of),
        },
        "migration": _migration(comparison.migration) if comparison.migration else None,
        "assumptions": [
            {
                "name": one.name,
                "value": plain_number(one.value),
                "low": plain_number(one.low),
                "high": plain_number(one.high),
                "source": one.source,
            }
            for one in comparison.assumptions
        ],
    }


def _money(figure: Figure | None) -> dict[str, Any] | None:
    return None if figure is None else plain_cost(figure)


def _alternative(comparison: Comparison, name: str) -> dict[str, Any]:
    total = comparison.totals[name]
    alternative = next(one for one in comparison.request.alternatives if one.name == name)
    return {
        "name": name,
        "title": alternative.title,
        "profile": alternative.profile.name,
        "can_do_all": total.can_do,
        "run_usd_per_month": _money(total.run_usd_per_month),
        "people_usd_per_month": _money(total.people_usd_per_month),
        "usd_per_month": _money(total.usd_per_month),
        "setup_usd": _money(total.setup_usd),
        "usd_per_month_at": {
            f"{factor:g}": _money(total_figure(comparison, name, factor)) if total.can_do else None
            for factor in comparison.request.volume_factors
        },
        "works": [_row(row) for row in total.rows],
        "aspects": {key: _cell(cell) for key, cell in alternative.profile.cells.items()},
        "energy_kwh_per_month": _plain(total.energy_kwh_per_month),
        "carbon_kg_per_month": _plain(total.carbon_kg_per_month),
        "carbon_missing": missing_words(total.footprint.missing) or None,
        "owned": _owned(alternative.owned),
        "compliance": [
            {
                "rule": one.standard,
                "answer": one.answer,
                "scope": one.scope or None,
                "evidence": _evidence(one.evidence),
            }
            for one in comparison.standing.matches[name]
        ],
        "meets_compliance": comparison.standing.meets(name),
        "risks": list(alternative.profile.risks),
    }


def _plain(figure: Figure | None) -> Any:
    return None if figure is None else plain_figure(figure)


def _owned(owned: Owned | None) -> dict[str, Any] | None:
    """What an owner states, and the hour it makes."""
    if owned is None:
        return None
    parts = owned.usd_per_hour(dedicated=False)
    return {
        "like": owned.like,
        "machines": owned.machines,
        "basis": "stated",
        "usd_per_instance_hour": plain_number(sum(usd for _, usd in parts)),
        "usd_per_instance_hour_by_part": {part: plain_number(usd) for part, usd in parts},
    }


def _row(row: WorkRow) -> dict[str, Any]:
    option = row.option
    out: dict[str, Any] = {
        "work": row.work,
        "why_not": why_not_words(row.why_not) or None,
        "why_not_value": None if row.why_not is None else why_not_document(row.why_not),
        "usd_per_job": _money(row.usd_per_job),
        "usd_per_month": _money(row.usd_per_month),
        "option": None,
    }
    if option is None:
        return out
    return out | {
        "time_s": plain_figure(row.time_s),
        "latency_p95_s": plain_figure(row.latency_p95_s),
        "rates": {key: plain_figure(figure) for key, figure in row.rates},
        "option": {
            "provider": option.provider,
            "platform": option.platform,
            "instance_type": option.instance_type,
            "region": option.region,
            "purchase": option.purchase,
            "count": option.count,
            "gpu": option.gpu,
            "price_read_on": plain_day(option.price_read_on),
            "ledger": [
                {
                    "what": line.what,
                    "part": line.part,
                    "quantity": plain_price(line.quantity),
                    "unit": line.unit,
                    "usd_per_unit": plain_price(line.usd_per_unit),
                    "usd": plain_usd(line.usd),
                    "read_on": plain_day(line.read_on),
                    "source": source_words(line),
                }
                for line in option.ledger.lines
            ],
            "risks": [risk_words(risk) for risk in option.risks],
            "risk_values": [risk_document(risk) for risk in option.risks],
        },
    }


def _cell(cell: Cell) -> dict[str, Any]:
    return {
        "value": cell.value,
        "score": cell.score,
        "because": cell.because or None,
        "evidence": _evidence(cell.evidence),
    }


def _evidence(evidence: tuple[Evidence, ...]) -> list[dict[str, Any]]:
    """`verified`: read at its maker, or in a stored copy of that."""
    return [
        {
            "title": one.title,
            "url": one.url,
            "read_on": plain_day(one.read_on),
            "judgement": one.judgement,
            "third_party": one.third_party,
            "verified": one.verified,
        }
        for one in evidence
    ]


def decision_document(comparison: Comparison) -> dict[str, Any]:
    """The trace, the leaf, and what would change it."""
    decision = comparison.decision
    return {
        "rules": decision.rules.name,
        "leaf": decision.leaf.name if decision.leaf else None,
        "named": list(comparison.answer.rules.named),
        "effect": comparison.answer.rules.kind,
        "answer": comparison.answer.choice,
        "say": decision.leaf.say if decision.leaf else None,
        "because": decision.leaf.because if decision.leaf else None,
        "missing": decision.missing or None,
        "steps": [field_values(STEP, one) for one in decision.steps],
        "would_change": [
            {"question": one.question, "change": one.change, "leaf": one.leaf.name if one.leaf else None}
            for one in decision.flips
        ],
    }


def _scores(comparison: Comparison) -> dict[str, Any]:
    return {
        "weights": {key: plain_number(weight) for key, weight in comparison.request.weights.items() if weight > 0},
        "counted": list(comparison.counted),
        "ranking": [field_values(ranking_fields(comparison), one) for one in comparison.ranking],
        "weight_flips": [field_values(flip_fields(comparison), one) for one in comparison.flips],
        "draws": comparison.request.draws,
        "seed": comparison.request.seed,
    }


def _migration(migration: Migration) -> dict[str, Any]:
    return {
        "from": migration.move.origin,
        "to": migration.move.target,
        "start": plain_day(migration.start),
        "weeks": {end: plain_number(migration.weeks(end)) for end in ("low", "likely", "high")},
        "hours": {end: plain_number(getattr(migration.hours, end)) for end in ("low", "likely", "high")},
        "critical": list(migration.critical),
        "tasks": [
            {
                "id": task.id,
                "phase": task.phase,
                "title": task.title,
                "after": list(task.after),
                "hours": {end: plain_number(getattr(task.hours, end)) for end in ("low", "likely", "high")},
                "start": plain_day(migration.dates(task.id)[0]),
                "end": plain_day(migration.dates(task.id)[1]),
                "checks": list(task.checks),
            }
            for task in migration.tasks
        ],
        "rollback": list(migration.rollback),
    }
