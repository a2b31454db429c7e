"""The catalog that verbs are given, or that of the settings; on its own, as it costs little to import."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path

from tonnage.catalog import Catalog
from tonnage.catalog import load_catalog as load_snapshot
from tonnage.catalog.loading import read_meta, snapshot_folders
from tonnage.settings import Settings, current_settings

CatalogSource = Catalog | Path | str


def load_catalog(folder: Path | str | None = None, *, settings: Settings | None = None) -> Catalog:
    """The snapshot in `folder`; else the one the settings name, else the newest of those at home and the built-in."""
    if folder is not None:
        return load_snapshot(Path(folder))
    settings = settings or current_settings()
    if settings.catalog is not None:
        return load_snapshot(settings.catalog)
    return load_snapshot(newest_snapshot(settings.home))


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
