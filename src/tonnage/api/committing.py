"""What a run may cost, reserved over the budgets of the home before it starts."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tonnage.budgets.book import ReservationBook, ReservationRequest
    from tonnage.budgets.file import Budget
    from tonnage.runs.folder import RunFolder
    from tonnage.runs.spec import RunSpec

FILE: Final = "budgets.toml"  # as `tonnage.budgets` has both names: a home without budgets loads nothing of it
BOOK: Final = "budgets.db"


def bound_micro_usd(
    spec: RunSpec, prediction: dict[str, Any], *, earlier_usd: float = 0.0, earlier_s: float = 0.0
) -> int | None:
    """The most a run may cost from now on, in millionths of a US dollar; None: not known.

    The lower of `max_cost_usd` and the price of `max_s`, less what earlier sessions took; without either the high end
    of the predicted cost.
    """
    guard = spec.guard
    price = guard.usd_per_hour
    if price == 0:
        return 0
    bounds = [] if guard.max_cost_usd is None else [guard.max_cost_usd - earlier_usd]
    if price is not None and guard.max_s is not None:
        from tonnage.runs.guards import billed_usd

        bounds.append(billed_usd(guard.max_s - earlier_s, price, guard.billing_quantum_s))
    cost = prediction.get("figures", {}).get("cost_usd")
    if not bounds and price is not None and cost is not None:
        bounds.append(cost["high"])
    return math.ceil(max(0.0, min(bounds)) * 1e6 - 1e-6) if bounds else None


def soft_warnings(home: Path, spec: RunSpec, folder: RunFolder, prediction: dict[str, Any]) -> tuple[str, ...]:
    """What soft budgets say of a run; PlanRefused where a hard one has no room. Nothing is reserved."""
    if not (home / FILE).exists():
        return ()
    from tonnage.budgets.book import refuse, short_of
    from tonnage.budgets.standing import shortage

    book, budgets = open_book(home)
    asked = _asked(spec, folder, bound_micro_usd(spec, prediction))
    short = short_of(asked, budgets, book.commitments(), datetime.now(UTC))
    refuse(short, asked)
    return tuple(shortage(one, asked.bound_micro_usd) for one in short)


def refuse_over_budget(home: Path, spec: RunSpec, folder: RunFolder, prediction: dict[str, Any]) -> None:
    """PlanRefused where a hard budget has no room for a run that is to go on. Nothing is reserved."""
    if not (home / FILE).exists():
        return
    from tonnage.budgets.book import refuse, short_of

    book, budgets = open_book(home)
    asked = _resumed(spec, folder, prediction)
    refuse(short_of(asked, budgets, book.commitments(), datetime.now(UTC)), asked)


@contextmanager
def reserved(
    home: Path, spec: RunSpec, folder: RunFolder, prediction: dict[str, Any], *, resumed: bool = False
) -> Iterator[None]:
    """What a run may cost is reserved while the block writes its start down, and stays so where that succeeds.

    PlanRefused where a hard budget has no room. Without `budgets.toml` at home nothing is reserved.
    """
    if not (home / FILE).exists():
        yield
        return
    book, budgets = open_book(home)
    number = book.reserve(_resumed(spec, folder, prediction) if resumed else _asked(
        spec, folder, bound_micro_usd(spec, prediction)), budgets)  # fmt: skip
    try:
        yield
    except BaseException:
        book.release(number)
        raise
    book.mark_started(number)


def settle_ended(home: Path) -> None:
    """Settle the reservations of runs that have ended, by what their folders tell."""
    if (home / BOOK).exists():
        from tonnage.budgets.book import ReservationBook
        from tonnage.budgets.settling import sweep

        sweep(ReservationBook(home / BOOK))


def open_book(home: Path) -> tuple[ReservationBook, tuple[Budget, ...]]:
    """The book of a home, with what has ended settled, and its budgets."""
    from tonnage.budgets.book import ReservationBook
    from tonnage.budgets.file import read_budgets

    settle_ended(home)
    return ReservationBook(home / BOOK), read_budgets(home / FILE)


def _asked(spec: RunSpec, folder: RunFolder, bound: int | None, *, earlier_sessions: int = 0) -> ReservationRequest:
    from tonnage.budgets.book import ReservationRequest

    return ReservationRequest(
        run=folder.path.name, folder=folder.path.absolute(), charge=spec.charge, bound_micro_usd=bound,
        earlier_sessions=earlier_sessions,
    )  # fmt: skip


def _resumed(spec: RunSpec, folder: RunFolder, prediction: dict[str, Any]) -> ReservationRequest:
    from tonnage.runs.guards import sessions_of

    sessions = sessions_of(folder.events(), spec.guard)
    used = sum(one.usd or 0.0 for one in sessions)
    bound = bound_micro_usd(spec, prediction, earlier_usd=used, earlier_s=sum(one.seconds for one in sessions))
    return _asked(spec, folder, bound, earlier_sessions=len(sessions))
