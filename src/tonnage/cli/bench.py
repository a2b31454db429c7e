"""`tonnage bench`: engines side by side on the same work; a running service under load."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from tonnage import api
from tonnage.api.bench import BenchServeOptions
from tonnage.api.engine_benches import BenchRunOptions
from tonnage.api.place_benches import BenchPlacesOptions
from tonnage.api.vector_benches import BenchVectorsOptions
from tonnage.cli.declared import Commands, MarketSession, QuietSession, ReportSession, given_flags
from tonnage.cli.meter import Meter
from tonnage.errors import InputError

FILES = (".yaml", ".yml")


class FileIsRun(TyperGroup):
    """`tonnage bench FILE.yaml` means `tonnage bench run FILE.yaml`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """The arguments, with `run` before a file or an option of `run`."""
        words = [one for one in args if not one.startswith("-")]
        if words and words[0] not in self.commands and any(one.endswith(FILES) for one in words):
            args = ["run", *args]
        return super().parse_args(ctx, args)


commands = Commands(
    cls=FileIsRun, no_args_is_help=True, rich_markup_mode=None,
    help="Compare engines on the same work; measure a running service.",
)  # fmt: skip


@commands.callback()
def group() -> None:
    """Compare engines on the same work; measure a running service."""


@commands.command("run", short_help="The same work on several engines: time and dollars to a quality")
def run(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A file with `bench:`.", show_default=False)],
    asked: BenchRunOptions,
    *,
    session: ReportSession,
) -> None:
    """Run the same rows through several engines in turn, each in a process of its own, and compare them.

    `tonnage bench FILE.yaml` is the same. Finished cells are on the disk: after Ctrl-C or a kill, --resume goes on. A
    worker that fails is a failed cell with its reason, and the rest goes on. A file with `run` and `places` compares
    places, as `bench places` does. Exit code 1: no cell came to its end; 130: stopped by someone.
    """
    session.private_home()
    from tonnage.api.interrupting import terminations_interrupt
    from tonnage.side_by_side.places import compares_places

    if compares_places(Path(file)):
        _only_file(asked)
        session.show_answer(api.bench_places(file, settings=session.settings, say=session.say))
        return
    with terminations_interrupt():
        answer = api.bench_run(file, asked, settings=session.settings, on_step=session.say)
    session.show_answer(answer)


def _only_file(asked: BenchRunOptions) -> None:
    for flag in given_flags(asked):
        raise InputError(f"{flag} is for engines; this file compares places", hint="leave it out")


@commands.command("places", short_help="The same run at several places: variation and differences")
def places(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE", help="A workload file with `run:`, or a bench file with `places`.", show_default=False
        ),
    ],
    asked: BenchPlacesOptions,
    *,
    session: ReportSession,
) -> None:
    """Run a workload file at several places in turn, and show how much runs vary at each and differ between them.

    Variation and differences come with the confidence that they stay below --limit. A run that fails is a failed cell
    with its reason, and the rest goes on. Exit code 1: no run came to its end anywhere.
    """
    session.private_home()
    session.show_answer(api.bench_places(file, asked, settings=session.settings, say=session.say))


@commands.command("vectors", short_help="Vector operations on each device: predicted, measured, times a processor")
def vectors(
    asked: BenchVectorsOptions,
    *,
    session: MarketSession,
) -> None:
    """Time axpy, dot product, sum and products on this machine's devices, with the prediction made first.

    A processor is predicted by its device profile (`tonnage calibrate --local`), or else by its vector units and clock;
    a GPU by its data sheet. --gpu adds one that is not here, predicted alone.
    """
    session.show_answer(api.bench_vectors(asked, settings=session.settings, say=session.say))


@commands.command("setup", short_help="An environment for H2O, Sparkling Water or Ray")
def setup(
    what: Annotated[str, typer.Argument(metavar="NAME", help="h2o, sparkling or ray.", show_default=False)],
    packages: Annotated[
        list[str] | None,
        typer.Option(
            "--with", metavar="PACKAGE", show_default=False,
            help="Another version of a package, such as that of a cluster: ray==2.48.0. Repeatable.",
        ),
    ] = None,
    *,
    session: QuietSession,
) -> None:  # fmt: skip
    """Make an environment of its own for H2O, for H2O Sparkling Water on Spark, or for Ray, and try it.

    Java is checked first where it is needed. None of them goes into the environment of tonnage.
    """
    session.private_home()
    folder = api.bench_setup(what, packages=packages or (), settings=session.settings, on_step=session.say)
    typer.echo(f"{what} is ready in {folder}")


@commands.command("clean", short_help="End what killed benches left")
def clean(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="One bench. [default: all]", show_default=False)
    ] = None,
    *,
    session: QuietSession,
) -> None:
    """End processes that killed benches left, and remove their tables; journals and reports stay."""
    for line in api.bench_clean(name, settings=session.settings):
        typer.echo(line)


@commands.command("serve", short_help="Latency, throughput and capacity of a service, in an open loop")
def serve(
    url: Annotated[
        str, typer.Argument(metavar="URL", help="Where it listens: http://localhost:8000.", show_default=False)
    ],
    asked: BenchServeOptions,
    *,
    session: ReportSession,
) -> None:
    """Offer load to a service, each request when it is due whatever the others do, and show how it answers.

    Times run from the moment a request was due. Exit code 1, and no rows, where the client itself sent too late.
    """
    with Meter(quiet=session.quiet) as meter:
        answer = api.bench_serve(url, asked, settings=session.settings, on_step=meter.show)
    session.show_answer(answer)
