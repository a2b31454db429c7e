"""`tonnage catalog snapshots` and `diff`: which snapshots there are, and what moved between two."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tonnage.cli import options
from tonnage.cli.session import open_session

if TYPE_CHECKING:
    from decimal import Decimal

    from tonnage.catalog.differences import PriceKey
    from tonnage.reports.catalog_moves import SnapshotLine
    from tonnage.settings import Settings


def _complete_snapshot(incomplete: str) -> list[str]:
    from tonnage.settings import load_settings

    places = _places(load_settings({}, {}, Path.cwd()).home)
    return [name for name in places if name.startswith(incomplete)]


Snapshot = Annotated[
    str,
    typer.Argument(
        metavar="SNAPSHOT",
        autocompletion=_complete_snapshot,
        help="A name of `catalog snapshots`, else a date (the last of that day) or a folder.",
        show_default=False,
    ),
]


def snapshots(
    output: options.Output = None, catalog: options.CatalogFolder = None, quiet: options.Quiet = False
) -> None:
    """List the snapshots at home and the built-in ones, oldest first, and which of them plans use."""
    session = open_session(output=output, catalog=catalog, quiet=quiet)
    from tonnage.reports.catalog_moves import snapshots_report

    session.show(snapshots_report(_lines(session.settings)))


def diff(
    before: Snapshot,
    after: Snapshot,
    provider: options.Providers = None,
    kind: Annotated[
        list[str] | None, typer.Option("--kind", metavar="KIND", help="price, new, gone or spec; may be repeated.")
    ] = None,
    top: options.ListTop = None,
    output: options.Output = None,
    quiet: options.Quiet = False,
) -> None:
    """Show what moved between two snapshots: prices (in %), offers new and gone, machines described otherwise."""
    session = open_session(output=output, quiet=quiet)
    from tonnage.catalog import load_catalog
    from tonnage.catalog.differences import KINDS, compare_catalogs, compare_prices, sorted_differences
    from tonnage.errors import InputError
    from tonnage.reports.catalog_moves import diff_report

    unknown = [one for one in kind or () if one not in KINDS]
    if unknown:
        raise InputError(f"no kind of difference '{unknown[0]}'", hint=", ".join(KINDS))
    folders = [find_snapshot(name, session.settings.home) for name in (before, after)]
    old, new = (load_catalog(folder, strict=False) for folder in folders)
    moved = [
        *compare_catalogs(old, new),
        *compare_prices(_managed(folders[0]), _managed(folders[1])),
    ]
    wanted = [
        one for one in sorted_differences(moved)
        if (not provider or one.provider in provider) and (not kind or one.kind in kind)
    ]  # fmt: skip
    session.show(diff_report(old.name, new.name, wanted, top=top))


def _managed(folder: Path) -> dict[PriceKey, Decimal]:
    """A snapshot's token and DBU prices, as prices of something in a region under a condition."""
    from tonnage.sources import load_managed_prices

    return {
        (row.platform, row.sku, row.region_cloud, f"{row.unit} ({row.conditions})"): row.price_usd
        for row in load_managed_prices(folder)
    }


def _places(home: Path) -> dict[str, Path]:
    """Folder by snapshot name, oldest first; one at home hides a built-in one of its name."""
    from tonnage.api import snapshot_order
    from tonnage.catalog.loading import snapshot_folders
    from tonnage.errors import CatalogError

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
    from tonnage.errors import InputError, did_you_mean, nearest

    places = _places(home)
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


def _built_on(folder: Path) -> str | None:
    """The day of a snapshot; None where it cannot be read."""
    from tonnage.catalog.loading import read_meta
    from tonnage.errors import CatalogError

    try:
        return read_meta(folder / "snapshot.toml").built_on.isoformat()
    except CatalogError:
        return None


def _lines(settings: Settings) -> list[SnapshotLine]:
    from tonnage.api import newest_snapshot
    from tonnage.catalog.loading import snapshot_folders

    places = _places(settings.home)
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
    from tonnage.errors import CatalogError
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
