"""`tonnage diff`."""

from __future__ import annotations

from typing import Annotated

import typer

from tonnage import api
from tonnage.api.changed_files import DiffOptions
from tonnage.cli.declared import PlanSession


def diff(
    files: Annotated[
        list[str], typer.Argument(metavar="FILE...", help="Two workload files; any number with --against or snapshots.")
    ],
    asked: DiffOptions,
    *,
    session: PlanSession,
) -> None:
    """Show what a change costs a month: of a workload file, against a git revision, or of prices.

    Each key that changed is priced by itself. `-o md` writes the comment for a pull request. A file that only one
    side has counts as added or removed. Exit code 3: nothing fits after the change, and it was not so before; 4: over
    --fail-above.
    """
    with session.progress("planning both sides"):
        answer = api.diff_files(files, asked, settings=session.settings)
    session.show_answer(answer)
