"""`tonnage validate`: predicted beside measured, for every row of a file of published or own measurements."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tonnage.cli import options
from tonnage.cli.meter import Meter
from tonnage.cli.session import open_session

if TYPE_CHECKING:
    from tonnage.calibration.kinds import Kind
    from tonnage.calibration.store import Calibration
    from tonnage.calibration.validation import ValidationReport
    from tonnage.settings import Settings

_KINDS = ("training", "inference")
_KEYS = ("family", "gpu", "engine")


def complete_kind(incomplete: str) -> list[str]:
    return [kind for kind in _KINDS if kind.startswith(incomplete)]


def complete_key(incomplete: str) -> list[str]:
    return [key for key in _KEYS if key.startswith(incomplete)]


LeaveOut = Annotated[
    str | None,
    typer.Option(
        "--leave-out",
        metavar="WHAT",
        autocompletion=complete_key,
        help="Fit on the file itself, each family, gpu or engine left out in turn, and judge what was left out.",
        show_default=False,
    ),
]
Jobs = Annotated[
    int | None,
    typer.Option(
        "--jobs",
        metavar="N",
        min=1,
        help="Fits side by side with --leave-out. [default: the processors, up to 8]",
        show_default=False,
    ),
]


def validate(
    kind: Annotated[
        str,
        typer.Argument(metavar="KIND", autocompletion=complete_kind, help="training or inference.", show_default=False),
    ],
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE", help="A CSV table of measurements; its columns: docs/accuracy.md.", show_default=False
        ),
    ],
    leave_out: LeaveOut = None,
    calibration: options.CalibrationFile = None,
    memory_margin: options.MemoryMargin = None,
    jobs: Jobs = None,
    catalog: options.CatalogFolder = None,
    output: options.Output = None,
    quiet: options.Quiet = False,
) -> None:
    """Predict every row of a table of measurements and print the error: median, 90th percentile, bias, coverage.

    By metric, GPU and model family; rows that cannot be judged by reason; rows marked suspect apart.
    """
    check_key(leave_out)
    session = open_session(output=output, catalog=catalog, calibration=calibration, quiet=quiet)
    from tonnage.calibration.kinds import kind_named
    from tonnage.reports.validation import ValidationContext, validation_report

    wanted = kind_named(kind)
    if leave_out is not None:
        wanted.key(leave_out)
    used = _calibration(session.settings)
    with Meter(quiet=quiet) as meter:
        found = _validated(wanted, Path(file), leave_out, used, memory_margin, jobs, session.settings, meter)
    made_on = None if used is None or leave_out is not None else used.made_on
    context = ValidationContext(kind=wanted.name, file=Path(file).name, left_out=leave_out, calibration=made_on)
    session.show(validation_report(found, context))
    if not found.predicted:
        session.say(_why_nothing(found, file))


def check_key(leave_out: str | None) -> None:
    """InputError unless `leave_out` is something one can leave out."""
    if leave_out is not None and leave_out not in _KEYS:
        from tonnage.errors import InputError

        raise InputError(f"'{leave_out}' cannot be left out", hint="--leave-out takes family, gpu or engine")


def _validated(
    kind: Kind,
    path: Path,
    leave_out: str | None,
    used: Calibration | None,
    memory_margin: float | None,
    jobs: int | None,
    settings: Settings,
    meter: Meter,
) -> ValidationReport:
    from tonnage.api import load_catalog
    from tonnage.calibration.validating import validate_file, validate_left_out

    known = load_catalog(settings=settings)
    if leave_out is None:
        return validate_file(kind, path, known, used, memory_margin=memory_margin, on_rows=meter.rows)
    from tonnage.calibration.leave_out import usual_jobs

    return validate_left_out(
        kind, path, known, leave_out=leave_out, start=used, memory_margin=memory_margin, jobs=jobs or usual_jobs(),
        on_step=meter.step,
    )  # fmt: skip


def _calibration(settings: Settings) -> Calibration | None:
    from tonnage.calibration.store import load_calibration, read_calibration

    return load_calibration() if settings.calibration is None else read_calibration(settings.calibration)


def _why_nothing(found: ValidationReport, file: str) -> str:
    if not found.rows:
        return f"{file} has a header and no rows"
    if found.suspect.rows == found.rows:
        return f"all rows of {file} are marked suspect; they are counted apart"
    return f"no row of {file} could be judged; the report counts the reasons"
