"""`tonnage budgets`: what teams may spend on runs, what is spent and reserved of it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tonnage import api
from tonnage.api.bill_reconciling import BudgetsReconcileOptions
from tonnage.cli.declared import Commands, ReportSession

commands = Commands(no_args_is_help=True, help="What teams may spend on runs: budgets.toml at home.")


@commands.command("list", short_help="Every budget as it stands now")
def list_budgets(
    *,
    session: ReportSession,
) -> None:
    """List each budget's limit, what runs have reserved and spent of it in this period, what is left, and a forecast.

    The forecast is what the period comes to at the pace so far. What has ended since the last time is settled first.
    """
    session.show_answer(api.list_budgets(settings=session.settings))


@commands.command("runs", short_help="Who spent a budget")
def runs(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A budget of the home.", show_default=False)],
    *,
    session: ReportSession,
) -> None:
    """List the runs that count in a budget now, the newest first: whose they are, what they reserved and came to.

    A settled run shows all that it cost; of hours in two periods the budget counts the share that lies in its own.
    """
    session.show_answer(api.budget_runs(name, settings=session.settings))


@commands.command("check", short_help="Check a file of budgets")
def check(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A budgets.toml.", show_default=False)],
    *,
    session: ReportSession,
) -> None:
    """Read a file of budgets and print what it states; exit code 2, with the key, where it cannot be used."""
    session.show_answer(api.check_budgets(file))


@commands.command("reconcile", short_help="Compare measured hours with a cloud's bill")
def reconcile(
    bill: Annotated[
        Path,
        typer.Argument(metavar="BILL", help="A file or folder of AWS CUR, FOCUS, Google Cloud or Azure; CSV, JSON, "
                       "Parquet.", show_default=False),
    ],
    asked: BudgetsReconcileOptions,
    *,
    session: ReportSession,
) -> None:  # fmt: skip
    """Show the hours of runs and services beside a cloud's bill, by day: each gap, and what it is made of.

    Exit code 1: a gap is beyond the tolerance.
    """
    session.show_answer(api.reconcile_budgets(bill, asked, settings=session.settings))
