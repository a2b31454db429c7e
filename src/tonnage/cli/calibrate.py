"""`tonnage calibrate`: fit the few physical parameters to measured rows, cross-validated, into a calibration file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tonnage.cli import options
from tonnage.cli.meter import Meter
from tonnage.cli.session import open_session
from tonnage.cli.validate import Jobs, check_key, complete_key


def calibrate(
    training: Annotated[
        str, typer.Option("--training", metavar="FILE", help="Measured training runs, CSV.", show_default=False)
    ],
    inference: Annotated[
        str, typer.Option("--inference", metavar="FILE", help="Measured inference, CSV.", show_default=False)
    ],
    out: Annotated[
        str, typer.Option("--out", metavar="FILE", help="Where the calibration goes, JSON.", show_default=False)
    ],
    leave_out: Annotated[
        str,
        typer.Option(
            "--leave-out",
            metavar="WHAT",
            autocompletion=complete_key,
            help="What cross-validation leaves out in turn: family or gpu.",
        ),
    ] = "family",
    jobs: Jobs = None,
    catalog: options.CatalogFolder = None,
    as_of: options.AsOf = None,
    output: options.Output = None,
    quiet: options.Quiet = False,
) -> None:
    """Fit the physical parameters to measured runs, leaving each family out in turn; write a calibration file.

    The residuals of what was left out give the 80 % intervals. The same files and clock give the same bytes.
    """
    check_key(leave_out)
    session = open_session(output=output, as_of=as_of, catalog=catalog, quiet=quiet)
    from datetime import UTC, datetime

    from tonnage.api import load_catalog
    from tonnage.calibration.calibrating import cross_validate, make_calibration
    from tonnage.calibration.kinds import kind_named
    from tonnage.calibration.leave_out import usual_jobs
    from tonnage.calibration.store import save_calibration
    from tonnage.errors import InputError
    from tonnage.reports.validation_calibration import calibration_report

    if not Path(out).parent.is_dir():
        raise InputError(f"{Path(out).parent} is no folder", hint="make it first, or name another --out")
    known = load_catalog(settings=session.settings)
    day = (session.settings.as_of or datetime.now(UTC)).date().isoformat()
    files = {"training": Path(training), "inference": Path(inference)}
    kinds = {name: kind_named(name) for name in files}
    for kind in kinds.values():
        kind.key(leave_out)
    with Meter(quiet=quiet) as meter:
        parts = [
            cross_validate(kinds[name], path, known, leave_out=leave_out, jobs=jobs or usual_jobs(), on_step=meter.step)
            for name, path in files.items()
        ]
    made = make_calibration(parts, made_on=day, left_out=leave_out)
    save_calibration(made, Path(out))
    session.show(calibration_report(made, out))
