"""Budgets as a verb: `tonnage.list_budgets`, `tonnage.check_budgets`."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from tonnage.api.answers import Answer
from tonnage.reports.listing import Field, Listing, listing_report
from tonnage.reports.wording import UNKNOWN, plural, render_money
from tonnage.settings import Settings, current_settings

if TYPE_CHECKING:
    from tonnage.budgets.file import Budget
    from tonnage.budgets.standing import BudgetStanding
    from tonnage.reports.rendering import Report


def list_budgets(*, settings: Settings | None = None) -> Answer[tuple[BudgetStanding, ...]]:
    """Every budget of the home as it is now; what has ended is settled first.

    Raises InputError that names file and key of what is wrong in budgets.toml.
    """
    from tonnage.budgets import book as books
    from tonnage.budgets.file import FILE_NAME, read_budgets
    from tonnage.budgets.settling import sweep
    from tonnage.budgets.standing import standing_of

    home = (settings or current_settings()).home
    book = books.ReservationBook(home / books.FILE_NAME)
    sweep(book)
    budgets = read_budgets(home / FILE_NAME) if (home / FILE_NAME).exists() else ()
    now, known = datetime.now(UTC), book.commitments()
    remarks = () if budgets else (f"{home / FILE_NAME} names no budget: docs/budgets.md shows one",)
    return Answer(tuple(standing_of(one, known, now) for one in budgets), _standings, remarks=remarks)


def check_budgets(file: Path | str) -> Answer[tuple[Budget, ...]]:
    """The budgets of a file, which need not be the home's. InputError names file and key of what is wrong."""
    from tonnage.budgets.file import read_budgets

    return Answer(read_budgets(Path(file)), _stated)


def _standings(found: tuple[BudgetStanding, ...]) -> Report:
    from tonnage.budgets.standing import usd

    def money(value: float | None) -> str:
        return UNKNOWN if value is None else render_money(value)

    def until(one: BudgetStanding) -> str | None:
        return None if one.window.end is None else one.window.end.isoformat()

    fields: list[Field[BudgetStanding]] = [
        Field("name", lambda one: one.budget.name, title="budget"),
        Field("scope", lambda one: one.budget.scope, title="of", wraps=True),
        Field("period", lambda one: one.budget.period, title="period"),
        Field("at_limit", lambda one: one.budget.at_limit, title="at its limit"),
        Field("limit_usd", lambda one: float(one.budget.usd), title="limit", show=money, right=True),
        Field("committed_usd", lambda one: usd(one.committed_micro_usd), title="committed", show=money, right=True),
        Field("spent_usd", lambda one: usd(one.spent_micro_usd), title="spent", show=money, right=True),
        Field("left_usd", lambda one: usd(one.left_micro_usd), title="left", show=money, right=True),
        Field("forecast_usd", lambda one: None if one.forecast_micro_usd is None else usd(one.forecast_micro_usd),
              title="forecast", show=money, right=True),
        Field("unknown_runs", lambda one: one.unknown),
        Field("until", until),
    ]  # fmt: skip
    remarks = [
        f"{one.budget.name}: {plural(one.unknown, 'run')} of unknown cost: the sums lack what they take"
        for one in found
        if one.unknown
    ]
    return listing_report(
        Listing(schema="tonnage/budgets@1", title="Budgets", name="budgets", head={}, fields=fields, items=found,
                remarks=remarks)
    )  # fmt: skip


def _stated(found: tuple[Budget, ...]) -> Report:
    fields: list[Field[Budget]] = [
        Field("name", lambda one: one.name, title="budget"),
        Field("scope", lambda one: one.scope, title="of", wraps=True),
        Field("period", lambda one: one.period, title="period"),
        Field("at_limit", lambda one: one.at_limit, title="at its limit"),
        Field("limit_usd", lambda one: float(one.usd), title="limit", show=render_money, right=True),
    ]
    return listing_report(
        Listing(schema="tonnage/budgets-file@1", title="Budgets stated", name="budgets", head={}, fields=fields,
                items=found)
    )  # fmt: skip
