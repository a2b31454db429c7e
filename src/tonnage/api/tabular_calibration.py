"""Rows of benches back into predictions of work on tables: `tonnage.calibrate_tabular`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from tonnage.api.answers import Answer
from tonnage.calibration.prediction import SkippedRow
from tonnage.errors import InputError
from tonnage.settings import Settings, current_settings

if TYPE_CHECKING:
    from tonnage.calibration.tabular_fit import TabularFit


def calibrate_tabular(
    files: Sequence[Path | str], *, out: Path | str | None = None, settings: Settings | None = None
) -> Answer[TabularFit]:
    """What rows of `tonnage bench` say of each engine and device, saved at home (or at `out`), where plans of `kind:
    tabular` and benches find it. It is of these files alone: earlier corrections are replaced.

    Raises InputError for files that cannot be used and where no row can be.
    """
    from tonnage.calibration.tabular_file import save_tabular, tabular_file
    from tonnage.calibration.tabular_fit import fit_tabular
    from tonnage.calibration.tabular_rows import TabularRow, read_tabular_rows
    from tonnage.reports.tabular_calibration import tabular_calibration_report

    settings = settings or current_settings()
    rows: dict[str, TabularRow] = {}
    skipped: list[SkippedRow] = []
    digest = sha256()
    for name in files:
        path = Path(name)
        for one in read_tabular_rows(path):
            if isinstance(one, SkippedRow):
                skipped.append(one)
            elif rows.setdefault(one.id, one) != one:
                skipped.append(SkippedRow(row_id=one.id, metric="work_s", reason="another row has this id"))
        digest.update(path.read_bytes())
    if not rows:
        why = f": {skipped[0].row_id}: {skipped[0].reason}" if skipped else ""
        raise InputError(
            f"no row of {', '.join(map(str, files))} can be used{why}",
            hint="`tonnage bench FILE --rows rows.csv` writes rows with all that is needed",
        )
    made_on = settings.today.isoformat()
    fit = fit_tabular(tuple(rows.values()), made_on=made_on, rows_sha256=digest.hexdigest())
    path = tabular_file(settings.home) if out is None else Path(out)
    save_tabular(fit, path)
    return Answer(fit, partial(tabular_calibration_report, file=str(path), skipped=tuple(skipped)))
