"""`tonnage pipeline`: steps that follow one another, done once and again only where something changed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tonnage import api
from tonnage.api.steps import PipelineOptions
from tonnage.cli.declared import Commands, ReportSession
from tonnage.cli.streams import write_stdout

commands = Commands(no_args_is_help=True, help="Steps that follow one another: prepare, train, evaluate, register.")
File = Annotated[Path, typer.Argument(metavar="FILE", help="NAME.pipeline.yaml", show_default=False)]


@commands.command("run")
def run(
    file: File,
    asked: PipelineOptions,
    *,
    session: ReportSession,
) -> None:
    """Do every step that is not up to date, each after the steps it needs.

    A step is up to date where its command, the files it reads, what the steps before it left and what it wrote are
    as they were. After a failure, or Ctrl-C, the same command goes on where it stopped.
    """
    session.show_answer(api.run_pipeline(file, asked, settings=session.settings, say=session.say))


@commands.command("show")
def show(
    file: File,
    graph: Annotated[bool, typer.Option("--graph", help="The steps and arrows as a Mermaid flowchart.")] = False,
    *,
    session: ReportSession,
) -> None:
    """The steps, in their order, and what each last ended with. Starts nothing."""
    if graph:
        from tonnage.pipelines import load_pipeline
        from tonnage.pipelines.report import render_graph

        write_stdout(render_graph(load_pipeline(file)))
        return
    session.show_answer(api.show_pipeline(file, settings=session.settings, say=session.say))
