"""`tonnage runs`: the index of runs and their measurements: list, compare, reindex, export, import, sync,
register."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tonnage.api.home_runs import all_runs, find_run, keep_rows
from tonnage.cli import options
from tonnage.cli.declared import Commands, QuietSession, ReportSession
from tonnage.cli.options import complete_run
from tonnage.cli.streams import write_stdout
from tonnage.errors import InputError, TonnageError, did_you_mean, nearest

if TYPE_CHECKING:
    from tonnage.calibration.columns import FactTable
    from tonnage.cli.session import Session

commands = Commands(no_args_is_help=True, help="The index of runs, and what they measured.")

Table = Annotated[
    str, typer.Option("--table", metavar="NAME", help="training or inference: which columns the file has.")
]


@commands.command("list", short_help="Runs of the index, the newest first")
def list_runs(
    state: Annotated[str | None, typer.Option("--state", metavar="STATE", help="Only runs in this state.")] = None,
    top: options.ListTop = None,
    *,
    session: ReportSession,
) -> None:
    """List the runs of the index (which may be a database that many machines share), the newest first."""
    from tonnage.reports.run_lists import runs_list
    from tonnage.runs.states import RunStatus
    from tonnage.store import open_store

    known = [one.value for one in RunStatus]
    if state is not None and state not in known:
        hint = did_you_mean(nearest(state, known, count=1), f"states: {', '.join(known)}")
        raise InputError(f"no state is named '{state}'", hint=hint)
    with open_store(session.settings.database_url) as store:
        found = store.runs(state=state)
    session.show(runs_list(found, database=session.settings.shown("database_url"), top=top))


@commands.command("compare", short_help="Runs side by side")
def compare_runs(
    runs: Annotated[
        list[str],
        typer.Argument(metavar="RUN RUN...", autocompletion=complete_run, help="Two or more.", show_default=False),
    ],
    *,
    session: ReportSession,
) -> None:
    """Compare runs: different settings, quality, speed, memory, cost, loss."""
    from tonnage.reports.run_comparison import comparison_report
    from tonnage.runs.summary import summarise

    if len(runs) < 2:
        raise InputError("one run is not compared with anything", hint="name two or more: `tonnage runs compare A B`")
    session.show(comparison_report([summarise(find_run(session.settings, name)) for name in runs]))


@commands.command("reindex", short_help="Rebuild the index from the folders of runs")
def reindex(
    *,
    session: QuietSession,
) -> None:
    """Read every run folder at home into the index, with what each measured. Run folders are never changed."""
    from tonnage.reports.wording import plural
    from tonnage.runs.folder import RunFolder
    from tonnage.store import open_store

    broken: list[tuple[RunFolder, str]] = []
    runs = rows = 0
    with open_store(session.settings.database_url) as store, session.progress("reading run folders"):
        for folder in all_runs(session.settings):
            try:
                store.index_run(folder)
                rows += keep_rows(store, folder)
                runs += 1
            except (InputError, ValueError, OSError) as error:
                broken.append((folder, getattr(error, "message", str(error))))
    session.say(f"{plural(runs, 'run')} indexed, {plural(rows, 'measurement')} new")
    for folder, why in broken:
        session.say(f"left out: {folder.path.name}: {why}")
    if broken:
        raise TonnageError(f"{plural(len(broken), 'run folder')} could not be read", hint="the others are in the index")


@commands.command("export", short_help="Measurements as a file of facts")
def export(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Where to write; `-` is stdout.", show_default=False)],
    table: Table = "training",
    run: Annotated[
        str | None,
        typer.Option("--run", metavar="RUN", autocompletion=complete_run, help="Only what this run measured."),
    ] = None,
    *,
    session: QuietSession,
) -> None:
    """Write measurements in the columns of the facts, as `tonnage validate` and `calibrate` read them."""
    from tonnage.calibration.columns import FACT_COLUMNS
    from tonnage.calibration.fact_files import dump_facts
    from tonnage.files import save_for_user
    from tonnage.store import open_store

    name = _table(table)
    with open_store(session.settings.database_url) as store:
        rows = store.measurements(name, **({} if run is None else {"run": run}))
    text = dump_facts(tuple(rows[0]) if rows else FACT_COLUMNS[name], rows)
    if str(file) == "-":
        write_stdout(text)
        return
    save_for_user(file, text)
    session.say(f"{len(rows)} rows written to {file}")


@commands.command("import", short_help="Measurements from a file of facts")
def import_rows(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file in the columns of the facts.")],
    *,
    session: QuietSession,
) -> None:
    """Add measurements of a file to the store. Rows that it already holds are left out."""
    from tonnage.calibration.fact_files import load_facts
    from tonnage.store import open_store

    table, rows = load_facts(file)
    with open_store(session.settings.database_url) as store, session.progress(f"reading {len(rows)} rows"):
        added = store.add_measurements(rows, table=table)
    session.say(f"{added} of {len(rows)} rows were new ({table})")


@commands.command("rm", short_help="Delete ended runs, or their checkpoints")
def remove(
    runs: Annotated[
        list[str] | None,
        typer.Argument(metavar="RUN...", autocompletion=complete_run, help="Their names.", show_default=False),
    ] = None,
    older_than: Annotated[
        str | None,
        typer.Option("--older-than", metavar="DURATION", help="All that ended so long ago: 30d.", show_default=False),
    ] = None,
    keep: Annotated[
        int | None,
        typer.Option("--keep", metavar="N", min=0, help="All but the N that ended last.", show_default=False),
    ] = None,
    checkpoints: Annotated[
        bool, typer.Option("--checkpoints", help="Only the checkpoints of runs that succeeded; all else stays.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would go; delete nothing.")] = False,
    yes: Annotated[bool, typer.Option("-y", "--yes", help="Without asking.")] = False,
    *,
    session: QuietSession,
) -> None:
    """Delete runs: folder, checkpoints and model, and their entries in the index. What they measured stays.

    A run that is under way, lost or held by a process is never deleted.
    """
    from tonnage.cli.removing import choose, delete, size_of
    from tonnage.reports.wording import plural

    chosen = choose(session.settings, runs or [], older_than=older_than, keep=keep, checkpoints=checkpoints)
    for path in chosen:
        write_stdout(f"{path}  {size_of(path) / 2**20:,.1f} MiB\n")
    if dry_run or not chosen:
        session.say("nothing was deleted")
        return
    if not yes and not typer.confirm(f"delete {plural(len(chosen), 'folder')}?", err=True):
        raise typer.Exit(4)
    delete(session.settings, chosen)
    session.say(f"{plural(len(chosen), 'folder')} deleted")


@commands.command("sync", short_help="Send to MLflow what it has not yet")
def sync(
    run: Annotated[
        str | None,
        typer.Argument(metavar="[RUN]", autocompletion=complete_run, help="One run; else all.", show_default=False),
    ] = None,
    *,
    session: QuietSession,
) -> None:
    """Send parameters, metrics, files and models of runs to MLflow that it has not got yet. Nothing is sent twice."""
    folders = [find_run(session.settings, run)] if run is not None else list(all_runs(session.settings))
    for folder in folders:
        _sync_one(session, folder)
    session.say(f"{len(folders)} runs are in MLflow as far as they have come")


@commands.command("register", short_help="A finished model into the registry")
def register(
    run: Annotated[str, typer.Argument(metavar="RUN", autocompletion=complete_run, help="A run's name.")],
    name: Annotated[str, typer.Option("--as", metavar="NAME", help="The model's name there.", show_default=False)],
    alias: Annotated[
        str | None, typer.Option("--alias", metavar="ALIAS", help="Points to this version now.", show_default=False)
    ] = None,
    *,
    session: ReportSession,
) -> None:
    """Put the finished model of a run into MLflow's registry, with its signature.

    A model whose files are the same as those of a version under that name is not stored again: that version gets the
    alias.
    """
    from tonnage.http.urls import without_secrets
    from tonnage.recipes.trained import finished_folder
    from tonnage.reports.answers import registration_report
    from tonnage.runs.secrets import recall_secrets
    from tonnage.tracking import Tracker, tracking_uri

    folder = find_run(session.settings, run)
    finished_folder(folder)
    spec = folder.spec()
    recall_secrets(spec)
    uri = tracking_uri(spec, session.settings.home)
    with session.progress(f"registering {run}"):
        found = Tracker(spec, folder, uri).register(name, alias)
    values = {"run": run, "name": name, "version": found.version, "alias": alias, "new": found.new}
    session.show(registration_report({**values, "registry": without_secrets(uri)}))


def _sync_one(session: Session, folder: object) -> None:
    from tonnage.runs.folder import RunFolder
    from tonnage.runs.secrets import recall_secrets
    from tonnage.tracking import Tracker, tracking_uri

    assert isinstance(folder, RunFolder)
    spec = folder.spec()
    recall_secrets(spec)
    tracker = Tracker(spec, folder, tracking_uri(spec, session.settings.home))
    tracker.sync()
    if folder.state().state.ended:
        tracker.finish()


def _table(name: str) -> FactTable:
    from tonnage.calibration.columns import FACT_COLUMNS

    for table in FACT_COLUMNS:
        if table == name:
            return table
    raise InputError(f"no table of facts is named '{name}'", hint="training or inference")
