"""`tonnage serve FILE` and `tonnage serve simulate`."""

from __future__ import annotations

from typing import Annotated

import typer

from tonnage import api
from tonnage.api.scaling import ScalingOptions
from tonnage.api.serving import ServeOptions
from tonnage.cli.declared import Commands, ReportSession, StartGroup, completing, opened_by
from tonnage.cli.meter import Meter
from tonnage.cli.session import Session

_KINDS = ("steady", "waves", "daily", "ramps", "on-off", "spikes", "rare-spikes", "silent-nights")


def complete_kind(incomplete: str) -> list[str]:
    return [name for name in _KINDS if name.startswith(incomplete)]


def complete_tuning(incomplete: str) -> list[str]:
    return [name for name in ("hindsight", "past") if name.startswith(incomplete)]


def simulate(
    asked: Annotated[ScalingOptions, completing(burst=complete_kind, tuning=complete_tuning)],
    trace: Annotated[
        str | None,
        typer.Argument(metavar="[TRACE]", help="Requests, CSV; the columns: docs/scaling.md.", show_default=False),
    ] = None,
    *,
    session: ReportSession,
) -> None:
    """Replay a load against autoscalers: the promises they keep and the replica-hours they take.

    Each rival is tuned over its main parameter. Nothing is started; a trace without requests is bad input, exit 2.
    """
    with Meter(quiet=session.quiet) as meter:
        answer = api.simulate_scaling(trace, asked, on_step=meter.show)
    session.show_answer(answer)


_ENGINES = ("vllm", "sglang", "tensorrt-llm", "llama.cpp")


commands = Commands(
    cls=StartGroup,
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Serve a model: `tonnage serve TARGET` is `tonnage serve start TARGET`.",
)


def complete_engine(incomplete: str) -> list[str]:
    return [name for name in _ENGINES if name.startswith(incomplete)]


@commands.command("start", short_help="Start a replica of a planned service here")
def serve(
    target: Annotated[
        str,
        typer.Argument(
            metavar="TARGET",
            help="A workload file of kind serve; or a model without generated text: a folder, a file of trees, a run, "
            "hf://org/name, models:/NAME/1.",
        ),
    ],
    asked: Annotated[ServeOptions, completing(engine=complete_engine)],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the commands, as process and container; start nothing.")
    ] = False,
    *,
    session: Annotated[Session, opened_by("as_of", "output", "quiet")],
) -> None:
    """Serve a model: one replica on this machine, of a planned service with the flags that the plan chose.

    An encoder or a model of a table (a run's, a folder) is served by Tonnage's own server, which finds workers and
    batches at its start; other engines' arguments are checked against their own lists. Ctrl-C finishes what is being
    answered. Exit code 3: no machine fits; 4: this machine lacks the GPUs of a replica.
    """
    with session.progress("planning"):
        answer = api.planned_replica(target, asked, settings=session.settings)
    if asked.files is not None:
        for line in api.write_service_files(answer.found, asked):
            session.say(line)
    if dry_run:
        session.show_answer(answer)
        return
    code = api.serve(answer.checked(), asked, say=session.say)
    raise typer.Exit(code)


commands.command("simulate", short_help="Autoscalers side by side on a load")(simulate)
