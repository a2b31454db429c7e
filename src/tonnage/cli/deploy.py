"""`tonnage deploy`: files that keep a command running, updates that roll back by themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tonnage import api
from tonnage.api.deploying import KINDS, DeployOptions
from tonnage.api.reading import read_seconds
from tonnage.api.service_updates import ServiceUpdateOptions
from tonnage.cli.declared import Commands, ReportSession, completing
from tonnage.errors import InputError

commands = Commands(no_args_is_help=True, help="Keep services running; update them without a failed request.")
Service = Annotated[str, typer.Argument(metavar="NAME", help="A service that runs here.", show_default=False)]


def complete_kind(incomplete: str) -> list[str]:
    return [name for name in KINDS if name.startswith(incomplete)]


def check_command(args: list[str]) -> None:
    """Read the arguments of a command of Tonnage as the command itself would, without carrying it out.

    InputError for what it would refuse: a misspelt option, one without its value, an argument too many. Files that are
    not here are no fault: they are those of the machine that it will run on.
    """
    from typer.main import get_command

    from tonnage.cli.app import VERBS, build_app

    if not args or args[0] not in {verb.name for verb in VERBS}:
        return  # what can be deployed is said by whoever writes the files
    whole = get_command(build_app(args[0]))
    try:
        context = whole.make_context("tonnage", list(args))
        while hasattr(context.command, "resolve_command"):
            rest = [*getattr(context, "_protected_args", []), *context.args]
            if not rest:  # a group that does something by itself
                break
            name, inner, rest = context.command.resolve_command(context, rest)
            context = inner.make_context(name, rest, parent=context)
    except typer.Exit as error:  # it showed its help
        raise InputError(
            f"tonnage {' '.join(args)}: it shows its help and ends", hint="say what it is to do"
        ) from error
    except Exception as error:
        if not hasattr(error, "format_message"):  # typer's usage errors have it, under every version's own name
            raise
        message: str = error.format_message()
        if isinstance(error, typer.BadParameter) and "exist" in message:
            return
        raise InputError(
            f"tonnage {' '.join(args)}: {message}", hint=f"tonnage {args[0]} --help lists its options"
        ) from error


@commands.command("files", short_help="Write units, a Compose file or manifests")
def files(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Of the unit or container.", show_default=False)],
    args: Annotated[
        list[str],
        typer.Argument(metavar="-- COMMAND…", help="serve, ui, gateway, watch or backup with their arguments.",
                       show_default=False),
    ],
    asked: Annotated[DeployOptions, completing(kind=complete_kind)],
    to: Annotated[Path, typer.Option("--to", metavar="FOLDER", help="Where the files are written.")] = Path("deploy"),
    *,
    session: ReportSession,
) -> None:  # fmt: skip
    """Write the files that keep a command of Tonnage running: its version pinned, health and smoke test, restarts.

    `tonnage deploy files reviews --as systemd --to units -- serve run-7 --replicas 2..4`. Units are checked by
    systemd-analyze where it is, manifests by the rules of an API server.
    """
    check_command(args)
    session.show_answer(api.deploy_files(name, args, to, asked))


@commands.command("check", short_help="Wait until a service is well")
def check(
    url: Annotated[str, typer.Argument(metavar="URL", help="Of the service.", show_default=False)],
    smoke: Annotated[
        str | None, typer.Option("--smoke", metavar="FILE", help='A request that must be answered with 200.')
    ] = None,
    timeout: Annotated[str, typer.Option("--timeout", metavar="TIME", help="How long to wait.")] = "60s",
    *,
    session: ReportSession,
) -> None:  # fmt: skip
    """Ask a service until it is ready, then its smoke test. Exit code 1: it is not well in time."""
    session.show_answer(api.check_deployed(url, smoke=smoke, timeout_s=read_seconds("--timeout", timeout)))


@commands.command("update", short_help="Put another version on trial, then in place")
def update(
    name: Service,
    target: Annotated[
        str, typer.Argument(metavar="TARGET", help="What to serve, as `tonnage serve` takes it.", show_default=False)
    ],
    asked: ServiceUpdateOptions,
    *,
    session: ReportSession,
) -> None:
    """Replace a service's replicas by those of another target. The first one is on trial for its share of requests.

    Its errors are answered by the old version. It goes back by itself where too many fail or its 95th percentile is
    above the old version's, a limit, or the predicted band. Exit code 1: the old version stays.
    """
    with session.progress("on trial"):
        answer = api.update_service(name, target, asked, settings=session.settings)
    session.show_answer(answer)


@commands.command("rollback", short_help="Go back to the version before")
def rollback(name: Service, asked: ServiceUpdateOptions, *, session: ReportSession) -> None:
    """Put the version before the present one on trial, then in its place."""
    with session.progress("on trial"):
        answer = api.rollback_service(name, asked, settings=session.settings)
    session.show_answer(answer)
