"""An encoder service predicted on this machine: its profile, corrected by the benches that the store holds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from tonnage.errors import UnknownName
from tonnage.settings import Settings
from tonnage.values import dataclass

if TYPE_CHECKING:
    from tonnage.calibration.local_inference import BenchedLoad
    from tonnage.calibration.local_profile import DeviceProfile
    from tonnage.planning.local_service import LocalService
    from tonnage.workload.jobs import BatchJob, ServeJob
    from tonnage.workload.shapes import ModelShape


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedHere:
    """A prediction, the benches of this very service, and why each other bench of the store does not correct it."""

    found: LocalService
    left_out: tuple[str, ...]
    own: tuple[BenchedLoad, ...] = ()


def predict_here(
    job: ServeJob | BatchJob, settings: Settings, *, profile: DeviceProfile | None = None, client_s: float = 0.0
) -> PredictedHere:
    """One server of an encoder on the device of `profile` (by default the newest of this machine).

    Raises InputError where there is no profile, or it does not hold the service.
    """
    from tonnage.benchmarks.machine import host_identity
    from tonnage.calibration.local_file import find_profile
    from tonnage.calibration.local_inference import read_benches
    from tonnage.planning.local_service import predict_service

    known = profile or find_profile("local", settings.home, host_identity())

    def shape_of(row: Mapping[str, str]) -> ModelShape | None:
        return _shape_of(row, job.model)

    benches, left_out = read_benches(_stored(settings), shape_of, known, job.requests.input_tokens)
    found = predict_service(job, known, benches, client_s=client_s)
    own = tuple(one for one in benches if one.id in found.own_benches)
    return PredictedHere(found=found, left_out=left_out, own=own)


def _stored(settings: Settings) -> list[dict[str, str]]:
    """Rows of benches; planning makes no database."""
    from tonnage.store import open_store
    from tonnage.traffic.measured_rows import BENCH_SOURCE

    if settings.database_url.startswith("sqlite:///") and not Path(settings.database_url[10:]).is_file():
        return []
    with open_store(settings.database_url) as store:
        return store.measurements("inference", source=BENCH_SOURCE)


def _shape_of(row: Mapping[str, str], planned: ModelShape) -> ModelShape | None:
    """The planned model where the row is of it, else the known one of that name; None: not known."""
    from tonnage.workload.known import find_model

    if row["model"] == planned.name:
        return planned
    try:
        return find_model(row["model"])
    except UnknownName:
        return None
