"""`tonnage watch [FILE]` and its subcommands: check, replay, status, metrics, names, export, audit."""

from __future__ import annotations

from pathlib import Path
from threading import Event
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from tonnage import api
from tonnage.api.watch import WATCH_PORT, WatchOptions, WatchReplayOptions
from tonnage.cli.declared import Commands, QuietSession, ReportSession

Rules = Annotated[
    Path | None,
    typer.Argument(metavar="[FILE]", help="A watch file; its keys: docs/watch.md. [default: the default rules]",
                   show_default=False),
]  # fmt: skip


class WatchGroup(TyperGroup):
    """What names no command is watched: `watch FILE` is `watch start FILE`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """The arguments, with `start` put before what names no command."""
        if not args or args[0] not in (*self.commands, "-h", "--help"):
            args = ["start", *args]
        return super().parse_args(ctx, args)


commands = Commands(
    cls=WatchGroup,
    rich_markup_mode=None,
    help="Look after what runs: `tonnage watch [FILE]` is `tonnage watch start [FILE]`.",
)


@commands.command("start", short_help="Look after runs and services; act by rules")
def start(
    asked: WatchOptions,
    file: Rules = None,
    *,
    session: QuietSession,
) -> None:
    """Look at the runs of this home and the pages of a file every few seconds, keep the figures, and act by the rules.

    Without a file the default rules hold. Ctrl-C ends it; what fires then is remembered for the next start.
    """
    from tonnage.api.interrupting import terminations_interrupt

    stop = Event()
    with terminations_interrupt():
        session.say(f"watching {session.settings.home}; Ctrl-C ends it, `tonnage watch status` shows the alerts")
        try:
            api.open_watch(file, asked, settings=session.settings, say=session.say, stop=stop)
        except KeyboardInterrupt:
            session.say("watched until now")


@commands.command("check", short_help="Check a watch file and show its rules")
def check(
    file: Rules = None,
    *,
    session: ReportSession,
) -> None:
    """Show the rules as they are understood, the default ones among them. Rules that fight are refused, exit 2."""
    session.show_answer(api.check_watch(file))


@commands.command("replay", short_help="Say when rules would have fired, and what they would have done")
def replay(
    asked: WatchReplayOptions,
    file: Rules = None,
    *,
    session: ReportSession,
) -> None:
    """Play the figures that were kept against the rules of a file: alerts, actions, and what a stop would have saved.

    Nothing is done. Figures are kept while a watch runs.
    """
    session.show_answer(api.replay_watch(file, asked, settings=session.settings))


@commands.command("status", short_help="Show the alerts that are pending or fire")
def status(
    *,
    session: ReportSession,
) -> None:
    """Show the alerts as the watch last wrote them down."""
    session.show_answer(api.watch_status(settings=session.settings))


@commands.command("metrics", short_help="List the series that rules can look at")
def metrics(
    *,
    session: ReportSession,
) -> None:
    """List every series of which the watch has kept figures."""
    session.show_answer(api.watch_metrics(settings=session.settings))


@commands.command("names", short_help="List the names of all metrics, with units and meanings")
def names(
    *,
    session: ReportSession,
) -> None:
    """List every metric that runs, machines, services, gateways and homes can have: name, kind, unit, labels, meaning,
    and the metric that carries its prediction."""
    session.show_answer(api.list_metrics())


@commands.command("export", short_help="Write files for Prometheus and Grafana")
def export(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where to write.", show_default=False)],
    file: Rules = None,
    address: Annotated[
        str, typer.Option("--address", help="Where Prometheus finds the watch.", metavar="HOST:PORT")
    ] = f"127.0.0.1:{WATCH_PORT}",
    *,
    session: QuietSession,
) -> None:
    """Write prometheus.yml, rules.yml and grafana-dashboard.json: the same conditions, for tools a team has already."""
    for path in api.export_watch(file, folder, watch_address=address):
        session.say(f"wrote {path}")


@commands.command("audit", short_help="Show what was done, and check that no line was changed")
def audit(
    *,
    session: ReportSession,
) -> None:
    """Show every line of this home's audit. Exit code 4: a line was changed, or one was taken out."""
    session.show_answer(api.audit_lines(settings=session.settings))
