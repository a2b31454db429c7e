"""Snapshots of the catalog: which there are, what moved between two, what one machine cost in each."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tonnage.api.answers import Answer
from tonnage.errors import CatalogError, InputError, UnknownName, did_you_mean, nearest
from tonnage.settings import Settings, current_settings

if TYPE_CHECKING:
    from decimal import Decimal

    from tonnage.catalog import Offer
    from tonnage.catalog.differences import Difference, PriceKey
    from tonnage.reports.catalog_moves import SnapshotLine
    from tonnage.reports.price_history import PricePoint

KEPT: Final = 4096  # machines of snapshots whose offers are held in memory


def list_snapshots(*, settings: Settings | None = None) -> Answer[tuple[SnapshotLine, ...]]:
    """The snapshots at home and the built-in ones, oldest first, and which of them plans use."""
    from tonnage.reports.catalog_moves import snapshots_report

    return Answer(tuple(_lines(settings or current_settings())), snapshots_report)


def snapshot_moves(
    before: str, after: str, *, providers: Sequence[str] = (), kinds: Sequence[str] = (), top: int | None = None,
    settings: Settings | None = None,
) -> Answer[tuple[Difference, ...]]:  # fmt: skip
    """What moved between two snapshots, named as `find_snapshot` takes them. Raises InputError."""
    from tonnage.catalog import load_catalog
    from tonnage.catalog.differences import KINDS, compare_catalogs, compare_prices, sorted_differences
    from tonnage.reports.catalog_moves import diff_report

    unknown = [one for one in kinds if one not in KINDS]
    if unknown:
        raise InputError(f"no kind of difference '{unknown[0]}'", hint=", ".join(KINDS))
    home = (settings or current_settings()).home
    folders = [find_snapshot(name, home) for name in (before, after)]
    old, new = (load_catalog(folder, strict=False) for folder in folders)
    moved = [
        *compare_catalogs(old, new),
        *compare_prices(_managed(folders[0]), _managed(folders[1])),
    ]
    wanted = tuple(
        one for one in sorted_differences(moved)
        if (not providers or one.provider in providers) and (not kinds or one.kind in kinds)
    )  # fmt: skip
    return Answer(wanted, partial(diff_report, old.name, new.name, top=top))


def price_history(
    machine: str, *, providers: Sequence[str] = (), regions: Sequence[str] = (), purchases: Sequence[str] = (),
    settings: Settings | None = None,
) -> Answer[tuple[PricePoint, ...]]:  # fmt: skip
    """What each offer of an instance type cost in every snapshot that can be read, the oldest first.

    Snapshots that cannot be read are named in the remarks. Raises UnknownName where no snapshot has the machine or none
    of its offers is of these providers, regions and purchase modes.
    """
    from tonnage.catalog.loading import read_meta
    from tonnage.reports.price_history import PricePoint, history_report

    home = (settings or current_settings()).home
    points, remarks = list[PricePoint](), list[str]()
    for name, folder in snapshot_folders_by_name(home).items():
        try:
            built_on = read_meta(folder / "snapshot.toml").built_on
            offers = _offers_of(folder, (folder / "snapshot.toml").stat().st_mtime_ns, machine)
        except CatalogError as error:
            remarks.append(f"{name} cannot be read: {error.message}")
            continue
        points += [
            PricePoint(snapshot=name, built_on=built_on, provider=one.provider, region=one.region, read_on=one.read_on,
                       purchase=one.purchase, usd_per_instance_hour=one.usd_per_instance_hour)
            for one in offers
        ]  # fmt: skip
    if not points:
        raise _unknown_machine(machine, home)
    wanted = tuple(
        one for one in points
        if (not providers or one.provider in providers) and (not regions or one.region in ("", *regions))
        and (not purchases or one.purchase in purchases)
    )  # fmt: skip
    if not wanted:
        known = sorted({f"{one.provider} {one.region or 'all regions'} {one.purchase}" for one in points})
        raise UnknownName(f"no offer of {machine} is such", hint=f"known: {'; '.join(known[:6])}")
    return Answer(wanted, partial(history_report, machine, remarks=tuple(remarks)), remarks=tuple(remarks))


def snapshot_folders_by_name(home: Path) -> dict[str, Path]:
    """Folder by snapshot name, oldest first; one at home hides a built-in one of its name."""
    from tonnage.api.catalogs import snapshot_order
    from tonnage.catalog.loading import snapshot_folders

    found = {folder.name: Path(str(folder)) for folder in snapshot_folders()}
    at_home = home / "snapshots"
    found |= {path.parent.name: path.parent for path in sorted(at_home.glob("[!.]*/snapshot.toml"))}

    def order(item: tuple[str, Path]) -> tuple[object, ...]:
        try:
            return (1, *snapshot_order(item[1] / "snapshot.toml"))
        except CatalogError:
            return (0, item[0])

    return dict(sorted(found.items(), key=order))


def find_snapshot(text: str, home: Path) -> Path:
    """The folder of a snapshot by name, by date (the last of that day) or by path; raises InputError."""
    places = snapshot_folders_by_name(home)
    if text in places:
        return places[text]
    path = Path(text).expanduser()
    if (path / "snapshot.toml").is_file():
        return path
    of_day = [folder for folder in places.values() if _built_on(folder) == text]
    if of_day:
        return of_day[-1]
    hint = did_you_mean(nearest(text, places, count=2), "`tonnage catalog snapshots` lists them all")
    raise InputError(f"no snapshot '{text}'", hint=hint)


@lru_cache(maxsize=KEPT)
def _offers_of(folder: Path, stamp: int, machine: str) -> tuple[Offer, ...]:  # noqa: ARG001  a part of the key
    """The offers of one machine in the snapshot as it was at `stamp`. Raises CatalogError."""
    from tonnage.catalog import load_catalog

    return tuple(one for one in load_catalog(folder, strict=False).offers if one.instance_type == machine)


def _unknown_machine(machine: str, home: Path) -> UnknownName:
    from tonnage.api.catalogs import newest_snapshot
    from tonnage.catalog import load_catalog

    known = {one.name for one in load_catalog(newest_snapshot(home), strict=False).instance_types}
    hint = did_you_mean(nearest(machine, known), "`tonnage catalog instances` lists them")
    return UnknownName(f"no snapshot has a price of '{machine[:80]}'", hint=hint)


def _managed(folder: Path) -> dict[PriceKey, Decimal]:
    """A snapshot's token and DBU prices, as prices of something in a region under a condition."""
    from tonnage.sources import load_managed_prices

    return {
        (row.platform, row.sku, row.region_cloud, f"{row.unit} ({row.conditions})"): row.price_usd
        for row in load_managed_prices(folder)
    }


def _built_on(folder: Path) -> str | None:
    """The day of a snapshot; None where it cannot be read."""
    from tonnage.catalog.loading import read_meta

    try:
        return read_meta(folder / "snapshot.toml").built_on.isoformat()
    except CatalogError:
        return None


def _lines(settings: Settings) -> list[SnapshotLine]:
    from tonnage.api.catalogs import newest_snapshot
    from tonnage.catalog.loading import snapshot_folders

    places = snapshot_folders_by_name(settings.home)
    built_in = {Path(str(folder)).resolve() for folder in snapshot_folders()}
    used = (settings.catalog or newest_snapshot(settings.home) or Path(str(snapshot_folders()[-1]))).resolve()
    if used not in {folder.resolve() for folder in places.values()}:
        places[str(used)] = used
    lines = []
    for name, folder in places.items():
        at_home = folder.parent == settings.home / "snapshots"
        place = "built in" if folder.resolve() in built_in else "home" if at_home else "elsewhere"
        lines.append(_line(name, folder, place, in_use=folder.resolve() == used))
    return lines


def _line(name: str, folder: Path, place: str, *, in_use: bool) -> SnapshotLine:
    from tonnage.catalog import load_catalog
    from tonnage.reports.catalog_moves import SnapshotLine

    try:
        catalog = load_catalog(folder, strict=False)
    except CatalogError as error:
        return SnapshotLine(
            name=name, built_on=None, place=place, in_use=in_use, instance_types=None, offers=None,
            oldest_price=None, folder=str(folder), problem=error.message,
        )  # fmt: skip
    return SnapshotLine(
        name=name, built_on=catalog.built_on, place=place, in_use=in_use, instance_types=len(catalog.instance_types),
        offers=len(catalog.offers), oldest_price=catalog.oldest_price, folder=str(folder),
    )  # fmt: skip
