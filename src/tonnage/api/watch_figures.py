"""Figures of a home that no run's folder has: the state of budgets, how old the newest backup is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Final

from tonnage.api.backups import read_backup_note
from tonnage.api.committing import FILE, open_book
from tonnage.metric_names import REGISTRY
from tonnage.monitoring.figures import series
from tonnage.settings import Settings

if TYPE_CHECKING:
    from tonnage.budgets.file import Budget
    from tonnage.budgets.standing import Reservation
    from tonnage.monitoring.figures import SeriesKey
    from tonnage.serving.running.record import RunningService

SPENT: Final = "tonnage_budget_spent_to_limit_ratio"
FORECAST: Final = "tonnage_budget_forecast_to_limit_ratio"
BACKUP_AGE: Final = "tonnage_backup_age_seconds"
BACKUP_FAILED: Final = "tonnage_backup_failed_ratio"


def home_figures(settings: Settings, now: datetime) -> Iterator[tuple[SeriesKey, float]]:
    """What is known at one instant. InputError for a budgets.toml that cannot be used."""
    if (settings.home / FILE).exists():
        for budget, spent, forecast in _standings(settings, now):
            labels = {"budget": budget.name, "at_limit": budget.at_limit}
            limit = float(budget.limit_micro_usd)
            if spent or limit:
                yield series(SPENT, labels), spent / limit if limit else float("inf")
            if forecast is not None and limit:
                yield series(FORECAST, labels), forecast / limit
    yield from _services(settings)
    note = read_backup_note(settings.home)
    if note.succeeded_at is not None:
        yield series(BACKUP_AGE, {}), max((now - note.succeeded_at).total_seconds(), 0.0)
    if note.succeeded_at is not None or note.failed_at is not None:
        yield series(BACKUP_FAILED, {}), float(note.fails)


def _services(settings: Settings) -> Iterator[tuple[SeriesKey, float]]:
    """What the services that run cost, beside their plans."""
    from tonnage.serving.running.record import read_costs, running_services

    for one in running_services(settings.home):
        if not one.is_alive:
            continue
        costs = read_costs(settings.home / "services" / one.name) or {}
        now, whole = costs.get("now") or {}, costs.get("since_start") or {}
        found = {
            "machines": costs.get("machines"), "cost_usd_per_hour": costs.get("usd_per_hour"),
            "p95_seconds": costs.get("p95_s"), "ttft_p95_seconds": costs.get("ttft_p95_s"),
            "tpot_p95_seconds": costs.get("tpot_p95_s"), "p95_to_promise_ratio": _to_promise(one, costs.get("p95_s")),
            "usd_total": whole.get("usd"), "usd_per_1000_requests": now.get("usd_per_1000_requests"),
            "usd_per_million_tokens": now.get("usd_per_million_tokens"),
            "input_tokens_total": whole.get("input_tokens"), "output_tokens_total": whole.get("output_tokens"),
        }  # fmt: skip
        for name, value in found.items():
            if value is not None:
                yield series(REGISTRY[f"tonnage_service_{name}"].name, {"service": one.name}), float(value)
        if one.planned is not None:
            for name, ends in (("usd_per_1000_requests", one.planned.usd_per_1000_requests()),
                               ("cost_usd_per_hour", one.planned.usd_per_hour()),
                               ("p95_seconds", one.planned.predicted_p95_s or ()),
                               ("ttft_p95_seconds", one.planned.predicted_ttft_p95_s or ()),
                               ("tpot_p95_seconds", one.planned.predicted_tpot_p95_s or ())):  # fmt: skip
                for end, value in zip(("value", "low", "high"), ends, strict=bool(ends)):
                    metric = REGISTRY[f"tonnage_service_predicted_{name}"].name
                    yield series(metric, {"service": one.name, "end": end}), value


def _to_promise(service: RunningService, p95_s: float | None) -> float | None:
    """None where there is no such promise, or too few answers."""
    promised_s = None if service.planned is None else service.planned.p95_latency_s
    return None if promised_s is None or p95_s is None else p95_s / promised_s


def _standings(settings: Settings, now: datetime) -> Iterator[tuple[Budget, int, int | None]]:
    """(budget, spent by what has ended and by what runs, forecast), in millionths of a US dollar."""
    from tonnage.budgets.settling import spent_so_far
    from tonnage.budgets.standing import standing_of

    book, budgets = open_book(settings.home)
    open_ones = {one.number: one for one in book.open_entries()}
    known = book.commitments()
    live: list[Reservation] = []
    for one in known:
        entry = open_ones.get(one.number)
        spent = one.spent if entry is None else spent_so_far(entry, now)
        if spent is not None:
            live.append(replace(one, spent=spent))
    for budget in budgets:
        yield (
            budget, standing_of(budget, live, now).spent_micro_usd,
            standing_of(budget, known, now).forecast_micro_usd,
        )  # fmt: skip


def runs_of_budget(settings: Settings, name: str) -> list[str]:
    """The runs under way that a budget applies to and that cost something."""
    book, budgets = open_book(settings.home)
    asked = [one for one in budgets if one.name == name]
    return [
        one.run for one in book.commitments()
        if one.spent is None and one.kind == "run" and one.bound_micro_usd != 0
        and any(budget.applies_to(one.charge) for budget in asked)
    ]  # fmt: skip
