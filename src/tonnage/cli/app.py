"""All verbs in one typer application. A verb's module is imported when it is asked for; what it needs, when it runs.

Building every verb's options takes a tenth of a second, so a command line that names a verb builds that one alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Annotated, Any, Final, NamedTuple

import typer

from tonnage import __version__
from tonnage.cli.declared import Commands


class Verb(NamedTuple):
    """One verb: the place of its function (or its group, `commands`) in this package, and its line in the help."""

    name: str
    module: str
    attribute: str
    short_help: str


VERBS: Final = (
    Verb("size", "size", "size", "Show what a workload needs and on which GPUs it fits"),
    Verb("plan", "plan", "plan", "Rank every way to buy what a workload needs"),
    Verb("explain", "explain", "explain", "Show why the winner won and each other option lost"),
    Verb("breakeven", "breakeven", "breakeven", "Compare a fleet of your own with prices per token"),
    Verb("compare", "compare", "compare", "Compare platforms for your work; check a document"),
    Verb("diff", "diff", "diff", "Show what a change of files or prices costs a month"),
    Verb("init", "init", "init", "Write a starting point for a task: file, rows, a small model"),
    Verb("run", "carry_out", "run", "Run a workload on this machine"),
    Verb("sweep", "sweep", "sweep", "Run many trials and keep the best"),
    Verb("ps", "ps", "ps", "List runs and their states"),
    Verb("logs", "logs", "logs", "Show what a run prints"),
    Verb("stop", "stop", "stop", "Save a checkpoint and end a run"),
    Verb("cancel", "stop", "cancel", "End a run at once"),
    Verb("resume", "carry_out", "resume", "Continue a run"),
    Verb("show", "show", "show", "Show one run: predicted and measured figures"),
    Verb("evaluate", "predict", "evaluate", "Measure how good the finished model of a run is"),
    Verb("places", "places", "commands", "Where runs can be carried out: list, check, orphans"),
    Verb("bedrock", "bedrock", "commands", "Customise, import and hold models at Amazon Bedrock"),
    Verb("migrate", "migrate", "migrate", "Show a run of one place as another's: changes, copies, steps, cost"),
    Verb("predict", "predict", "predict", "Apply the finished model of a run to each row"),
    Verb("budgets", "budgets", "commands", "What teams may spend: limits, reserved, spent, left"),
    Verb("runs", "runs", "commands", "List, compare, export and delete runs"),
    Verb("serve", "serve", "commands", "Serve a model as it was planned; simulate scaling"),
    Verb("gateway", "gateway", "commands", "One address for own models and token APIs, within budgets"),
    Verb("watch", "watch", "commands", "Look after what runs: alerts that act, history, audit"),
    Verb("ui", "ui", "commands", "Open a page on runs, plans and prices; keys for its API"),
    Verb("login", "login", "login", "Keep a server and its key for the Python client"),
    Verb("logout", "login", "logout", "Forget the server and its key"),
    Verb("mcp", "mcp", "mcp", "Answer agents by the Model Context Protocol"),
    Verb("rightsize", "rightsize", "rightsize", "Find cheaper machines for measured use"),
    Verb("gains", "gains", "gains", "Show what promised gains come to for a workload"),
    Verb("prepare", "prepare", "prepare", "Join, window, encode and tokenise rows; Delta and Parquet"),
    Verb("optimise", "optimise", "optimise", "Show what to switch on for a workload, predicted and measured"),
    Verb("catalog", "catalog", "commands", "List GPUs, machines, prices and model shapes"),
    Verb("validate", "calibrate", "validate", "Compare predictions with a table of measured runs"),
    Verb("calibrate", "calibrate", "calibrate", "Fit the physical parameters to measured runs"),
    Verb("fetch", "fetch", "fetch", "Download and verify models and data sets"),
    Verb("spot", "spot", "commands", "Plan spot under a deadline: replay, fit, advise"),
    Verb("pipeline", "pipeline", "commands", "Run steps in order, cached and resumed"),
    Verb("batch", "batch", "batch", "Carry requests through a service, each answered once"),
    Verb("bench", "bench", "commands", "Compare engines on the same work; load a running service"),
    Verb("deploy", "deploy", "commands", "Keep services running; update them, and roll back"),
    Verb("image", "image", "commands", "Build a container image that carries out a workload"),
    Verb("backup", "backup", "commands", "Write the home to one file, verified; restore it"),
    Verb("restore", "backup", "restore", "Put a backup where the home is to be"),
    Verb("audit", "audit", "commands", "Show what was done, and whether any of it was changed"),
    Verb("compliance", "compliance", "compliance", "Say what is true of this installation, for auditors"),
    Verb("config", "config", "commands", "Show the settings and where each comes from"),
    Verb("doctor", "doctor", "doctor", "Check this installation"),
)
_HELP: Final = "Which hardware, on which platform, bought how, and will it hold?"


def build_app(only: str | None = None) -> typer.Typer:
    """The application, of all verbs or of the one named."""
    app = Commands(
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
