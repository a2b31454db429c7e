"""The catalog that verbs are given, or that of the settings; on its own, as it costs little to import."""

from __future__ import annotations

from datetime import UTC, date, datetime
from functools import lru_cache
from pathlib import Path
from typing import Final

from tonnage.catalog import Catalog
from tonnage.catalog import load_catalog as load_snapshot
from tonnage.catalog.loading import read_meta, snapshot_folders
from tonnage.settings import Settings, current_settings

CatalogSource = Catalog | Path | str
Stamps = tuple[tuple[str, int, int, int], ...]
KEPT: Final = 2  # snapshots of folders, of some ten MB each


def load_catalog(folder: Path | str | None = None, *, settings: Settings | None = None) -> Catalog:
    """The snapshot in `folder`; else the one the settings name, else the newest of those at home and the built-in."""
    if folder is not None:
        return _kept(Path(folder))
    settings = settings or current_settings()
    if settings.catalog is not None:
        return _kept(settings.catalog)
    return _kept(newest_snapshot(settings.home))


def _kept(folder: Path | None) -> Catalog:
    """A snapshot, read again once a file of its folder is another: a page asks for it with every slider."""
    return load_snapshot(None) if folder is None else _read_at(folder.absolute(), _stamps(folder))


@lru_cache(maxsize=KEPT)
def _read_at(folder: Path, stamps: Stamps) -> Catalog:  # noqa: ARG001  a part of the key
    return load_snapshot(folder)


def _stamps(folder: Path) -> Stamps:
    """What tells the files of a folder from those that were there before; none where there is no folder."""
    found = sorted(folder.iterdir()) if folder.is_dir() else []
    return tuple((one.name, state.st_ino, state.st_mtime_ns, state.st_size) for one in found if (state := one.stat()))


def market_of(catalog: CatalogSource | None, settings: Settings) -> Catalog:
    """A catalog as it is, else the snapshot of a folder, else that of the settings."""
    return catalog if isinstance(catalog, Catalog) else load_catalog(catalog, settings=settings)


def snapshot_order(path: Path) -> tuple[date, datetime, str]:
    """By day, then by the moment where it is stated, then by name."""
    meta = read_meta(path)
    return (meta.built_on, meta.built_at or datetime.min.replace(tzinfo=UTC), path.parent.name)


def newest_snapshot(home: Path) -> Path | None:
    """The newest imported snapshot, None where the built-in one is newer."""
    folder = home / "snapshots"
    found = sorted(folder.glob("[!.]*/snapshot.toml")) if folder.is_dir() else []
    if not found:
        return None
    newest = max(found, key=snapshot_order)
    built_in = read_meta(snapshot_folders()[-1] / "snapshot.toml").built_on
    return newest.parent if read_meta(newest).built_on >= built_in else None
