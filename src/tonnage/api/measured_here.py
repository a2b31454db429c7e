"""A device profile with what runs on the device have measured since: how one run makes the next plan better."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from tonnage.calibration.prediction import SkippedRow
from tonnage.errors import InputError
from tonnage.values import dataclass

if TYPE_CHECKING:
    from tonnage.calibration.local_profile import DeviceProfile
    from tonnage.calibration.rows import TrainingRow
    from tonnage.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Corrected:
    """A profile with its own rows, and why each other row of its device was left out."""

    profile: DeviceProfile
    left_out: tuple[str, ...]


def with_own_rows(profile: DeviceProfile, settings: Settings) -> Corrected:
    """The profile updated by the rows of the store that were measured on its device; those that a local fit cannot use
    (another precision, no micro-batch, the time of a run on a busy machine) are reported."""
    from tonnage.calibration.local_rows import TIME_METRICS, device_names, update

    rows = _typed(_stored(settings, device_names(profile)))
    left_out = [
        f"row {row.id}: {row.note[row.note.rfind('suspect: ') :]}"
        for row in rows
        if row.quality == "suspect" and row.metric in TIME_METRICS
    ]
    for row in rows:
        try:
            profile = update(profile, [row])
        except InputError as error:
            left_out.append(str(error))
    return Corrected(profile=profile, left_out=tuple(left_out))


def _stored(settings: Settings, names: Sequence[str]) -> list[dict[str, str]]:
    from tonnage.store import open_store

    if settings.database_url.startswith("sqlite:///") and not Path(settings.database_url[10:]).is_file():
        return []  # no run yet: planning makes no database
    store = open_store(settings.database_url)
    return [row for name in names for row in store.measurements("training", gpu=name)]


def _typed(rows: Sequence[Mapping[str, str]]) -> list[TrainingRow]:
    """Rows as the fit reads them, by way of the file that `tonnage runs export` would write."""
    from tonnage.calibration.reading import read_training_rows

    if not rows:
        return []
    with TemporaryDirectory() as folder:
        path = Path(folder) / "rows.csv"
        with path.open("w", encoding="utf-8", newline="") as stream:
            writer = csv.DictWriter(stream, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
        return [row for row in read_training_rows(path) if not isinstance(row, SkippedRow)]
