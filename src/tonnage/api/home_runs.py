"""The runs in the home folder, by name."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from tonnage.errors import UnknownName, did_you_mean, nearest

if TYPE_CHECKING:
    from tonnage.runs.folder import RunFolder
    from tonnage.settings import Settings
    from tonnage.store import Store


def runs_folder(home: Path) -> Path:
    """Where every run has its folder."""
    return home / "runs"


def run_names(home: Path) -> list[str]:
    """Every run there is."""
    folder = runs_folder(home)
    found = (one.parent.name for one in folder.glob("*/spec.json")) if folder.is_dir() else ()
    return sorted(name for name in found if not name.startswith("."))  # a killed client's draft is no run


def _has_run(home: Path, name: str) -> bool:
    plain = bool(name) and not name.startswith(".") and not {"/", os.sep} & set(name)
    return plain and os.path.isfile(runs_folder(home) / name / "spec.json")


def find_run(settings: Settings, name: str) -> RunFolder:
    """The folder of a run. UnknownName with the nearest names where there is none."""
    from tonnage.runs.folder import RunFolder

    if not _has_run(settings.home, name):  # one look, however many runs there are
        close = nearest(name, run_names(settings.home))
        hint = did_you_mean(close, "`tonnage ps --all` lists every run")
        raise UnknownName(f"no run is named '{name}' under {runs_folder(settings.home)}", suggestions=close, hint=hint)
    return RunFolder(runs_folder(settings.home) / name)


def all_runs(settings: Settings) -> Iterator[RunFolder]:
    """Every run's folder, by name."""
    from tonnage.runs.folder import RunFolder

    for name in run_names(settings.home):
        yield RunFolder(runs_folder(settings.home) / name)


def keep_rows(store: Store, folder: RunFolder) -> int:
    """What a run measured, into the store: how many rows are new. Rows of a run that goes on would be early."""
    from tonnage.runs.measured import measured_rows, versions_text

    state = folder.state()
    if not state.state.ended or state.ended_at is None:
        return 0
    rows = measured_rows(folder, state.ended_at)
    return store.add_measurements(
        rows, run=folder.path.name, versions=versions_text(folder), recorded_at=state.ended_at
    )
