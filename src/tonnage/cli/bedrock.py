"""`tonnage bedrock`: models customised, imported and held at Amazon Bedrock, and ended there."""

from __future__ import annotations

from typing import Annotated

import typer

from tonnage import api
from tonnage.api.bedrock import BedrockAccount, CustomiseOptions, ImportOptions, ProvisionOptions
from tonnage.cli import options
from tonnage.cli.declared import Commands, ReportSession

commands = Commands(
    no_args_is_help=True, help="Customise, import and hold models at Amazon Bedrock; end what is billed."
)
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print requests and cost; send nothing.")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="Of what is made: the same name is the same thing.")]


@commands.command("customise", short_help="Fine-tune a model of Bedrock on a workload's rows")
def customise(file: options.File, asked: CustomiseOptions, dry_run: DryRun = False, *, session: ReportSession) -> None:
    """Start a customisation job: Bedrock's own program, with the file's rows, epochs and learning rate.

    What Bedrock cannot do is refused before: other tasks, rows that are not one .jsonl at S3, values outside the
    documented ranges of the model. The same command again finds the same job.
    """
    session.show_answer(api.bedrock_customise(file, asked, dry_run=dry_run, settings=session.settings))


@commands.command("import", short_help="Import weights into Bedrock")
def import_model(name: Name, asked: ImportOptions, dry_run: DryRun = False, *, session: ReportSession) -> None:
    """Import weights in the format of Hugging Face, such as those that a run has made, from a folder of S3."""
    session.show_answer(api.bedrock_import(name, asked, dry_run=dry_run, settings=session.settings))


@commands.command("provision", short_help="Hold throughput for a model, for some hours")
def provision(name: Name, asked: ProvisionOptions, dry_run: DryRun = False, *, session: ReportSession) -> None:
    """Hold provisioned throughput, without commitment, for --hours.

    A schedule of EventBridge that deletes it is made first, so that nothing stays billed when this machine is gone.
    Exit code 4: it costs more than --max-cost, or its price is not known.
    """
    session.show_answer(api.bedrock_provision(name, asked, dry_run=dry_run, settings=session.settings))


@commands.command("list", short_help="All of this home at Bedrock")
def list_things(asked: BedrockAccount, *, session: ReportSession) -> None:
    """List jobs, imports and throughput that bear this home's mark, with their states and ends."""
    session.show_answer(api.bedrock_list(asked, settings=session.settings))


@commands.command("end", short_help="Stop jobs, delete throughput")
def end(
    asked: BedrockAccount,
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help="As they were named.")] = None,
    due: Annotated[bool, typer.Option("--due", help="All throughput whose time is over.")] = False,
    *,
    session: ReportSession,
) -> None:
    """Stop customisation jobs and delete throughput, with the schedule that would have deleted it."""
    session.show_answer(api.bedrock_end(names or (), asked, due=due, settings=session.settings))
