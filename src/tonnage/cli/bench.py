"""`tonnage bench`: measure a running service."""

from __future__ import annotations

from typing import Annotated

import typer

from tonnage.api.bench import BenchServeOptions
from tonnage.cli import options
from tonnage.cli.declared import with_options
from tonnage.cli.meter import Meter
from tonnage.cli.session import open_session

commands = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Measure a running service.")


@commands.callback()
def group() -> None:
    """Measure a running service."""


@commands.command("serve", short_help="Latency, throughput and capacity of a service, in an open loop")
@with_options(BenchServeOptions)
def serve(
    url: Annotated[
        str, typer.Argument(metavar="URL", help="Where it listens: http://localhost:8000.", show_default=False)
    ],
    asked: BenchServeOptions,
    output: options.Output = None,
    quiet: options.Quiet = False,
) -> None:
    """Offer load to a service, each request when it is due whatever the others do, and show how it answers.

    Times run from the moment a request was due. Exit code 1, and no rows, where the client itself sent too late.
    """
    session = open_session(output=output, quiet=quiet)
    with Meter(quiet=session.quiet) as meter:
        from tonnage import api

        answer = api.bench_serve(url, asked, settings=session.settings, on_step=meter.show)
    session.show_answer(answer)
