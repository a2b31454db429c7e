"""`tonnage migrate`: a run of one place rendered as another's."""

from __future__ import annotations

from typing import Annotated

import typer

from tonnage import api
from tonnage.api.migrating import MigrateOptions
from tonnage.cli.declared import ReportSession, completing
from tonnage.cli.options import complete_place, complete_run


def migrate(
    target: Annotated[
        str,
        typer.Argument(
            metavar="FILE|RUN", autocompletion=complete_run, show_default=False,
            help="A workload file with a `run:` section, a spec.json, or the name of a run.",
        ),
    ],
    asked: Annotated[MigrateOptions, completing(to=complete_place, origin=complete_place)],
    *,
    session: ReportSession,
) -> None:  # fmt: skip
    """Render a run of one place as another's: what changes, what is copied and for how much, the steps in order.

    Nothing is asked, copied or started. Costs of both are those of the plan, where places.toml says which machine of
    the catalog a place has. Exit code 4: the other place cannot carry the run.
    """
    session.show_answer(api.migrate(target, asked, settings=session.settings))
