"""`tonnage rightsize`."""

from __future__ import annotations

from typing import Annotated

import typer

from tonnage.api.machines import RightsizeOptions
from tonnage.cli import options
from tonnage.cli.declared import with_options
from tonnage.cli.session import open_session


@with_options(RightsizeOptions)
def rightsize(
    usage: Annotated[
        str, typer.Argument(metavar="USAGE", help="Measured use, a machine a row: CSV or JSON.", show_default=False)
    ],
    asked: RightsizeOptions,
    catalog: options.CatalogFolder = None,
    as_of: options.AsOf = None,
    output: options.Output = None,
    quiet: options.Quiet = False,
) -> None:
    """Find for each running machine the cheaper one that still holds its measured use, and what it saves a month.

    It says what would change, what the next cheaper machine would break, and how sure it is. A row may name a workload
    file: then the workload must fit too.
    """
    session = open_session(output=output, as_of=as_of, catalog=catalog, quiet=quiet)
    with session.progress("comparing machines"):
        from tonnage import api

        answer = api.rightsize(usage, asked, settings=session.settings)
    session.show_answer(answer)
