"""`tonnage serve FILE`, and what stands beside it: `tonnage serve simulate`."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from tonnage.api.serving import ServeOptions
from tonnage.cli import options
from tonnage.cli.declared import with_options
from tonnage.cli.serve_simulate import simulate
from tonnage.cli.session import open_session

_ENGINES = ("vllm", "sglang", "tensorrt-llm", "llama.cpp")


class ServeGroup(TyperGroup):
    """A file in the place of a command is served: `serve FILE` is `serve start FILE`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """The arguments, with `start` put before what names no command."""
        if args and args[0] not in (*self.commands, "-h", "--help"):
            args = ["start", *args]
        return super().parse_args(ctx, args)


commands = typer.Typer(
    cls=ServeGroup,
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Serve a model as it was planned: `tonnage serve FILE` is `tonnage serve start FILE`.",
)


def complete_engine(incomplete: str) -> list[str]:
    return [name for name in _ENGINES if name.startswith(incomplete)]


@commands.command("start", short_help="Start a replica of a planned service here")
@with_options(ServeOptions, completions={"engine": complete_engine})
def serve(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A workload file of kind serve.")],
    asked: ServeOptions,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the commands, as process and container; start nothing.")
    ] = False,
    as_of: options.AsOf = None,
    output: options.Output = None,
    quiet: options.Quiet = False,
) -> None:
    """Serve a model as it was planned: one replica on this machine, with the flags that the plan chose.

    Every argument is checked against the engine's own list before anything starts. Ctrl-C finishes what is being
    answered, then ends the engine. Exit code 3: no machine fits; 4: this machine lacks the GPUs of a replica.
    """
    session = open_session(output=output, as_of=as_of, quiet=quiet)
    from tonnage import api

    with session.progress("planning"):
        answer = api.planned_replica(file, asked, settings=session.settings)
    if dry_run:
        session.show_answer(answer)
        return
    code = api.serve(answer.checked(), asked, say=session.say)
    raise typer.Exit(code)


commands.command("simulate", short_help="Autoscalers side by side on a load")(simulate)
