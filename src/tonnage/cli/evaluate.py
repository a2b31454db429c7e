"""`tonnage evaluate`."""

from __future__ import annotations

from typing import Annotated

from tonnage.api.trained import DEVICES, EvaluateOptions
from tonnage.cli.carry_out import Run
from tonnage.cli.declared import ReportSession, completing


def complete_device(incomplete: str) -> list[str]:
    return [name for name in DEVICES if name.startswith(incomplete)]


def evaluate(
    run: Run,
    asked: Annotated[EvaluateOptions, completing(device=complete_device)],
    *,
    session: ReportSession,
) -> None:
    """How good the finished model of a run is, on its test rows (its validation rows where it has none) or on FILE.

    FILE has the columns of the run's own rows. Its labels must be those the model has learned.
    """
    with session.progress(f"judging {run}"):
        from tonnage import api

        answer = api.evaluate(run, asked, settings=session.settings)
    session.show_answer(answer)
