"""Budgets as a verb: `tonnage.list_budgets`, `tonnage.check_budgets`; which runs spent them."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tonnage.api.answers import Answer
from tonnage.errors import UnknownName, did_you_mean, nearest
from tonnage.reports.listing import Field, Fields, Listing, listing_report
from tonnage.reports.wording import UNKNOWN, plural, render_money
from tonnage.settings import Settings, current_settings

if TYPE_CHECKING:
    from tonnage.budgets.file import Budget
    from tonnage.budgets.standing import BudgetStanding, Reservation
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


def budget_runs(name: str, *, settings: Settings | None = None) -> Answer[tuple[Reservation, ...]]:
    """The runs that count in a budget's present period, and those that are under way; what has ended is settled first.

    Raises UnknownName where the home has no such budget, InputError for what is wrong in budgets.toml.
    """
    from tonnage.budgets import book as books
    from tonnage.budgets.file import FILE_NAME, read_budgets
    from tonnage.budgets.settling import sweep
    from tonnage.budgets.standing import counted_in, standing_of

    home = (settings or current_settings()).home
    budgets = {one.name: one for one in read_budgets(home / FILE_NAME)} if (home / FILE_NAME).exists() else {}
    if name not in budgets:
        hint = did_you_mean(nearest(name, budgets), "`tonnage budgets list` lists them; docs/budgets.md shows one")
        raise UnknownName(f"no budget is named '{name[:80]}'", hint=hint)
    book = books.ReservationBook(home / books.FILE_NAME)
    sweep(book)
    known, now = book.commitments(), datetime.now(UTC)
    standing = standing_of(budgets[name], known, now)
    found = sorted(counted_in(standing, known), key=lambda one: (one.reserved_at, one.number), reverse=True)
    return Answer(tuple(found), partial(_report, standing))


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


def _report(standing: BudgetStanding, found: tuple[Reservation, ...]) -> Report:
    from tonnage.budgets.standing import usd

    def money(value: float | None) -> str:
        return UNKNOWN if value is None else render_money(value)

    def bound(one: Reservation) -> float | None:
        return None if one.bound_micro_usd is None else usd(one.bound_micro_usd)

    def spent(one: Reservation) -> float | None:
        return None if one.spent is None or one.spent.micro_usd is None else usd(one.spent.micro_usd)

    def labels(one: Reservation) -> dict[str, str]:
        return dict(one.charge.labels)

    fields: Fields[Reservation] = (
        Field("run", lambda one: one.run, title="run", wraps=True),
        Field("project", lambda one: one.charge.project, title="project"),
        Field("team", lambda one: one.charge.team, title="team"),
        Field("environment", lambda one: one.charge.environment, title="environment", folds=2),
        Field("labels", labels),
        Field("state", lambda one: "under way" if one.spent is None else "settled", title="state"),
        Field("bound_usd", bound, title="reserved", show=money, right=True),
        Field("spent_usd", spent, title="spent", show=money, right=True),
        Field(
            "reserved_at",
            lambda one: one.reserved_at.isoformat(timespec="seconds"),
            title="at (UTC)",
            folds=1,
            show=lambda at: at[:16].replace("T", " "),
        ),
    )
    left = f"{render_money(usd(standing.left_micro_usd))} of {render_money(float(standing.budget.usd))} left"
    head = {
        "budget": standing.budget.name, "period": standing.budget.period, "limit_usd": float(standing.budget.usd),
        "left_usd": usd(standing.left_micro_usd),
    }  # fmt: skip
    title = f"Runs of {standing.budget.name} ({standing.budget.period}): {left}"
    return listing_report(
        Listing(schema="tonnage/budget-runs@1", title=title, name="runs", head=head, fields=fields, items=found)
    )
