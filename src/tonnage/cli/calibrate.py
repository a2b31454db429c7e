"""`tonnage calibrate`: fit the physical parameters to measured rows; with --local, measure this machine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tonnage.cli import options
from tonnage.cli.meter import Meter
from tonnage.cli.session import Session, open_session
from tonnage.cli.validate import Jobs, check_key, complete_key

if TYPE_CHECKING:
    from tonnage.calibration.local_profile import DeviceKind, DeviceProfile

_DEVICES = ("cpu", "cuda")


def complete_kind_of_device(incomplete: str) -> list[str]:
    return [name for name in _DEVICES if name.startswith(incomplete)]


def calibrate(
    training: Annotated[
        str | None, typer.Option("--training", metavar="FILE", help="Measured training runs, CSV.", show_default=False)
    ] = None,
    inference: Annotated[
        str | None, typer.Option("--inference", metavar="FILE", help="Measured inference, CSV.", show_default=False)
    ] = None,
    peaks: Annotated[
        list[str] | None,
        typer.Option(
            "--peaks", metavar="FILE", show_default=False,
            help="Training runs, CSV, whose memory peaks no fit sees: intervals rest on them too. Repeatable.",
        ),
    ] = None,
    out: Annotated[
        str | None,
        typer.Option(
            "--out", metavar="FILE", help="Where the result goes, JSON. [default with --local: home]",
            show_default=False,
        ),
    ] = None,
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
    local: Annotated[bool, typer.Option("--local", help="Measure this machine into a device profile.")] = False,
    device: Annotated[
        str | None,
        typer.Option(
            "--device", metavar="KIND", autocompletion=complete_kind_of_device, show_default=False,
            help="With --local: cpu or cuda. [default: the GPU where there is one]",
        ),
    ] = None,
    threads: Annotated[
        str | None,
        typer.Option(
            "--threads", metavar="N,...", help="With --local: thread counts. [default: 1 and all physical cores]",
            show_default=False,
        ),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="With --local: fewer sizes and repeats.")] = False,
    usd_per_hour: Annotated[
        float | None,
        typer.Option(
            "--usd-per-hour", metavar="USD", help="With --local: what an hour of this machine costs.",
            show_default=False,
        ),
    ] = None,
    rows: Annotated[
        str | None,
        typer.Option(
            "--rows", metavar="FILE", help="With --local: rows measured here, CSV, into the profile; nothing is timed.",
            show_default=False,
        ),
    ] = None,
    export: Annotated[
        str | None,
        typer.Option(
            "--export", metavar="FILE", help="With --local: the profile's rows as CSV; nothing is timed.",
            show_default=False,
        ),
    ] = None,
    catalog: options.CatalogFolder = None,
    as_of: options.AsOf = None,
    output: options.Output = None,
    quiet: options.Quiet = False,
) -> None:  # fmt: skip
    """Fit the physical parameters to measured runs, leaving each family out in turn; write a calibration file.

    The residuals of what was left out give the 80 % intervals. The same files and clock give the same bytes.
    With --local instead: measure this machine (under a minute) into a device profile, for `tonnage size FILE
    --device local`; --rows adds measured runs to it, which narrow its intervals.
    """
    session = open_session(output=output, as_of=as_of, catalog=catalog, quiet=quiet)
    if local:
        published = {"--training": training, "--inference": inference, "--peaks": peaks}
        _refuse(published, "is for published runs; leave out --local")
        calibrate_local(
            session, kind=_kind(device), out=out, threads=_threads(threads), quick=quick, usd_per_hour=usd_per_hour,
            rows=rows, export=export,
        )  # fmt: skip
        return
    given = {
        "--device": device,
        "--threads": threads,
        "--quick": quick,
        "--usd-per-hour": usd_per_hour,
        "--rows": rows,
        "--export": export,
    }
    _refuse(given, "goes with --local")
    check_key(leave_out)
    training, inference, out = (
        _needed(value, name) for name, value in (("--training", training), ("--inference", inference), ("--out", out))
    )
    _calibrate_published(session, training, inference, [Path(one) for one in peaks or ()], out, leave_out, jobs)


def _calibrate_published(
    session: Session, training: str, inference: str, peaks: list[Path], out: str, leave_out: str, jobs: int | None
) -> None:
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
    with Meter(quiet=session.quiet) as meter:
        parts = [
            cross_validate(
                kinds[name], path, known, leave_out=leave_out, peaks=peaks if name == "training" else (),
                jobs=jobs or usual_jobs(), on_step=meter.step,
            )
            for name, path in files.items()
        ]  # fmt: skip
    made = make_calibration(parts, made_on=day, left_out=leave_out)
    save_calibration(made, Path(out))
    session.show(calibration_report(made, out))


def calibrate_local(
    session: Session,
    *,
    kind: DeviceKind,
    out: str | None,
    threads: tuple[int, ...],
    quick: bool,
    usd_per_hour: float | None,
    rows: str | None,
    export: str | None,
) -> None:
    """Measure, or add rows to what was measured; save and show the profile."""
    from dataclasses import replace

    from tonnage.calibration.local_file import save_profile
    from tonnage.calibration.local_rows import is_read, read_rows, rows_csv, update
    from tonnage.files import save_for_user
    from tonnage.reports.local import profile_report

    _check_price(usd_per_hour)
    if rows is None and export is None:
        profile = _measured(session, kind, out, threads, quick, usd_per_hour)
    else:
        profile = _known_profile(session, out)
    if export is not None:
        save_for_user(Path(export), rows_csv(profile.rows), parents=True)
        session.say(f"{len(profile.rows)} rows written to {export}")
        if rows is None:
            return
    if rows is not None:
        given = read_rows(Path(rows))
        profile = update(profile, given)
        unread = sum(not is_read(row) for row in given)
        if unread:
            session.say(f"{unread} rows left out: suspect, or of a metric that a local fit does not read")
        if usd_per_hour is not None:
            profile = replace(profile, usd_per_hour=usd_per_hour)
    place = _place(session, out, profile.name)
    if out is None:
        session.private_home()
    save_profile(profile, place)
    session.show(profile_report(profile, str(place)))


def _measured(
    session: Session, kind: DeviceKind, out: str | None, threads: tuple[int, ...], quick: bool, usd: float | None
) -> DeviceProfile:
    """A new profile; rows and price of one that stood in its place are kept."""
    from dataclasses import replace
    from datetime import UTC, datetime

    from tonnage.benchmarks.local import Prior, measure_device
    from tonnage.benchmarks.machine import check_memory
    from tonnage.calibration.local_file import read_profile
    from tonnage.calibration.store import load_calibration
    from tonnage.errors import InputError
    from tonnage.planning.local import prior_log_sds

    check_memory()
    packaged = load_calibration()
    time_sd, memory_sd = prior_log_sds(packaged)
    source = "judgement" if packaged is None else f"left-out residuals of the calibration of {packaged.made_on}"
    with Meter(quiet=session.quiet) as meter:
        profile = measure_device(
            kind, prior=Prior(time_log_sd=time_sd, memory_log_sd=memory_sd, source=source),
            now=session.settings.as_of or datetime.now(UTC), threads=threads, quick=quick, usd_per_hour=usd,
            on_step=lambda what, done, of: meter.show(f"{what} ({done} of {of}) ..." if of else f"{what} ..."),
        )  # fmt: skip
    place = _place(session, out, profile.name)
    if not place.is_file():
        return profile
    before = read_profile(place)
    if before.name != profile.name:
        raise InputError(f"{place} is a profile of {before.name}", hint="name another --out")
    if before.rows:
        session.say(f"{len(before.rows)} rows measured on this device are kept")
    return replace(profile, rows=before.rows, usd_per_hour=before.usd_per_hour if usd is None else usd)


def _known_profile(session: Session, out: str | None) -> DeviceProfile:
    from tonnage.benchmarks.machine import host_identity
    from tonnage.calibration.local_file import find_profile, read_profile

    if out is not None and Path(out).is_file():
        return read_profile(Path(out))
    return find_profile("local", session.settings.home, host_identity())


def _place(session: Session, out: str | None, name: str) -> Path:
    from tonnage.calibration.local_file import devices_folder

    return Path(out) if out is not None else devices_folder(session.settings.home) / f"{name}.json"


def _kind(device: str | None) -> DeviceKind:
    """As asked; else what runs here compute on: the GPU where torch sees one."""
    from tonnage.benchmarks.machine import usual_kind
    from tonnage.errors import InputError

    if device is None:
        return usual_kind()
    if device == "cpu":
        return "cpu"
    if device == "cuda":
        return "cuda"
    raise InputError(f"'{device}' is no kind of device", hint="--device takes cpu or cuda")


def _threads(text: str | None) -> tuple[int, ...]:
    from tonnage.errors import InputError

    if text is None:
        return ()
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"--threads: found '{text}', expected whole numbers such as 1,2") from None


def _check_price(usd_per_hour: float | None) -> None:
    from tonnage.errors import InputError

    if usd_per_hour is not None and not 0 <= usd_per_hour < 1e6:  # NaN fails too
        raise InputError(f"--usd-per-hour: found {usd_per_hour}, expected US dollars of at least zero")


def _refuse(given: Mapping[str, object], why: str) -> None:
    from tonnage.errors import InputError

    for name, value in given.items():
        if value:
            raise InputError(f"{name} {why}", hint="`tonnage calibrate --help` shows what goes together")


def _needed(value: str | None, name: str) -> str:
    from tonnage.errors import InputError

    if value is None:
        hint = "published runs: --training, --inference and --out; or --local to measure this machine"
        raise InputError(f"Missing option '{name}'", hint=hint)
    return value
