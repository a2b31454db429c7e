"""Write a snapshot folder, whole or not at all, and gather one from several sources."""

from __future__ import annotations

import csv
import shutil
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import date, datetime
from pathlib import Path

from tonnage.catalog import Catalog
from tonnage.catalog.loading import INSTANCE_COLUMNS, SnapshotMeta, load_catalog
from tonnage.catalog.market import InstanceType, Offer
from tonnage.catalog.offer_rows import OFFER_COLUMNS
from tonnage.errors import CatalogError, SourceError
from tonnage.files import SHARED, move_whole, sync, write_whole
from tonnage.sources import managed_prices
from tonnage.sources.results import (
    MANAGED_COLUMNS,
    QUARANTINE_COLUMNS,
    ManagedPriceRow,
    PriceSource,
    QuarantinedRow,
    SourceReport,
    SourceResult,
)

QUARANTINE_FILE = "quarantine.csv"
DRAFT_PREFIX = ".draft-"  # the loader takes no folder that begins with a dot
OLD_DRAFT_S = 24 * 3600  # a draft this old was left by a killed process


def gather(sources: Sequence[PriceSource]) -> tuple[SourceResult, tuple[SourceReport, ...]]:
    """Ask each source once and put the answers together; where two price the same offer, the first is kept.

    A source that fails is named in the reports beside those that answered; raises SourceError when all fail.
    """
    machines: dict[tuple[str, str], InstanceType] = {}
    offers: dict[tuple[str, str, str, str], Offer] = {}
    reports = []
    for source in sources:
        try:
            result = source.fetch()
        except SourceError as error:
            reports.append(SourceReport(source=source.name, rows_read=0, rows_used=0, dropped=(), error=error.message))
            continue
        for machine in result.instances:
            machines.setdefault(machine.key, machine)
        for offer in result.offers:
            offers.setdefault((offer.provider, offer.instance_type, offer.region, offer.purchase), offer)
        reports.append(result.report)
    if not offers:
        raise SourceError("no source answered: " + "; ".join(str(report.error) for report in reports))
    total = SourceReport(
        source="; ".join(report.source for report in reports if report.error is None),
        rows_read=sum(report.rows_read for report in reports),
        rows_used=sum(report.rows_used for report in reports),
        dropped=(),
    )
    return SourceResult(instances=tuple(machines.values()), offers=tuple(offers.values()), report=total), tuple(reports)


def write_snapshot(
    folder: Path,
    instances: Iterable[InstanceType],
    offers: Iterable[Offer],
    meta: SnapshotMeta,
    *,
    managed: Iterable[ManagedPriceRow] = (),
    quarantined: Iterable[QuarantinedRow] | None = None,
) -> Path:
    """Write a snapshot into the new (or empty) `folder`, checked by loading it before it appears, whole or not at all.

    Three files, with `managed_prices.csv` where there are such prices and `quarantine.csv` where one is given. Raises
    SourceError when the folder exists or cannot be written, CatalogError when a row would not load.
    """
    if not may_be_written(folder):
        raise SourceError(f"{folder} exists already", hint="a snapshot is never overwritten: choose another name")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        _remove_old_drafts(folder.parent)
        draft = Path(tempfile.mkdtemp(prefix=DRAFT_PREFIX, dir=folder.parent))
    except OSError as error:
        raise SourceError(f"{folder.parent} cannot be written: {error.strerror or error}") from error
    try:
        _write_csv(draft / "instances.csv", INSTANCE_COLUMNS, sorted(map(_instance_cells, instances)))
        _write_csv(draft / "offers.csv", OFFER_COLUMNS, sorted(map(_offer_cells, offers)))
        tokens = sorted(row.cells() for row in managed)
        if tokens:
            _write_csv(draft / managed_prices.FILE_NAME, MANAGED_COLUMNS, tokens)
        if quarantined is not None:
            _write_csv(draft / QUARANTINE_FILE, QUARANTINE_COLUMNS, sorted(row.cells() for row in quarantined))
        write_whole(draft / "snapshot.toml", _toml(meta), mode=SHARED)
        _require_whole(load_catalog(draft))
        managed_prices.load_managed_prices(draft)
        draft.chmod(0o755)
        sync(draft)
        move_whole(draft, folder)
    except OSError as error:
        raise SourceError(f"{folder} cannot be written: {error.strerror or error}") from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return folder


def _require_whole(catalog: Catalog) -> None:
    """What is written loads without a row left out; raises CatalogError naming the first that does not."""
    if catalog.left_out:
        raise CatalogError(catalog.left_out[0], hint="the source's row is not as it should be")


def may_be_written(folder: Path) -> bool:
    """Whether a snapshot may appear there: nothing is, or an empty folder."""
    return not folder.exists() or (folder.is_dir() and next(folder.iterdir(), None) is None)


def _remove_old_drafts(parent: Path) -> None:
    for draft in parent.glob(f"{DRAFT_PREFIX}*"):
        if time.time() - draft.stat().st_mtime > OLD_DRAFT_S:
            shutil.rmtree(draft, ignore_errors=True)


def dated_meta(
    built_on: date,
    sources: Iterable[str],
    *,
    name: str | None = None,
    notes: str = "",
    built_at: datetime | None = None,
) -> SnapshotMeta:
    """The account a snapshot gives of itself, named after its day by default."""
    meta = SnapshotMeta(
        name=built_on.isoformat(), built_on=built_on, sources=tuple(sources), notes=notes, built_at=built_at
    )
    return meta if name is None else replace(meta, name=name)


def _instance_cells(instance: InstanceType) -> list[str]:
    return [
        instance.provider,
        instance.name,
        instance.accelerator or "",
        _number(instance.accelerator_count),
        _number(instance.gpu_memory_gib),
        _number(instance.vcpus),
        _number(instance.memory_gib),
        _number(instance.network_gbit_per_s),
        instance.network_source,
        _number(instance.local_ssd_gb),
        instance.cpu_arch,
        instance.scale_up,
        instance.scale_out,
        instance.notes,
        instance.source.text,
        _day(instance.source.read_on),
    ]


def _offer_cells(offer: Offer) -> list[str]:
    return [
        offer.provider,
        offer.instance_type,
        offer.region,
        offer.purchase,
        f"{offer.usd_per_instance_hour:f}",
        _day(offer.read_on),
        offer.notes,
        offer.source.text,
    ]


def _number(figure: float | None) -> str:
    if figure is None:
        return ""
    return str(int(figure)) if float(figure).is_integer() else repr(float(figure))


def _day(day: date | None) -> str:
    return "" if day is None else day.isoformat()


def _toml(meta: SnapshotMeta) -> str:
    sources = "".join(f"  {_quoted(source)},\n" for source in meta.sources)
    built_at = "" if meta.built_at is None else f"built_at = {meta.built_at.isoformat(timespec='microseconds')}\n"
    return (
        f"name = {_quoted(meta.name)}\nbuilt_on = {meta.built_on.isoformat()}\n{built_at}"
        f"notes = {_quoted(meta.notes)}\nsources = [\n{sources}]\n"
    )


def _quoted(text: str) -> str:
    """A TOML basic string."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(c if c >= " " and c != "\x7f" else f"\\u{ord(c):04x}" for c in escaped) + '"'


def _write_csv(path: Path, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows([cell.replace("\r", " ").replace("\n", " ") for cell in row] for row in rows)
    sync(path)
