"""Runs at places: which executor carries one, what its place says of it, and the end it tells the journal."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tonnage.errors import InputError, PlanRefused, TonnageError

if TYPE_CHECKING:
    from tonnage.api.place_prices import HourlyPrice
    from tonnage.places.bucket.cloud import CloudJobs
    from tonnage.places.contract import Executor, PlaceFinding
    from tonnage.places.file import AnyPlace, CloudPlace, ReadPlaces, WrittenPlace
    from tonnage.places.states import PlaceState
    from tonnage.runs.folder import RunFolder
    from tonnage.runs.job import Job
    from tonnage.runs.preflight import LocalMachine
    from tonnage.runs.spec import RunSpec
    from tonnage.settings import Settings

NO_PREDICTION: Final = (
    "the machines of {place} have not been measured; `like_this_machine = true` says that this one is"
)


def known_places(settings: Settings, *, only: str | None = None) -> ReadPlaces:
    """Every place that is written down, or the one of a name."""
    from tonnage.places.file import places_files, read_places

    return read_places(places_files(settings.home, Path.cwd()), only=only)


def executor_at(settings: Settings, on: str) -> Executor:
    """The executor of a place, or of this machine as `local`. UnknownName where it is not in places.toml,
    InputError where it is wrong there."""
    from tonnage.places.file import LOCAL, find_place, name_of

    if on == LOCAL:
        from tonnage.api.local_place import this_machine

        return this_machine()
    wanted = name_of(on)
    read = known_places(settings, only=wanted)
    if wanted not in read.names:  # say which there are
        read = known_places(settings)
    name, place = find_place(on, read, home=settings.home)
    return _executor(name, place)


def _executor(name: str, place: WrittenPlace) -> Executor:
    match place.kind:
        case "slurm":
            from tonnage.places.slurm.executor import Slurm

            return Slurm(name=name, place=place)
        case "ssh":
            from tonnage.places.ssh.executor import SSHMachine

            return SSHMachine(name=name, place=place)
        case "kubernetes":
            from tonnage.places.kubernetes.executor import Kubernetes

            return Kubernetes(name=name, place=place)
        case "gce":
            from tonnage.places.google.compute import Compute
            from tonnage.places.google.runs import ComputeRuns

            return ComputeRuns(kind=place.kind, name=name, place=place, cloud=Compute(name=name, place=place))
        case "ray":
            from tonnage.places.ray.jobs import RayJobs, RayRuns

            return RayRuns(kind=place.kind, name=name, place=place, cloud=RayJobs(name=name, place=place))
        case "spark":
            from tonnage.places.spark.jobs import SparkJobs, SparkRuns

            return SparkRuns(kind=place.kind, name=name, place=place, cloud=SparkJobs(name=name, place=place))
        case _:
            from tonnage.places.bucket.executor import BucketRuns

            return BucketRuns(kind=place.kind, name=name, place=place, cloud=_cloud(name, place))


def _cloud(name: str, place: CloudPlace) -> CloudJobs:
    """What starts and ends machines of a place whose runs need nothing more of their own."""
    match place.kind:
        case "databricks":
            from tonnage.places.databricks.jobs import DatabricksJobs

            return DatabricksJobs(name=name, place=place)
        case "vertex":
            from tonnage.places.google.vertex import VertexJobs

            return VertexJobs(name=name, place=place)
        case "azure":
            from tonnage.places.azure.scale_sets import AzureScaleSets

            return AzureScaleSets(name=name, place=place)
        case "azureml":
            from tonnage.places.azure.jobs import AzureMLJobs

            return AzureMLJobs(name=name, place=place)
        case "digitalocean":
            from tonnage.places.digitalocean.droplets import Droplets

            return Droplets(name=name, place=place)
        case "skypilot":
            from tonnage.places.skypilot.jobs import SkyPilotJobs

            return SkyPilotJobs(name=name, place=place)
        case "ec2":
            from tonnage.places.aws.ec2 import EC2

            return EC2(name=name, place=place)
        case "aws-batch":
            from tonnage.places.aws.batch import BatchJobs

            return BatchJobs(name=name, place=place)
        case "sagemaker":
            from tonnage.places.aws.sagemaker import SageMaker

            return SageMaker(name=name, place=place)


def executor_of(settings: Settings, folder: RunFolder) -> Executor | None:
    """The executor of the place that a run was submitted to; None of a run of this machine."""
    from tonnage.places.record import read_record

    record = read_record(folder)
    if record is not None:
        return executor_at(settings, record.place)
    place = folder.state().place  # its client died before it had written the record
    return None if place is None else executor_at(settings, place)


def machine_at(place: AnyPlace) -> LocalMachine:
    """The machines of a run at a place as one, as they are written down: the network between them is left out.

    InputError where its GPUs' memory is not."""
    from tonnage.runs.preflight import Gpu, LocalMachine

    if place.gpus and place.gpu_memory_gib is None:
        raise InputError("the place has GPUs of unknown memory", hint="gpu_memory_gib in places.toml")
    gpus = tuple(
        Gpu(name=place.gpu or "gpu", memory_gib=place.gpu_memory_gib or 0.0) for _ in range(place.gpus * place.machines)
    )
    cores, memory_gib = place.cores * place.machines, place.memory_gib * place.machines
    return LocalMachine(cores=cores, memory_gib=memory_gib, gpus=gpus)


def cost_at(place: AnyPlace, prediction: Mapping[str, Any], price: HourlyPrice | None) -> dict[str, Any]:
    """What a run costs there: as predicted, and at most, where its first job takes all of its time."""
    hour, hours = None if price is None else price.usd_per_hour, place.longest_job_h
    return {
        "usd_per_hour": hour,
        "lines": [] if price is None else [one.document() for one in price.lines],
        "predicted_usd": prediction.get("figures", {}).get("cost_usd"),
        "time_limit_h": hours,
        "most_usd_a_job": None if hour is None or hours is None else hour * hours,
    }


def refuse_at(place: str, findings: tuple[PlaceFinding, ...]) -> None:
    """PlanRefused for what prevents the run at its place."""
    refused = [one for one in findings if one.kind == "refused"]
    if refused:
        raise PlanRefused(f"{place}: " + "; ".join(one.message for one in refused), hint=refused[0].hint or None)


def submit_at(executor: Executor, spec: RunSpec, job: Job, folder: RunFolder) -> str:
    """Send a run that is written down; the job's id. Its record counts the submissions."""
    return executor.submit(executor.render(spec, job, folder, number=next_number(folder)), folder)


def next_number(folder: RunFolder) -> int:
    """Of the next submission of a run: 1 where there was none."""
    from tonnage.places.record import read_record

    record = read_record(folder)
    return 1 if record is None else record.number + 1


def settle(settings: Settings, folder: RunFolder) -> str:
    """Ask the place of a run without a supervisor here, and record an end that only the place knows.

    Empty, or why the place could not be asked: the run is then left as it is.
    """
    return _asked(settings, folder)[0]


def look_at_place(settings: Settings, folder: RunFolder) -> str:
    """The same for who reads it: of a run that waits at its place, also why it does, in the place's own words."""
    from tonnage.places.states import PlaceStatus

    fault, found = _asked(settings, folder)
    if found is None or found.status not in {PlaceStatus.QUEUED, PlaceStatus.PROVISIONING, PlaceStatus.PREEMPTED}:
        return fault
    why = f": {found.message}" if found.message else ""
    return f"{folder.path.name} is {found.status.value} at {folder.state().place}{why}"


def _asked(settings: Settings, folder: RunFolder) -> tuple[str, PlaceState | None]:
    """Why the place could not be asked, and what it says of a run whose supervisor is not heard here."""
    from tonnage.runs.liveness import has_supervisor

    state, alive = folder.state(), has_supervisor(folder)
    lies_there = folder.mirror_file.exists()
    if state.place is None or (state.state.ended if not lies_there else state.state.ended and not alive):
        return "", None
    if alive and not lies_there:
        return "", None
    try:
        executor = executor_of(settings, folder)
        assert executor is not None
        executor.logs(folder)
        return "", None if has_supervisor(folder) else _write_end(folder, executor)
    except TonnageError as error:
        return f"{folder.path.name}: {error}", None


def collect_at(settings: Settings, folder: RunFolder) -> str:
    """Bring here all that a run has made where its folder lies elsewhere, and index what it measured.

    Empty, or why that could not be done.
    """
    if not folder.mirror_file.exists():
        return ""
    from tonnage.api.home_runs import keep_rows
    from tonnage.store import open_store

    try:
        executor = executor_of(settings, folder)
        assert executor is not None
        executor.collect(folder)
    except TonnageError as error:
        return f"{error}; `tonnage places collect {folder.path.name}` brings the rest"
    with open_store(settings.database_url) as store:
        store.index_run(folder)
        keep_rows(store, folder)
    return ""


def _write_end(folder: RunFolder, executor: Executor) -> PlaceState:
    """What the place says of a run; an end of which only it knows is written down."""
    from tonnage.places.states import PlaceStatus
    from tonnage.runs.journal import EventKind
    from tonnage.runs.states import RunReason

    found = executor.status(folder)
    ends = {
        PlaceStatus.LOST: (EventKind.LOST, RunReason.SUPERVISOR_LOST),
        PlaceStatus.FAILED: (EventKind.FAILED, RunReason.START_FAILED),
        PlaceStatus.CANCELLED: (EventKind.CANCELLED, RunReason.USER_CANCELLED),
    }
    if found.status not in ends or folder.state().state.ended:
        return found
    kind, reason = ends[found.status]
    words = found.message or "no such job"
    log = folder.path / "place.log"
    where = f"; {log}" if kind is EventKind.FAILED and log.exists() else ""
    folder.record(kind, who="cli", reason=reason.value, message=f"{executor.name} says: {words}{where}")
    return found
