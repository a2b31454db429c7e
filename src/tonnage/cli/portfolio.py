"""`tonnage plan --portfolio`: several workloads bought together."""

from __future__ import annotations

from collections.abc import Mapping

from tonnage.cli.session import Session


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
        from tonnage import api

        answer = api.portfolio(file, memory_margin=memory_margin, settings=session.settings)
    session.show_answer(answer)
