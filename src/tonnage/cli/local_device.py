"""`--device` of `tonnage size` and `tonnage plan`: training or an encoder service on a device measured here."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tonnage.errors import InputError, NothingFits

if TYPE_CHECKING:
    from tonnage.calibration.local_profile import DeviceProfile
    from tonnage.cli.session import Session
    from tonnage.planning.reasons.misses import Miss
    from tonnage.workload.jobs import BatchJob, ServeJob, Workload


def complete_device(incomplete: str) -> list[str]:
    from tonnage.calibration.local_file import stored_profiles
    from tonnage.settings import load_settings

    names = ["local", *(path.stem for path in stored_profiles(load_settings({}, os.environ, Path.cwd()).home))]
    return [name for name in names if name.startswith(incomplete)]


Device = Annotated[
    str | None,
    typer.Option(
        "--device",
        metavar="NAME",
        autocompletion=complete_device,
        help="A measured device instead of the catalog: local (this machine), a profile's name or its file.",
        show_default=False,
    ),
]
OtherMachine = Annotated[
    bool, typer.Option("--other-machine", help="With --device: the profile may be of another machine than this.")
]


def refuse_beside_device(given: Mapping[str, object]) -> None:
    """InputError where an option is given that chooses among what is for sale."""
    for name, value in given.items():
        if value:
            raise InputError(
                f"{name} chooses among what is for sale; --device names one machine", hint="give one of both"
            )


def show_on_device(
    session: Session, file: str, device: str, *, memory_margin: float | None, other_machine: bool,
    limits: Mapping[str, Any] | None = None,
) -> None:  # fmt: skip
    """Print the prediction; NothingFits where the device does not hold the workload's limits (`limits` in place of its
    own)."""
    from tonnage.api import load_catalog, load_workload
    from tonnage.api.measured_here import with_own_rows
    from tonnage.benchmarks.machine import host_identity
    from tonnage.calibration.local_file import find_profile
    from tonnage.calibration.store import read_calibration
    from tonnage.overrides import override_constraints
    from tonnage.planning.local import broken_limits, predict_local, training_job
    from tonnage.reports.local import local_report
    from tonnage.reports.reasons import miss_words
    from tonnage.workload.jobs import BatchJob, ServeJob

    settings = session.settings
    known = with_own_rows(find_profile(device, settings.home, host_identity(), other_machine=other_machine), settings)
    profile = known.profile
    _tell_left_out(session, known.left_out)
    market = load_catalog(settings=settings)
    workload = override_constraints(load_workload(file, catalog=market, settings=settings), market, **(limits or {}))
    if isinstance(workload.job, (ServeJob, BatchJob)):
        broken = _show_service(session, workload, workload.job, profile)
    else:
        own = None if settings.calibration is None else read_calibration(settings.calibration)
        made = predict_local(training_job(workload), profile, own, memory_margin=memory_margin)
        broken = broken_limits(made, workload.constraints)
        session.show(local_report(workload.name, made, broken))
    if broken:
        first = broken[0]
        raise NothingFits(
            f"{profile.name} does not hold {workload.name}: {first.binding} {miss_words(first).clause}",
            hint="`tonnage plan` without --device ranks what can be bought",
        )


def _show_service(
    session: Session, workload: Workload, job: ServeJob | BatchJob, profile: DeviceProfile
) -> tuple[Miss, ...]:
    """Print what one server on the device does; the limits that it does not hold."""
    from tonnage.api.local_service import predict_here
    from tonnage.planning.local_service import broken_service_limits
    from tonnage.reports.local_service import local_service_report

    made = predict_here(job, session.settings, profile=profile)
    _tell_left_out(session, made.left_out)
    broken = broken_service_limits(made.found, workload.constraints)
    session.show(local_service_report(workload.name, made.found, broken))
    return broken


def _tell_left_out(session: Session, reasons: Sequence[str]) -> None:
    if reasons:
        session.say(f"measured rows left out: {len(reasons)}, the first: {reasons[0]}")
