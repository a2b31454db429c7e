"""Which devices a named engine runs on, and in which format its weights run there."""

from __future__ import annotations

from collections.abc import Sequence

from tonnage.catalog import Catalog
from tonnage.catalog.hardware import Accelerator
from tonnage.catalog.market import InstanceType
from tonnage.planning.calibrated_model import generates
from tonnage.planning.layouts.machines import Key
from tonnage.planning.reasons.changes import SetField
from tonnage.planning.reasons.misses import Miss, NoFp8Miss, NoMxfp4Miss, NvidiaOnlyMiss
from tonnage.sizing.devices import SIZED_VENDORS
from tonnage.sizing.engines import nvidia_only
from tonnage.sizing.served_weights import lacks_fp8, lacks_mxfp4, served_weights
from tonnage.workload.engine_models import not_run
from tonnage.workload.jobs import BatchJob, ServeJob


def by_weights(
    job: ServeJob | BatchJob, catalog: Catalog, instances: Sequence[InstanceType]
) -> list[tuple[str, list[InstanceType]]]:
    """Instance types by the format that the job's weights run in there (keys of `FORMATS`)."""
    groups: dict[str, list[InstanceType]] = {job.weights: []}
    for one in instances:
        weights: str = job.weights
        if one.accelerator is not None and generates(job):
            weights = served_weights(job.weights, job.engine, catalog.accelerator(one.accelerator))
        groups.setdefault(weights, []).append(one)
    return list(groups.items())


def refused_by_engine(job: ServeJob | BatchJob, catalog: Catalog, instances: Sequence[InstanceType]) -> dict[Key, Miss]:
    """A miss for each instance type whose devices the job's engine does not run on, or not with these weights. Vendors
    that are not sized at all are refused elsewhere."""
    if job.engine is None:
        return {}
    found = {
        one.key: _refused(job, job.engine, catalog.accelerator(one.accelerator))
        for one in instances
        if one.accelerator is not None
    }
    return {key: miss for key, miss in found.items() if miss is not None}


def _refused(job: ServeJob | BatchJob, engine: str, device: Accelerator) -> Miss | None:
    if nvidia_only(engine) and device.vendor in SIZED_VENDORS and device.vendor != "NVIDIA":
        return _other_vendor(job, engine, device.vendor)
    if job.weights == "fp8" and generates(job) and lacks_fp8(device):
        return None if served_weights(job.weights, engine, device) != job.weights else _no_fp8(job, engine, device)
    if job.weights == "mxfp4" and lacks_mxfp4(engine, device):
        other = () if lacks_mxfp4("vllm", device) else _another(job, "vllm")
        return NoMxfp4Miss(engine=engine, device=device.name, lifted_by=other)
    return None


def _no_fp8(job: ServeJob | BatchJob, engine: str, device: Accelerator) -> Miss:
    return NoFp8Miss(engine=engine, device=device.name, lifted_by=_another(job, "vllm", "sglang"))


def _other_vendor(job: ServeJob | BatchJob, engine: str, vendor: str) -> Miss:
    others = ("vllm", "sglang", "tgi") if generates(job) else ("onnxruntime", "pytorch")
    return NvidiaOnlyMiss(engine=engine, vendor=vendor, lifted_by=_another(job, *others))


def _another(job: ServeJob | BatchJob, *engines: str) -> tuple[SetField, ...]:
    """The first two of the engines that run the job's model; none where none does."""
    running = [one for one in engines if not_run(one, job.model) is None][:2]
    return (SetField(key="engine", value=running[0], alike=tuple(running[1:])),) if running else ()
