"""Which devices a named engine runs on."""

from __future__ import annotations

from collections.abc import Sequence

from tonnage.catalog import Catalog
from tonnage.catalog.market import InstanceType
from tonnage.planning.changes import job_with
from tonnage.planning.grounds import generates
from tonnage.planning.machines import Key
from tonnage.planning.sized import Miss
from tonnage.sizing.devices import SIZED_VENDORS
from tonnage.sizing.engines import nvidia_only
from tonnage.workload.jobs import BatchJob, ServeJob


def refused_by_engine(job: ServeJob | BatchJob, catalog: Catalog, instances: Sequence[InstanceType]) -> dict[Key, Miss]:
    """A miss for each instance type whose devices the job's engine does not run on. Vendors that are not sized at all
    are refused elsewhere."""
    if job.engine is None or not nvidia_only(job.engine):
        return {}
    others = {
        one.name: one.vendor for one in catalog.accelerators if one.vendor in SIZED_VENDORS and one.vendor != "NVIDIA"
    }
    return {
        one.key: _other_vendor(job, others[one.accelerator])
        for one in instances
        if one.accelerator is not None and one.accelerator in others
    }


def _other_vendor(job: ServeJob | BatchJob, vendor: str) -> Miss:
    first, second = ("vllm", "sglang") if generates(job) else ("onnxruntime", "pytorch")
    return Miss(
        binding="hardware",
        needs=f"NVIDIA devices: the engine {job.engine} runs on NVIDIA devices only",
        has=f"{vendor} devices",
        flips_when=f"engine: {first} (or {second}), which run there",
        change=job_with(engine=first),
    )
