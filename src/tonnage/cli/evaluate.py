"""`tonnage evaluate`."""

from __future__ import annotations

from tonnage.api.trained import DEVICES, EvaluateOptions
from tonnage.cli import options
from tonnage.cli.carry_out import Run
from tonnage.cli.declared import with_options
from tonnage.cli.session import open_session


def complete_device(incomplete: str) -> list[str]:
    return [name for name in DEVICES if name.startswith(incomplete)]


@with_options(EvaluateOptions, completions={"device": complete_device})
def evaluate(run: Run, asked: EvaluateOptions, output: options.Output = None, quiet: options.Quiet = False) -> None:
    """How good the finished model of a run is, on its test rows (its validation rows where it has none) or on FILE.

    FILE has the columns of the run's own rows. Its labels must be those the model has learned.
    """
    session = open_session(output=output, quiet=quiet)
    with session.progress(f"judging {run}"):
        from tonnage import api

        answer = api.evaluate(run, asked, settings=session.settings)
    session.show_answer(answer)
