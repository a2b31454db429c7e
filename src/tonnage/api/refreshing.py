"""`tonnage.refresh`: today's prices of every source at hand, in a new snapshot that plans then use."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Final

from tonnage.api.answers import Answer
from tonnage.api.declaring import Options, option
from tonnage.errors import InputError, SourceError, did_you_mean, nearest
from tonnage.settings import Settings, current_settings
from tonnage.values import dataclass

if TYPE_CHECKING:
    from tonnage.catalog import Catalog
    from tonnage.reports.catalog_moves import RefreshAccount, SourceLine
    from tonnage.sources import Circumstances, ManagedPriceRow, PriceSource, Refreshed, SourceKind

HAND_IN_S: Final = 2.0  # before the time limit, in which a source that was cut off hands in what it has


@dataclass(frozen=True, slots=True, kw_only=True)
class RefreshOptions(Options):
    """Which sources are asked, for what, how long, and where the snapshot goes."""

    sources: tuple[str, ...] = option(
        "--source", "Only this source (aws, azure, gcp, ...: docs/prices.md); may be repeated.", default=(),
        metavar="NAME",
    )  # fmt: skip
    providers: tuple[str, ...] = option(
        "--provider", "Only this provider; may be repeated.", default=(), metavar="NAME"
    )
    regions: tuple[str, ...] = option("--region", "Only this region; may be repeated.", default=(), metavar="NAME")
    to: str | None = option(
        "--to", "The folder of the new snapshot. [default: snapshots/DATE at home]", default=None, metavar="DIR"
    )
    dry_run: bool = option("--dry-run", "Ask and judge; write nothing.", default=False)
    timeout_s: float = option(
        "--timeout", "Seconds for all sources; those not done are left out.", default=600.0, metavar="S", least=0.1
    )
    urls: tuple[str, ...] = option(
        "--url", "Ask a source elsewhere (a mirror, a table); may be repeated.", default=(), metavar="NAME=URL"
    )
    max_age_minutes: float = option(
        "--max-age", "Answers kept this long are not asked again.", default=0.0, metavar="MINUTES", least=0.0
    )


def refresh(
    asked: RefreshOptions | None = None,
    *,
    settings: Settings | None = None,
    watch: Callable[[str], None] | None = None,
) -> Answer[RefreshAccount]:
    """Read prices from every source that has what it needs, and put them over the present ones in a new snapshot.

    `watch` is called with what is waited for. The answer's fault is a SourceError where no source answered. Raises
    InputError on a provider, a source or an address that cannot be used, SourceError where the folder is there.
    """
    from tonnage.api.catalogs import load_catalog
    from tonnage.reports.catalog_moves import refresh_report
    from tonnage.sources import ask_sources, chosen_kinds, merge_answers
    from tonnage.sources.snapshots import may_be_written

    asked, settings = asked or RefreshOptions(), settings or current_settings()
    known = load_catalog(settings=settings)
    providers = _checked_providers(asked.providers, known)
    kinds = chosen_kinds(asked.sources, providers)
    urls = _urls(asked.urls, os.environ)
    folder = None if asked.to is None else Path(asked.to).expanduser()
    if folder is not None and not may_be_written(folder):
        raise SourceError(f"{folder} exists already", hint="a snapshot is never overwritten: name another with --to")
    stop = Event()
    notes: dict[str, str] = {}
    here = _circumstances(asked, known, providers, settings.today, stop)
    found = [one for kind in kinds for one in _made(kind, here, urls.get(kind.name), notes)]

    def progress(names: Sequence[str]) -> None:
        if watch is not None:
            watch("waiting for " + ", ".join(f"{name} {notes.get(name, '')}".strip() for name in names))

    sources = [one.source for one in found if one.source is not None]
    answers = ask_sources(sources, timeout_s=asked.timeout_s, stop=stop, progress=progress)
    done = merge_answers(known, _managed_of(settings), answers)
    account = _written(settings, known, done, found, folder=folder, dry_run=asked.dry_run)
    if not done.answered:
        fault = SourceError(_none_answered(account), hint="the snapshots are as they were; docs/prices.md")
        return Answer(account, refresh_report, fault)
    return Answer(account, refresh_report, remarks=_which_is_used(settings, account.folder))


@dataclass(frozen=True, slots=True)
class _AskedSource:
    """A source to ask, or why it is not."""

    kind: str
    source: PriceSource | None
    why_not: str = ""


def _circumstances(
    asked: RefreshOptions, known: Catalog, providers: Sequence[str], today: date, stop: Event
) -> Circumstances:
    from tonnage.sources import Circumstances, FetchLimits, ResponseCache, Watch, Web, default_cache_folder

    folder = Path(os.environ.get("TONNAGE_CACHE") or default_cache_folder())
    cache = ResponseCache(folder)
    if not asked.dry_run:
        cache.prune(datetime.now(UTC))
    limit_s = asked.timeout_s
    web = Web(
        limits=FetchLimits(timeout_s=min(30.0, limit_s)),
        watch=Watch(limit_s=limit_s - min(HAND_IN_S, limit_s / 10), stop=stop),
        cache=None if asked.dry_run else cache,
        max_age_s=60 * asked.max_age_minutes,
    )
    return Circumstances(
        known=known, web=web, today=today, environ=os.environ, providers=tuple(providers), regions=asked.regions
    )


def _checked_providers(names: Sequence[str], known: Catalog) -> tuple[str, ...]:
    """The providers asked for; raises InputError for one that neither the catalog nor a source knows."""
    from tonnage.sources import installed_kinds

    all_names = {one.name for one in known.providers} | {one for kind in installed_kinds() for one in kind.providers}
    for name in names:
        if name.casefold() not in all_names:
            hint = did_you_mean(nearest(name, sorted(all_names), count=1), f"known: {', '.join(sorted(all_names))}")
            raise InputError(f"no provider named '{name}'", hint=hint)
    return tuple(name.casefold() for name in names)


def _urls(given: Sequence[str], environ: Mapping[str, str]) -> dict[str, str]:
    """Another address by source: the flag's, else the variable's; raises InputError."""
    from tonnage.sources import chosen_kinds, installed_kinds
    from tonnage.sources.kinds import url_variable

    found = {kind.name: address for kind in installed_kinds() if (address := environ.get(url_variable(kind.name)))}
    for text in given:
        name, sign, address = text.partition("=")
        if not sign or not address:
            raise InputError(f"--url: found '{text}', expected NAME=URL", hint="such as azure=http://localhost:8080")
        chosen_kinds([name], ())
        found[name] = address
    return found


def _made(kind: SourceKind, here: Circumstances, base_url: str | None, notes: dict[str, str]) -> list[_AskedSource]:
    """The sources of a kind, or why there are none."""
    from tonnage.sources.kinds import with_own_web

    here = with_own_web(here, base_url)
    why_not = kind.why_not(here)
    if why_not is not None:
        return [_AskedSource(kind.name, None, why_not)]

    def note(text: str) -> None:
        for source in found:
            notes[source.name] = text

    found: list[PriceSource] = kind.build(replace(here, web=replace(here.web, say=note)))
    return [_AskedSource(kind.name, source) for source in found]


def _managed_of(settings: Settings) -> tuple[ManagedPriceRow, ...]:
    """The managed prices of the snapshot in use over the packaged ones, so that a refresh loses none."""
    from tonnage.api.catalogs import newest_snapshot
    from tonnage.sources.managed_prices import load_managed_prices, overlay, packaged_managed_prices

    folder = settings.catalog or newest_snapshot(settings.home)
    return overlay(packaged_managed_prices(), () if folder is None else load_managed_prices(folder))


def _written(
    settings: Settings,
    known: Catalog,
    done: Refreshed,
    asked: Sequence[_AskedSource],
    *,
    folder: Path | None,
    dry_run: bool,
) -> RefreshAccount:
    """Write the snapshot where there is something to write, and give account."""
    from tonnage.catalog.differences import KINDS
    from tonnage.files import make_private_folder
    from tonnage.reports.catalog_moves import RefreshAccount
    from tonnage.sources import dated_meta, write_snapshot
    from tonnage.sources.snapshots import QUARANTINE_FILE

    written: Path | None = None
    if done.read and not dry_run:
        today = settings.today
        make_private_folder(settings.home)
        folder = folder or _free_folder(settings.home / "snapshots", today, settings)
        built_on = max([today, *(offer.read_on for offer in done.offers if offer.read_on is not None)])
        titles = dict.fromkeys([*(report.source for report in done.answered), *known.sources])
        meta = dated_meta(built_on, titles, name=folder.name, built_at=datetime.now(UTC))
        written = write_snapshot(
            folder, done.instances, done.offers, meta, managed=done.managed, quarantined=done.quarantined
        )
    moved = _moved(known, done)
    return RefreshAccount(
        before=known.name, folder=None if written is None else str(written), dry_run=dry_run,
        instance_types=len(done.instances), offers=len(done.offers), managed_prices=len(done.managed), read=done.read,
        quarantined=len(done.quarantined),
        quarantine_file=None if written is None else str(written / QUARANTINE_FILE),
        moved=tuple((kind, moved[kind]) for kind in KINDS), sources=_source_lines(done, asked),
    )  # fmt: skip


def _free_folder(parent: Path, today: date, settings: Settings) -> Path:
    """DATE, or DATE-HHMMSS (UTC) where there is one of that day already."""
    now = settings.as_of or datetime.now(UTC)
    names = [today.isoformat(), f"{today.isoformat()}-{now:%H%M%S}"]
    names += [f"{names[1]}-{number}" for number in range(2, 1000)]
    return next(parent / name for name in names if not (parent / name).exists())


def _moved(known: Catalog, done: Refreshed) -> Counter[str]:
    """How many offers are new or at another price, and machines described otherwise."""
    from tonnage.catalog.differences import compare_offers, compare_specs

    return Counter(
        one.kind
        for one in (*compare_offers(known.offers, done.offers), *compare_specs(known.instance_types, done.instances))
    )


def _source_lines(done: Refreshed, asked: Sequence[_AskedSource]) -> tuple[SourceLine, ...]:
    from tonnage.reports.catalog_moves import SourceLine

    reports = iter(done.reports)
    lines = []
    for one in asked:
        if one.source is None:
            lines.append(
                SourceLine(
                    name=one.kind, title=one.kind, status="skipped", reason=one.why_not, rows_read=0, rows_used=0,
                    dropped=(), quarantined=(), incomplete=(),
                )
            )  # fmt: skip
            continue
        report = next(reports)
        lines.append(
            SourceLine(
                name=one.kind, title=report.source, status="answered" if report.error is None else "failed",
                reason=report.error or "", rows_read=report.rows_read, rows_used=report.rows_used,
                dropped=report.dropped, quarantined=report.quarantined, incomplete=report.incomplete,
            )
        )  # fmt: skip
    return tuple(lines)


def _none_answered(account: RefreshAccount) -> str:
    failed = [one for one in account.sources if one.status == "failed"]
    if not failed:
        return f"no source could be asked: {account.sources[0].name}: {account.sources[0].reason}"
    skipped = len(account.sources) - len(failed)
    return f"no source answered ({len(failed)} failed, {skipped} skipped): {failed[0].title}: {failed[0].reason}"


def _which_is_used(settings: Settings, folder: str | None) -> tuple[str, ...]:
    """What to say of the snapshot that was written, where one was."""
    from tonnage.api.catalogs import newest_snapshot

    if folder is None:
        return ()
    if settings.catalog is None and newest_snapshot(settings.home) == Path(folder):
        return ("plans use it from now on",)
    return (f"use it with --catalog {folder}",)
