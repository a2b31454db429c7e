"""All verbs in one typer application. What a verb needs is imported when it runs."""

from __future__ import annotations

from typing import Annotated

import typer

from tonnage.cli import (
    breakeven,
    calibrate,
    carry_out,
    catalog,
    catalog_import,
    catalog_refresh,
    compare,
    config,
    doctor,
    evaluate,
    explain,
    fetch,
    init,
    logs,
    pipeline,
    plan,
    predict,
    ps,
    rightsize,
    runs,
    show,
    size,
    snapshots,
    spot,
    stop,
    validate,
)

app = typer.Typer(
    name="tonnage",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    help="Which hardware, on which platform, bought how, and will it hold?",
    epilog="Exit codes: 0 done, 1 failed, 2 bad input, 3 nothing fits, 4 refused, 5 preempted, 130 interrupted.",
)


def _version(asked: bool) -> None:
    if asked:
        from tonnage import __version__

        typer.echo(f"tonnage {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Which hardware, on which platform, bought how, and will it hold?"""


app.command("size", short_help="What a workload needs, on which GPUs it fits")(size.size)
app.command("plan", short_help="Rank every way to buy what it needs")(plan.plan)
app.command("explain", short_help="Why the winner won and each loser lost")(explain.explain)
app.command("breakeven", short_help="A service's own fleet beside prices per token")(breakeven.breakeven)
app.command("compare", short_help="Platforms compared for one's own work; documents checked")(compare.compare)
app.command("init", short_help="Write a starter for a task: file, rows, a small model")(init.init)
app.command("run", short_help="Carry a workload out on this machine")(carry_out.run)
app.command("ps", short_help="Runs and where they stand")(ps.ps)
app.command("logs", short_help="What a run prints")(logs.logs)
app.command("stop", short_help="Let a run save and end")(stop.stop)
app.command("cancel", short_help="End a run at once")(stop.cancel)
app.command("resume", short_help="Go on with a run")(carry_out.resume)
app.command("show", short_help="One run in full: predicted beside measured")(show.show)
app.command("evaluate", short_help="How good the finished model of a run is")(evaluate.evaluate)
app.command("predict", short_help="What the finished model of a run says of each row")(predict.predict)
app.add_typer(runs.commands, name="runs", short_help="The index of runs, and what they measured")
app.command("rightsize", short_help="Cheaper machines for what measured use needs")(rightsize.rightsize)
catalog.commands.add_typer(
    catalog_import.commands, name="import", short_help="Newer prices into a snapshot of your own"
)
catalog.commands.command("refresh", short_help="Today's prices from every source")(catalog_refresh.refresh)
catalog.commands.command("diff", short_help="What moved between two snapshots")(snapshots.diff)
catalog.commands.command("snapshots", short_help="Snapshots at home and built in")(snapshots.snapshots)
app.add_typer(catalog.commands, name="catalog", short_help="GPUs, machines, prices, model shapes")
app.command("validate", short_help="Predicted beside measured, on a table of runs")(validate.validate)
app.command("calibrate", short_help="Fit the physical parameters to measured runs")(calibrate.calibrate)
app.command("fetch", short_help="Models and data sets brought here, verified")(fetch.fetch)
app.add_typer(spot.commands, name="spot", short_help="Spot under a deadline: replay, fit, advise")
app.add_typer(pipeline.commands, name="pipeline", short_help="Steps that follow one another, cached and resumed")
app.add_typer(config.commands, name="config", short_help="Which settings hold, and from where")
app.command("doctor", short_help="Check this installation")(doctor.doctor)
