"""`tonnage serve`."""

from __future__ import annotations

from typing import Annotated

import typer

from tonnage.api.serving import ServeOptions
from tonnage.cli import options
from tonnage.cli.declared import with_options
from tonnage.cli.session import open_session

_ENGINES = ("vllm", "sglang", "tensorrt-llm", "llama.cpp")


def complete_engine(incomplete: str) -> list[str]:
    return [name for name in _ENGINES if name.startswith(incomplete)]


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
