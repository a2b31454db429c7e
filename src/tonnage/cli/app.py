"""All verbs in one typer application. A verb's module is imported when it is asked for; what it needs, when it runs.

Building every verb's options takes a tenth of a second, so a command line that names a verb builds that one alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Annotated, Any, Final, NamedTuple

import typer


class Verb(NamedTuple):
    """One verb: where its function (or its group, `commands`) stands in this package, and its line in the help."""

    name: str
    module: str
    attribute: str
    short_help: str


VERBS: Final = (
    Verb("size", "size", "size", "What a workload needs, on which GPUs it fits"),
    Verb("plan", "plan", "plan", "Rank every way to buy what it needs"),
    Verb("explain", "explain", "explain", "Why the winner won and each loser lost"),
    Verb("breakeven", "breakeven", "breakeven", "A service's own fleet beside prices per token"),
    Verb("compare", "compare", "compare", "Platforms compared for one's own work; documents checked"),
    Verb("diff", "diff", "diff", "What a change costs a month: of files, of prices"),
    Verb("init", "init", "init", "Write a starter for a task: file, rows, a small model"),
    Verb("run", "carry_out", "run", "Carry a workload out on this machine"),
    Verb("sweep", "sweep", "sweep", "Many trials of a run, by the best figure"),
    Verb("ps", "ps", "ps", "Runs and where they stand"),
    Verb("logs", "logs", "logs", "What a run prints"),
    Verb("stop", "stop", "stop", "Let a run save and end"),
    Verb("cancel", "stop", "cancel", "End a run at once"),
    Verb("resume", "carry_out", "resume", "Go on with a run"),
    Verb("show", "show", "show", "One run in full: predicted beside measured"),
    Verb("evaluate", "evaluate", "evaluate", "How good the finished model of a run is"),
    Verb("predict", "predict", "predict", "What the finished model of a run says of each row"),
    Verb("runs", "runs", "commands", "The index of runs, and what they measured"),
    Verb("rightsize", "rightsize", "rightsize", "Cheaper machines for what measured use needs"),
    Verb("catalog", "catalog_verbs", "commands", "GPUs, machines, prices, model shapes"),
    Verb("validate", "validate", "validate", "Predicted beside measured, on a table of runs"),
    Verb("calibrate", "calibrate", "calibrate", "Fit the physical parameters to measured runs"),
    Verb("fetch", "fetch", "fetch", "Models and data sets brought here, verified"),
    Verb("spot", "spot", "commands", "Spot under a deadline: replay, fit, advise"),
    Verb("pipeline", "pipeline", "commands", "Steps that follow one another, cached and resumed"),
    Verb("config", "config", "commands", "Which settings hold, and from where"),
    Verb("doctor", "doctor", "doctor", "Check this installation"),
)
_HELP: Final = "Which hardware, on which platform, bought how, and will it hold?"


def build_app(only: str | None = None) -> typer.Typer:
    """The application, of all verbs or of the one named."""
    app = typer.Typer(
        name="tonnage",
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
        help=_HELP,
        epilog="Exit codes: 0 done, 1 failed, 2 bad input, 3 nothing fits, 4 refused, 5 preempted, 130 interrupted.",
    )
    app.callback(help=_HELP)(root)
    for verb in VERBS:
        if only in (None, verb.name):
            _add(app, verb)
    return app


def asked_verb(arguments: Sequence[str]) -> str | None:
    """The verb that a command line names; None where it names none that there is.

    >>> asked_verb(["plan", "bert.tonnage.yaml"]), asked_verb(["--help"]), asked_verb(["plna"])
    ('plan', None, None)
    """
    first = arguments[0] if arguments else None
    return first if any(first == verb.name for verb in VERBS) else None


def _version(asked: bool) -> None:
    if asked:
        from tonnage import __version__

        typer.echo(f"tonnage {__version__}")
        raise typer.Exit


def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """The options before the verb."""


def _add(app: typer.Typer, verb: Verb) -> None:
    found: Any = getattr(import_module(f"tonnage.cli.{verb.module}"), verb.attribute)
    if isinstance(found, typer.Typer):
        app.add_typer(found, name=verb.name, short_help=verb.short_help)
    else:
        app.command(verb.name, short_help=verb.short_help)(found)
