"""`tonnage plan --portfolio`: several workloads bought together."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tonnage.cli.session import Session

if TYPE_CHECKING:
    from tonnage.workload.jobs import Workload


def refuse_beside_portfolio(given: Mapping[str, object]) -> None:
    """InputError for what says something about one workload only."""
    for name, value in given.items():
        if value:
            from tonnage.errors import InputError

            hint = "limits stand in the portfolio file, or in the workload files that it names"
            raise InputError(f"{name} goes with one workload, not with --portfolio", hint=hint)


def show_portfolio(session: Session, file: str, *, memory_margin: float | None) -> None:
    """Plan a portfolio file and show it; NothingFits where no assignment holds every limit."""
    with session.progress("planning the portfolio"):
        plan = _plan(session, file, memory_margin)
    from tonnage.reports.portfolio import describe_give, portfolio_report

    session.show(portfolio_report(plan))
    if plan.found:
        return
    from tonnage.errors import NothingFits
    from tonnage.reports.reasons.flips import unplaced_hint

    if plan.unplaced:
        first = plan.unplaced[0]
        refused = f"nothing fits {first.workload}: {first.refused:,} candidates refused"
        raise NothingFits(refused, hint=unplaced_hint(first))
    hint = describe_give(plan.gives[0]) if plan.gives else None
    raise NothingFits(f"no assignment of the portfolio {plan.name} holds every limit", hint=hint)


def _plan(session: Session, file: str, memory_margin: float | None) -> Any:
    from tonnage import api
    from tonnage.portfolios import plan_portfolio
    from tonnage.workload.portfolio.loading import load_portfolio

    settings = session.settings
    catalog = api.load_catalog(settings=settings)
    now = datetime.now(UTC).replace(second=0, microsecond=0)

    def read(path: Path, as_of: datetime) -> Workload:  # noqa: ARG001  the settings carry the clock too
        return api.load_workload(path, catalog=catalog, settings=settings)

    portfolio = load_portfolio(file, as_of=settings.as_of or now, catalog=catalog, read_workload=read)
    return plan_portfolio(portfolio, catalog, calibrated=api.grounds_of(None, memory_margin, session.settings))
