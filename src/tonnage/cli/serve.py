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
    target: Annotated[
        str,
        typer.Argument(
            metavar="TARGET", help="A workload file of kind serve; or an encoder: a folder, a run, hf://org/name."
        ),
    ],
    asked: ServeOptions,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the commands, as process and container; start nothing.")
    ] = False,
    as_of: options.AsOf = None,
    output: options.Output = None,
    quiet: options.Quiet = False,
) -> None:
    """Serve a model: one replica on this machine, of a planned service with the flags that the plan chose.

    An encoder (a run's model, a folder) is served by Tonnage's own server, which finds workers and batches at its
    start; other engines' arguments are checked against their own lists. Ctrl-C finishes what is being answered. Exit
    code 3: no machine fits; 4: this machine lacks the GPUs of a replica.
    """
    session = open_session(output=output, as_of=as_of, quiet=quiet)
    from tonnage import api

    with session.progress("planning"):
        answer = api.planned_replica(target, asked, settings=session.settings)
    if dry_run:
        session.show_answer(answer)
        return
    code = api.serve(answer.checked(), asked, say=session.say)
    raise typer.Exit(code)
