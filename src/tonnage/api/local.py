"""This machine measured into a device that plans know: `tonnage.calibrate_local`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tonnage.api.answers import Answer
from tonnage.api.declaring import Options, option
from tonnage.errors import InputError
from tonnage.settings import Settings, current_settings
from tonnage.values import dataclass

if TYPE_CHECKING:
    from tonnage.api.inputs import Clock
    from tonnage.calibration.local_profile import DeviceKind, DeviceProfile

OnMeasure = Callable[[str, int, int], None]  # what is timed, its number, how many there are (0: not known)


def read_counts(flag: str, text: str) -> tuple[int, ...]:
    """Whole numbers with commas between; InputError names the flag.

    >>> read_counts("--threads", "1,2")
    (1, 2)
    """
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"{flag}: found '{text}', expected whole numbers such as 1,2") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalOptions(Options):
    """What `calibrate_local` measures, or adds."""

    device: str | None = option(
        "--device", "With --local: cpu or cuda. [default: the GPU where there is one]", default=None, metavar="KIND"
    )
    threads: tuple[int, ...] = option(
        "--threads", "With --local: thread counts. [default: 1 and all physical cores]",
        default=(), metavar="N,...", read=read_counts,
    )  # fmt: skip
    quick: bool = option("--quick", "With --local: fewer sizes and repeats.", default=False)
    usd_per_hour: float | None = option(
        "--usd-per-hour", "With --local: what an hour of this machine costs.", default=None, metavar="USD"
    )
    services: bool = option(
        "--services",
        "With --local: time encoder services too (a minute or two); what the profile has stays.",
        default=False,
    )
    rows: str | None = option(
        "--rows", "With --local: rows measured here, CSV, into the profile; nothing is timed.",
        default=None, metavar="FILE",
    )  # fmt: skip


def calibrate_local(
    options: LocalOptions | None = None,
    *,
    out: Path | str | None = None,
    as_of: Clock | None = None,
    settings: Settings | None = None,
    on_step: OnMeasure | None = None,
) -> Answer[DeviceProfile]:
    """This machine's processor or GPU measured (under a minute) into a device profile, saved at home or at `out`.

    With `services` the profile that is there gains what encoder servers cost on this processor (a minute or two).
    With `rows` nothing is timed: rows measured here narrow the intervals of the profile that is there. Rows and price
    of the profile that it replaces are kept. Raises InputError for options and files that cannot be used,
    MissingExtra where torch is not installed.
    """
    from tonnage.calibration.local_file import save_profile
    from tonnage.files import make_private_folder
    from tonnage.reports.local import profile_report

    options, settings = options or LocalOptions(), settings or current_settings(as_of=as_of)
    kind = _kind(options.device)
    _check_price(options.usd_per_hour)
    if options.rows is not None:
        profile, remarks = _with_rows(known_profile(out, settings), Path(options.rows), options.usd_per_hour)
    elif options.services:
        profile, remarks = _with_services(options, kind, out, settings, on_step)
    else:
        profile, remarks = _measured(options, kind, out, settings, on_step)
    place = _place(out, profile.name, settings)
    if out is None:
        make_private_folder(settings.home)
    save_profile(profile, place)
    return Answer(profile, partial(profile_report, file=str(place)), remarks=remarks)


def export_local_rows(file: Path | str, *, out: Path | str | None = None, settings: Settings | None = None) -> int:
    """Write the measured rows of this machine's profile (or of the profile `out`) to `file`, CSV; how many they are.

    Raises InputError where there is no such profile.
    """
    from tonnage.calibration.local_rows import rows_csv
    from tonnage.files import save_for_user

    profile = known_profile(out, settings or current_settings())
    save_for_user(Path(file), rows_csv(profile.rows), parents=True)
    return len(profile.rows)


def known_profile(out: Path | str | None, settings: Settings) -> DeviceProfile:
    """The profile at `out` where there is one, else that of this machine at home."""
    from tonnage.benchmarks.machine import host_identity
    from tonnage.calibration.local_file import find_profile, read_profile

    if out is not None and Path(out).is_file():
        return read_profile(Path(out))
    return find_profile("local", settings.home, host_identity())


def _with_services(
    options: LocalOptions, kind: DeviceKind, out: Path | str | None, settings: Settings, on_step: OnMeasure | None
) -> tuple[DeviceProfile, tuple[str, ...]]:
    """The profile that is there, else a new one, with curves of encoder services."""
    from tonnage.api.local_encoders import with_services

    remarks: tuple[str, ...] = ()
    try:
        profile = known_profile(out, settings)
    except InputError:
        profile, remarks = _measured(options, kind, out, settings, on_step)
    if options.usd_per_hour is not None:
        profile = replace(profile, usd_per_hour=options.usd_per_hour)
    return with_services(profile, settings, quick=options.quick, on_step=on_step or _silent), remarks


def _silent(what: str, done: int, of: int) -> None:
    del what, done, of


def _with_rows(profile: DeviceProfile, file: Path, usd_per_hour: float | None) -> tuple[DeviceProfile, tuple[str, ...]]:
    from tonnage.calibration.local_rows import is_read, read_rows, update

    given = read_rows(file)
    updated = update(profile, given)
    unread = sum(not is_read(row) for row in given)
    said = f"{unread} rows left out: suspect, or of a metric that a local fit does not read"
    if usd_per_hour is not None:
        updated = replace(updated, usd_per_hour=usd_per_hour)
    return updated, (said,) if unread else ()


def _measured(
    options: LocalOptions, kind: DeviceKind, out: Path | str | None, settings: Settings, on_step: OnMeasure | None
) -> tuple[DeviceProfile, tuple[str, ...]]:
    """A new profile; rows and price of the one that it replaces are kept."""
    from tonnage.benchmarks.local import Prior, measure_device
    from tonnage.benchmarks.machine import check_memory
    from tonnage.calibration.local_file import read_profile
    from tonnage.calibration.store import load_calibration
    from tonnage.planning.local import prior_log_sds

    check_memory()
    packaged = load_calibration()
    time_sd, memory_sd = prior_log_sds(packaged)
    source = "judgement" if packaged is None else f"left-out residuals of the calibration of {packaged.made_on}"
    profile = measure_device(
        kind, prior=Prior(time_log_sd=time_sd, memory_log_sd=memory_sd, source=source),
        now=settings.as_of or datetime.now(UTC), threads=options.threads, quick=options.quick,
        usd_per_hour=options.usd_per_hour, on_step=on_step,
    )  # fmt: skip
    place = _place(out, profile.name, settings)
    if not place.is_file():
        return profile, ()
    before = read_profile(place)
    if before.name != profile.name:
        raise InputError(f"{place} is a profile of {before.name}", hint="name another --out")
    usd = before.usd_per_hour if options.usd_per_hour is None else options.usd_per_hour
    said = f"{len(before.rows)} rows measured on this device are kept"
    services = tuple(curve for curve in before.curves if curve.of_service)
    kept = replace(profile, rows=before.rows, usd_per_hour=usd, curves=(*profile.curves, *services))
    return kept, (said,) if before.rows else ()


def _place(out: Path | str | None, name: str, settings: Settings) -> Path:
    from tonnage.calibration.local_file import devices_folder

    return Path(out) if out is not None else devices_folder(settings.home) / f"{name}.json"


def _kind(device: str | None) -> DeviceKind:
    """As asked; else what runs here compute on: the GPU where torch sees one."""
    from tonnage.benchmarks.machine import usual_kind

    if device is None:
        return usual_kind()
    if device == "cpu":
        return "cpu"
    if device == "cuda":
        return "cuda"
    raise InputError(f"'{device}' is not a kind of device", hint="--device takes cpu or cuda")


def _check_price(usd_per_hour: float | None) -> None:
    if usd_per_hour is not None and not 0 <= usd_per_hour < 1e6:  # NaN fails too
        raise InputError(f"--usd-per-hour: found {usd_per_hour}, expected US dollars of at least zero")
