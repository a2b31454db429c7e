"""`tonnage places`: where runs can be carried out, whether they could be now, what was left behind there."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tonnage import api
from tonnage.api.bundling import BundleOptions
from tonnage.api.disk_filling import FillOptions
from tonnage.cli import options
from tonnage.cli.carry_out import Run
from tonnage.cli.declared import Commands, QuietSession, ReportSession
from tonnage.cli.running import ReportedExit

commands = Commands(no_args_is_help=True, help="Where runs can be carried out: places.toml at home or in the project.")


@commands.command("list", short_help="Every place that is configured")
def list_places(
    *,
    session: ReportSession,
) -> None:
    """List the places of the nearest places.toml and of that at home; nothing is asked of them."""
    session.show_answer(api.places(settings=session.settings))


@commands.command("check", short_help="Ask a place whether it could carry a run")
def check(
    place: Annotated[str, typer.Argument(metavar="PLACE", help="NAME or KIND:NAME.")],
    *,
    session: ReportSession,
) -> None:
    """Ask a place for access, partition, devices, limits; start nothing. Exit code 4: a run would be refused there."""
    session.show_answer(api.check_place(place, settings=session.settings))


@commands.command("terraform", short_help="Write what a place needs, as Terraform files")
def terraform(
    place: Annotated[str, typer.Argument(metavar="PLACE", help="NAME or KIND:NAME.")],
    to: Annotated[Path, typer.Option("--to", metavar="FOLDER", help="Where the files are written.")] = Path(
        "terraform"
    ),
    nat: Annotated[
        bool, typer.Option("--nat", help="With a way to the internet: runs read hf:// or an image of another registry.")
    ] = False,
    *,
    session: ReportSession,
) -> None:
    """Write Terraform files for network, bucket and roles of a place at AWS, Google or Azure; nothing is asked."""
    session.show_answer(api.place_terraform(place, to, nat=nat, settings=session.settings))


@commands.command("fill", short_help="Fill the disks that a place's machines read")
def fill(
    place: Annotated[str, typer.Argument(metavar="PLACE", help="NAME or KIND:NAME.")],
    asked: FillOptions,
    *,
    session: ReportSession,
) -> None:
    """Fetch the content of a place's disks on a machine without GPUs, and switch them to be read by many.

    The same command after a cut, Ctrl-C or kill goes on: nothing is made or fetched twice.
    """
    session.show_answer(api.fill_place(place, asked, settings=session.settings, say=session.say))


@commands.command("orphans", short_help="Find jobs that no run waits for")
def orphans(
    end: Annotated[bool, typer.Option("--end", help="End them.")] = False,
    *,
    session: ReportSession,
) -> None:
    """Find jobs of this home, at every place, that no run waits for: of removed, ended or resubmitted runs."""
    session.show_answer(api.orphans(end=end, settings=session.settings))


@commands.command(
    "exec", short_help="Run a command where a run runs", context_settings={"allow_interspersed_args": False}
)
def exec_command(
    run: Run,
    command: Annotated[list[str], typer.Argument(metavar="COMMAND...", help="The command and its arguments.")],
    *,
    session: QuietSession,
) -> None:
    """Run a command on the machine where a run runs, in the run's folder there; the exit code is the command's."""
    raise typer.Exit(ReportedExit(api.exec_in_run(run, command, settings=session.settings)))


@commands.command("bundle", short_help="A workload as a Databricks Asset Bundle")
def bundle(
    file: options.File,
    asked: BundleOptions,
    into: Annotated[
        str | None, typer.Option("--into", metavar="FOLDER", help="Write the files there.", show_default=False)
    ] = None,
    *,
    session: ReportSession,
) -> None:
    """Render a workload file and a place as an asset bundle: job, cluster, pool, policy, model, volume, endpoint.

    Each resource is held to Databricks' own models. Nothing is asked of the workspace: the `databricks` command deploys
    what --into has written.
    """
    if into is not None:
        for path in api.write_bundle(into, file, asked, settings=session.settings):
            session.say(f"wrote {path}")
    session.show_answer(api.places_bundle(file, asked, settings=session.settings))


@commands.command("collect", short_help="Bring here all that a run has made")
def collect(
    run: Run,
    teardown: Annotated[bool, typer.Option("--teardown", help="Then remove all of an ended run at its place.")] = False,
    *,
    session: ReportSession,
) -> None:
    """Bring a run's journal, log, measurements, checkpoints and model here from its place; each file is verified."""
    session.show_answer(api.collect_run(run, teardown=teardown, settings=session.settings))
