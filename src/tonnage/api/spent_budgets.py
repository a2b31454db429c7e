"""Who spent a budget: the runs of its present period, with what they reserved and came to."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

from tonnage.api.answers import Answer
from tonnage.errors import UnknownName, did_you_mean, nearest
from tonnage.reports.listing import Field, Fields, Listing, listing_report
from tonnage.reports.wording import UNKNOWN, render_money
from tonnage.settings import Settings, current_settings

if TYPE_CHECKING:
    from tonnage.budgets.standing import BudgetStanding, Reservation
    from tonnage.reports.rendering import Report


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
