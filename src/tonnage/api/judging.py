"""Predictions beside measurements: `tonnage.validate` compares them; `tonnage.calibrate` and
`tonnage.calibrate_tabular` fit the model's coefficients to measurements.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tonnage.api.answers import Answer
from tonnage.api.declaring import Options, option
from tonnage.calibration.prediction import SkippedRow
from tonnage.errors import InputError
from tonnage.settings import Settings, current_settings
from tonnage.values import dataclass

if TYPE_CHECKING:
    from tonnage.api.catalogs import CatalogSource
    from tonnage.api.inputs import Clock
    from tonnage.calibration.kinds import FactKind
    from tonnage.calibration.leave_out import OnStep
    from tonnage.calibration.store import Calibration
    from tonnage.calibration.tabular_fit import TabularFit
    from tonnage.calibration.validation import ValidationReport
KEYS: Final = ("family", "gpu", "engine")
_JOBS: Final = "Fits side by side with --leave-out. [default: the processors, up to 8]"


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidateOptions(Options):
    """How `validate` judges rows: by a calibration, or by fits on the file itself with something left out in turn."""

    leave_out: str | None = option(
        "--leave-out",
        "Fit on the file itself, each family, gpu or engine left out in turn, and judge what was left out.",
        default=None, metavar="WHAT",
    )  # fmt: skip
    jobs: int | None = option("--jobs", _JOBS, default=None, metavar="N", least=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrateOptions(Options):
    """How `calibrate` fits and cross-validates."""

    peaks: tuple[str, ...] = option(
        "--peaks",
        "Training runs, CSV, whose memory peaks no fit sees: intervals rest on them too. Repeatable.",
        default=(), metavar="FILE",
    )  # fmt: skip
    leave_out: str = option(
        "--leave-out", "What cross-validation leaves out in turn: family or gpu.", default="family", metavar="WHAT"
    )
    jobs: int | None = option("--jobs", _JOBS, default=None, metavar="N", least=1)


def validate(
    kind: str,
    file: Path | str,
    options: ValidateOptions | None = None,
    *,
    catalog: CatalogSource | None = None,
    calibration: Path | str | None = None,
    memory_margin: float | None = None,
    settings: Settings | None = None,
    on_rows: Callable[[int], None] | None = None,
    on_step: OnStep | None = None,
) -> Answer[ValidationReport]:
    """The error of predictions of every row of a table of measurements (CSV; docs/measured-rows.md has the columns).

    `kind` is training or inference. `calibration` is a file; by default the settings' one, else the packaged. With
    `memory_margin`, the share of device memory kept free (0 to 1), false fits are counted too. `on_rows` is called with
    how many rows are done, `on_step` which round of a cross-validation begins. Raises InputError for a file that cannot
    be read and an unknown kind or key.
    """
    from tonnage.api.catalogs import market_of
    from tonnage.calibration.leave_out import usual_jobs
    from tonnage.calibration.validating import validate_file, validate_left_out
    from tonnage.reports.validation import ValidationContext, validation_report

    options, settings = options or ValidateOptions(), settings or current_settings()
    left_out, path = options.leave_out, Path(file)
    wanted = _kind(kind, left_out)
    used = _calibration(calibration, settings)
    market = market_of(catalog, settings)
    if left_out is None:
        found = validate_file(wanted, path, market, used, memory_margin=memory_margin, on_rows=on_rows)
    else:
        found = validate_left_out(
            wanted, path, market, leave_out=left_out, start=used, memory_margin=memory_margin,
            jobs=options.jobs or usual_jobs(), on_step=on_step,
        )  # fmt: skip
    made_on = None if used is None or left_out is not None else used.made_on
    context = ValidationContext(kind=wanted.name, file=path.name, left_out=left_out, calibration=made_on)
    remarks = () if found.predicted else (_why_nothing(found, str(file)),)
    return Answer(found, partial(validation_report, context=context), remarks=remarks)


def calibrate(
    training: Path | str,
    inference: Path | str,
    out: Path | str,
    options: CalibrateOptions | None = None,
    *,
    catalog: CatalogSource | None = None,
    as_of: Clock | None = None,
    settings: Settings | None = None,
    on_step: OnStep | None = None,
) -> Answer[Calibration]:
    """The physical parameters fitted to two tables of measured rows, written to `out` (JSON).

    Each family (or GPU) is left out in turn; the residuals of what was left out give the 80 % intervals, and those of
    each GPU, engine and generation left out how much wider they are for one without rows. The same files
    and clock give the same bytes. `on_step` is called with the round that begins. Raises InputError for a file that
    cannot be read or written, or that has nothing to fit.
    """
    from tonnage.api.catalogs import market_of
    from tonnage.calibration.calibrating import calibrate_tables
    from tonnage.calibration.leave_out import usual_jobs
    from tonnage.calibration.store import save_calibration
    from tonnage.reports.validation import calibration_report

    options, settings = options or CalibrateOptions(), settings or current_settings(as_of=as_of)
    if not Path(out).parent.is_dir():
        raise InputError(f"{Path(out).parent} is not a folder", hint="make it first, or name another --out")
    for name in ("training", "inference"):
        _kind(name, options.leave_out)
    made, _ = calibrate_tables(
        {"training": Path(training), "inference": Path(inference)}, market_of(catalog, settings),
        made_on=settings.today.isoformat(), leave_out=options.leave_out,
        peaks=[Path(one) for one in options.peaks], jobs=options.jobs or usual_jobs(), on_step=on_step,
    )  # fmt: skip
    save_calibration(made, Path(out))
    return Answer(made, partial(calibration_report, file=str(out)))


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


def _kind(name: str, left_out: str | None) -> FactKind:
    """The kind of rows; InputError unless `left_out` is something that can be left out of it."""
    from tonnage.calibration.kinds import kind_named

    if left_out is not None and left_out not in KEYS:
        raise InputError(f"'{left_out}' cannot be left out", hint="--leave-out takes family, gpu or engine")
    kind = kind_named(name)
    if left_out is not None:
        kind.key(left_out)
    return kind


def _calibration(file: Path | str | None, settings: Settings) -> Calibration | None:
    from tonnage.calibration.store import load_calibration, read_calibration

    chosen = settings.calibration if file is None else Path(file)
    return load_calibration() if chosen is None else read_calibration(chosen)


def _why_nothing(found: ValidationReport, file: str) -> str:
    if not found.rows:
        return f"{file} has a header and no rows"
    if found.suspect.rows == found.rows:
        return f"all rows of {file} are marked suspect; they are counted apart"
    return f"no row of {file} could be judged; the report counts the reasons"
