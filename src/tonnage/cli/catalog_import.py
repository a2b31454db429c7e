"""`tonnage catalog import`: newer prices into a dated snapshot of one's own."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tonnage.cli import options
from tonnage.cli.declared import Commands, MarketSession
from tonnage.cli.session import Session
from tonnage.errors import InputError, SourceError

if TYPE_CHECKING:
    from tonnage.catalog import Catalog
    from tonnage.sources import PriceSource, SourceResult

commands = Commands(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Read prices from a source into a new dated snapshot; the built-in one stays as it is.",
)
Out = Annotated[
    str | None,
    typer.Option(
        "--out",
        metavar="FOLDER",
        help="Where the snapshot goes. [default: snapshots/DATE-SOURCE at home]",
        show_default=False,
    ),
]
ReadOn = Annotated[
    str | None,
    typer.Option(
        "--read-on",
        metavar="DATE",
        help="The day the prices held. [default: today for a URL or gpuhunt, unknown for a file]",
        show_default=False,
    ),
]
Alone = Annotated[
    bool, typer.Option("--alone", help="Only these prices; else the rest of the present catalog comes along.")
]


@commands.command("skypilot", short_help="A CSV of the SkyPilot catalog")
def skypilot(
    location: Annotated[
        str, typer.Argument(metavar="FILE_OR_URL", help="A cloud's CSV of the SkyPilot catalog.", show_default=False)
    ],
    cloud: Annotated[
        str,
        typer.Option(
            "--cloud", metavar="NAME", autocompletion=options.complete_provider, help="Whose prices these are."
        ),
    ],
    out: Out = None,
    read_on: ReadOn = None,
    alone: Alone = False,
    *,
    session: MarketSession,
) -> None:
    """Import one cloud's CSV of the SkyPilot catalog, from a file or a URL."""
    from tonnage.api import load_catalog
    from tonnage.http.urls import is_url
    from tonnage.overrides import known_providers
    from tonnage.sources import SkyPilotSource

    known = load_catalog(settings=session.settings)
    (provider,) = known_providers(cloud, known)
    day = _day(read_on) or (_today(session) if is_url(location) else None)
    source = SkyPilotSource(provider=provider, location=location, known=known, read_on=day)
    _import(session, source, known, folder=_folder(session, out, f"skypilot-{provider}"), alone=alone)


@commands.command("gpuhunt", short_help="Everything gpuhunt lists")
def gpuhunt(
    provider: options.Providers = None,
    out: Out = None,
    read_on: ReadOn = None,
    alone: Alone = False,
    *,
    session: MarketSession,
) -> None:
    """Import what gpuhunt lists (needs the extra `gpuhunt` and the network). --provider takes its own names."""
    from tonnage.api import load_catalog
    from tonnage.sources import GpuhuntSource

    known = load_catalog(settings=session.settings)
    day = _day(read_on) or _today(session)
    source = GpuhuntSource(known=known, read_on=day, providers=tuple(provider or ()))
    _import(session, source, known, folder=_folder(session, out, "gpuhunt"), alone=alone)


def _import(session: Session, source: PriceSource, known: Catalog, *, folder: Path, alone: bool) -> None:
    from tonnage.api import newest_snapshot
    from tonnage.reports.environment import ImportAccount, import_report
    from tonnage.sources import dated_meta, write_snapshot

    if folder.exists():  # reported before anything is fetched
        raise SourceError(f"{folder} exists already", hint="a snapshot is never overwritten: name another with --out")
    with session.progress(f"reading {source.name}"):
        result = source.fetch()
    whole = result if alone else _with_the_rest(result, known)
    built_on = max([_today(session), *(offer.read_on for offer in whole.offers if offer.read_on is not None)])
    names = (result.report.source,) if alone else (result.report.source, *known.sources)
    meta = dated_meta(built_on, names, name=folder.name, built_at=datetime.now(UTC))
    if folder.is_relative_to(session.settings.home):
        session.private_home()
    write_snapshot(folder, whole.instances, whole.offers, meta)
    account = ImportAccount(
        folder=str(folder), source=result.report.source, instance_types=len(whole.instances),
        offers=len(whole.offers), rows_read=result.report.rows_read, rows_used=result.report.rows_used,
        dropped=result.report.dropped,
    )  # fmt: skip
    session.show(import_report(account))
    if newest_snapshot(session.settings.home) == folder and session.settings.catalog is None:
        session.say("plans use it from now on")
    else:
        session.say(f"use it with --catalog {folder}")


def _with_the_rest(result: SourceResult, known: Catalog) -> SourceResult:
    """The imported rows, and those of the present catalog that they do not replace."""
    machines = {machine.key: machine for machine in (*known.instance_types, *result.instances)}
    offers = {
        (offer.provider, offer.instance_type, offer.region, offer.purchase): offer
        for offer in (*known.offers, *result.offers)
    }
    return replace(result, instances=tuple(machines.values()), offers=tuple(offers.values()))


def _folder(session: Session, out: str | None, source: str) -> Path:
    if out is not None:
        return Path(out).expanduser()
    return session.settings.home / "snapshots" / f"{_today(session).isoformat()}-{source}"


def _today(session: Session) -> date:
    return session.settings.today


def _day(text: str | None) -> date | None:
    if text is None:
        return None
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise InputError(f"--read-on: found '{text}', expected a date", hint="such as 2026-11-20") from None
