"""`tonnage gateway FILE` and its subcommands: explain, simulate, spend, budgets, top, key."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from tonnage import api
from tonnage.api.answers import Answer
from tonnage.api.gateway import GatewayTopOptions
from tonnage.api.gateway_accounts import (
    GatewayReconcileOptions,
    GatewaySimulateOptions,
    GatewaySpendOptions,
    read_labels,
)
from tonnage.api.question_pairs import GatewaySimilarOptions
from tonnage.cli.declared import Commands, ReportSession, StartGroup, completing

File = Annotated[
    Path, typer.Argument(metavar="FILE", help="A gateway file, YAML; its keys: docs/gateway.md.", show_default=False)
]


commands = Commands(
    cls=StartGroup,
    no_args_is_help=True,
    rich_markup_mode=None,
    help="One address for own models and token APIs: `tonnage gateway FILE` is `tonnage gateway start FILE`.",
)


def complete_group(incomplete: str) -> list[str]:
    return [
        name for name in ("key", "team", "project", "route", "deployment", "outcome") if name.startswith(incomplete)
    ]


def complete_policy(incomplete: str) -> list[str]:
    return [
        name for name in ("in-order", "own-first", "cheapest", "fastest", "weighted") if name.startswith(incomplete)
    ]


def complete_sort(incomplete: str) -> list[str]:
    return [name for name in ("requests", "in-flight", "p95", "tokens", "usd", "name") if name.startswith(incomplete)]


@commands.command("start", short_help="Start the gateway that a file describes")
def start(
    file: File,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check the file and show it; start nothing.")] = False,
    *,
    session: ReportSession,
) -> None:
    """Serve OpenAI's and Anthropic's APIs over the deployments of a file, within its budgets and limits.

    SIGHUP reads the file again without a failed request; Ctrl-C answers what is under way, then ends.
    """
    if dry_run:
        session.show_answer(api.check_gateway(file, settings=session.settings))
        return

    def begin(port: int) -> None:
        session.say(f"http://127.0.0.1:{port}/v1 takes requests; its ledger: tonnage gateway spend {file}")

    raise typer.Exit(api.open_gateway(file, settings=session.settings, say=session.say, on_begin=begin))


@commands.command("explain", short_help="Say what would happen to a request, and why")
def explain(
    file: File,
    request: Annotated[
        Path, typer.Argument(metavar="REQUEST", help="A JSON body as a client sends it.", show_default=False)
    ],
    key: Annotated[
        str | None, typer.Option("--key", help="The name of the key that it is sent with.", metavar="NAME")
    ] = None,
    surface: Annotated[
        str, typer.Option("--surface", help="chat, completions, responses, embeddings or messages.")
    ] = "chat",
    label: Annotated[
        list[str] | None,
        typer.Option(
            "--label",
            metavar="CLASSIFIER=LABEL",
            show_default=False,
            help="What a classifier is supposed to say, as none is asked; may be repeated.",
        ),
    ] = None,
    *,
    session: ReportSession,
) -> None:
    """Show which deployments a request would be tried at, in which order, what it would hold and what would refuse it.

    Nothing is sent. Budgets and times to the first byte are read from the gateway's ledger as it is now.
    """
    labels = read_labels("--label", label or [])
    answer = api.explain_request(file, request, key=key, surface=surface, labels=labels, settings=session.settings)
    session.show_answer(answer)


@commands.command("simulate", short_help="Replay a log against another policy: cost, latency, refusals")
def simulate(
    file: File,
    asked: Annotated[GatewaySimulateOptions, completing(policy=complete_policy)],
    log: Annotated[
        Path | None,
        typer.Argument(
            metavar="[LOG]",
            help="A request log or its folder; CSV. [default: the gateway's ledger]",
            show_default=False,
        ),
    ] = None,
    *,
    session: ReportSession,
) -> None:
    """Replay requests against the routes of a file: what they would cost and take, and what would refuse them.

    Nothing is sent. A log without requests is bad input, exit 2.
    """
    session.show_answer(api.simulate_gateway(file, log, asked, settings=session.settings))


@commands.command("similar", short_help="Measure how safe a semantic cache is, on pairs of questions")
def similar(
    file: File,
    pairs: Annotated[
        Path, typer.Argument(metavar="PAIRS", help="CSV of questions: text, other, same (1 or 0).", show_default=False)
    ],
    asked: GatewaySimilarOptions,
    *,
    session: ReportSession,
) -> None:
    """Ask a route's model of embeddings for pairs of questions: which similarity finds those of one meaning, and how
    often it takes two for one.

    Say with `same` whether one answer serves both. The requests cost what the deployment costs, and are in the ledger.
    """
    session.show_answer(api.gateway_similarity(file, pairs, asked, settings=session.settings))


@commands.command("spend", short_help="Add up what was spent, by team, key, route ...")
def spend(
    file: File,
    asked: Annotated[GatewaySpendOptions, completing(by=complete_group)],
    *,
    session: ReportSession,
) -> None:
    """Add up the attempts of the ledger: dollars to the pico, tokens, and how much of it is an estimate."""
    session.show_answer(api.gateway_spend(file, asked, settings=session.settings))


@commands.command("budgets", short_help="Show budgets, and when they will be reached")
def budgets(file: File, *, session: ReportSession) -> None:
    """Show each budget of a file: what is spent in its present day or month, the rate of the last hour or day, and when
    it will be reached at that rate. `!` marks a warning.

    The gateway samples what is spent while it runs; after a few minutes a rate is known.
    """
    session.show_answer(api.gateway_budgets(file, settings=session.settings))


@commands.command("rotate", short_help="Wrap the keys of what is kept with a new key")
def rotate(
    file: File,
    before: Annotated[
        str | None,
        typer.Option("--from", metavar="REFERENCE", show_default=False,
                     help="The key that wraps them so far. Default: the one in the file, for a new data key alone."),
    ] = None,
    *,
    session: ReportSession,
) -> None:  # fmt: skip
    """Wrap the data keys with the key that `encrypt.key` names now, and make a new one for what is kept from now on.

    Nothing that is kept is written again: the older data keys open it. A running gateway goes on with the keys it has;
    SIGHUP has it take the new one.
    """
    count = api.rotate_gateway_keys(file, before=before, settings=session.settings, say=session.say)
    session.say(f"{count} data keys, wrapped with the key in {file}; SIGHUP has a gateway that runs take the newest. "
                "With its key in a variable (env:) it keeps that of its start: restart it then")  # fmt: skip


@commands.command("log", short_help="Print a file of the request log with its bodies in the clear")
def log(
    file: File,
    lines: Annotated[Path, typer.Argument(metavar="LOG", help="A file of the request log.", show_default=False)],
    *,
    session: ReportSession,
) -> None:
    """Print the lines of a file of the request log; bodies that are encrypted are opened with `encrypt.key`."""
    for line in api.read_request_log(file, lines, settings=session.settings):
        typer.echo(line)


@commands.command("key", short_help="Make a key, and the hash that stands for it in the file")
def key() -> None:
    """Print a new key, once, and the line for `keys:` in the gateway file; neither is kept."""
    made, hashed = api.gateway_key()
    typer.echo(made)
    typer.echo(f"key: {hashed}", err=True)


@commands.command("import", short_help="Turn LiteLLM's config.yaml into a gateway file")
def import_file(
    file: Annotated[
        Path, typer.Argument(metavar="CONFIG", help="The file that `litellm --config` takes.", show_default=False)
    ],
) -> None:
    """Print the gateway file that says the same; what has no counterpart is reported on stderr.

    Keys that are in the file itself are not taken over: name them as env:NAME.
    """
    text, notes = api.import_litellm(file)
    for note in notes:
        typer.echo(f"note: {note}", err=True)
    typer.echo(text, nl=False)


@commands.command("top", short_help="Watch a running gateway: rates, times, money, budgets")
def top(
    target: Annotated[
        str, typer.Argument(metavar="FILE|URL", help="Its gateway file, or where it shows figures.", show_default=False)
    ],
    asked: Annotated[GatewayTopOptions, completing(sort=complete_sort)],
    *,
    session: ReportSession,
) -> None:
    """Show what a running gateway does, by deployment, route and key, refreshed every few seconds; Ctrl-C ends it.

    Where stdout is no terminal, or with `-o`, the first interval is printed and that is all.
    """
    answers = api.gateway_top(target, asked, settings=session.settings)
    if sys.stdout.isatty() and not session.form_given:
        shown_on_a_screen(answers)
    else:
        session.show_answer(next(answers))


@commands.command("reconcile", short_help="Compare the ledger with a provider's bill")
def reconcile(
    file: File,
    asked: GatewayReconcileOptions,
    bill: Annotated[
        Path,
        typer.Argument(metavar="BILL", help="Costs or usage as OpenAI, Anthropic or AWS export them; FOCUS.",
                       show_default=False),
    ],
    *,
    session: ReportSession,
) -> None:  # fmt: skip
    """Show the ledger beside a bill, by day and model: the gap, and what can explain it.

    Exit code 1: a gap is beyond the tolerance.
    """
    session.show_answer(api.reconcile_gateway(file, bill, asked, settings=session.settings))


def shown_on_a_screen(answers: Iterable[Answer[Any]]) -> None:
    """Until Ctrl-C; the terminal is as it was before then."""
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    from tonnage.reports.rendering import Look, render_report

    console = Console()
    color = not console.no_color and console.color_system is not None
    with suppress(KeyboardInterrupt), Live(console=console, screen=True, auto_refresh=False) as live:
        for one in answers:
            text = render_report(one.report(), "table", Look(width=console.width, color=color))
            live.update(Text.from_ansi(text), refresh=True)
