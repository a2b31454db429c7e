"""Which judgements a plan of one kind of work uses: those of sizing, and those of starting and interrupting."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tonnage.planning.calibrated_model import CalibratedModel, generates
from tonnage.planning.offers.spot_columns import Z80
from tonnage.pricing.interruptions import STARTUP_SOURCE, Terms
from tonnage.sizing.assumption_table import Assumption, listed
from tonnage.sizing.assumptions import HostAssumptions
from tonnage.sizing.host import host_item, used_assumptions
from tonnage.sizing.inference_memory import CUBLAS_WORKSPACE_BYTES, cublas_alone
from tonnage.sizing.tabular_assumptions import TabularAssumptions
from tonnage.spot_instances.drawing import mean_h
from tonnage.spot_instances.knowledge import other_machines
from tonnage.spot_instances.saves import WRITE_GB_PER_S, WRITE_RANGE, WRITE_SOURCE
from tonnage.units import to_gib
from tonnage.workload.jobs import BatchJob, ServeJob, TabularJob, TrainJob, Workload

SERVING_ONLY: Final = ("kv_cache_memory_fraction", "target_utilisation")
# Rates of inference are figures of the engine (sizing/engines.py), and so is what an engine that generates keeps beside
# weights and cache (sizing/kv_pool.py).
SERVING: Final = ("power_limited_fraction", "target_utilisation")
PASSES: Final = ("runtime_context_gib", "collective_buffers_gib", "library_workspace_gib", "kv_cache_memory_fraction")
CUBLAS_WORKSPACE: Final = Assumption(
    name="cublas_workspace_gib", value=to_gib(CUBLAS_WORKSPACE_BYTES), low=to_gib(CUBLAS_WORKSPACE_BYTES / 4),
    high=to_gib(CUBLAS_WORKSPACE_BYTES),
    source="cuBLAS's workspace as PyTorch sets it (notes on CUDA semantics): 32 MiB on Hopper, 8 before",
)  # fmt: skip


def assumptions_used(workload: Workload, calibrated: CalibratedModel) -> tuple[Assumption, ...]:
    """The judgements behind a plan of `workload`, with ranges and sources; what the workload states is none."""
    return (*_sizing(workload, calibrated), *host_assumed(workload), *terms_assumed(workload))


def host_assumed(workload: Workload) -> tuple[Assumption, ...]:
    """The judgements behind what the host gets ready."""
    assumed = HostAssumptions()
    return used_assumptions(host_item(workload.job, workload.host, assumed), assumed)


def engine_figures(job: ServeJob | BatchJob, calibrated: CalibratedModel) -> tuple[Assumption, ...]:
    """What the engine's class costs, figure by figure: value, range it may take, what it means and what it rests on."""
    engine = calibrated.engine(job)
    fitted = calibrated.inference
    rows = fitted.rows.get(engine.name, 0) if fitted else 0
    named = f"{job.engine} is of the class {engine.name}" if job.engine else f"engine class {engine.name}, the default"
    behind = f"fitted to {rows:,} measured rows of its class" if rows else "judgement: no measured row of its class"
    convolves = job.model.architecture == "convolution"
    return tuple(
        replace(
            one,
            name=f"{engine.name}.{one.name}",
            source=f"{named}: {one.source}; {behind}",
            fitted_by=one.fitted_by if rows else "",
        )
        for one in listed(engine)
        if one.value > 0 and (convolves or not one.name.startswith("convolution"))
    )


def terms_assumed(workload: Workload) -> tuple[Assumption, ...]:
    """Terms of starting, saving and losing machines that the workload leaves to us."""
    buy, found = workload.buy, []
    if buy.startup_s is None:
        low, high, source = STARTUP_SOURCE
        found.append(Assumption(name="startup_s", value=Terms().startup_s, low=low, high=high, source=source))
    if "spot" not in buy.purchases or workload.is_service:
        return tuple(found)
    if not isinstance(workload.job, BatchJob):
        low, high = WRITE_RANGE
        found.append(
            Assumption(name="checkpoint_gb_per_s", value=WRITE_GB_PER_S, low=low, high=high, source=WRITE_SOURCE)
        )
    if buy.interruptions_per_hour is None:
        far = other_machines().model
        ends = [1.0 / mean_h(far.up, sign * Z80) for sign in (-1.0, 0.0, 1.0)]
        found.append(
            Assumption(
                name="spot_interruptions_per_hour",
                value=ends[1],
                low=ends[0],
                high=ends[2],
                source=f"of machines that neither traces nor a published band speak of: {far.source}, mean of the "
                "typical zone; each spot option names its own",
            )
        )
    return tuple(found)


def _sizing(workload: Workload, calibrated: CalibratedModel) -> tuple[Assumption, ...]:
    job = workload.job
    if isinstance(job, TabularJob):
        return listed(TabularAssumptions())
    judgements = listed(calibrated.assumed)
    if not isinstance(job, TrainJob):
        return (*_served(job, judgements, calibrated), *engine_figures(job, calibrated))
    unused = {*SERVING_ONLY, "collective_buffers_gib"}
    if job.model.architecture != "convolution":
        unused |= {"convolution_peak_fraction", "training_convolution_fraction"}
    return tuple(one for one in judgements if one.name not in unused)


def _served(
    job: ServeJob | BatchJob, judgements: tuple[Assumption, ...], calibrated: CalibratedModel
) -> tuple[Assumption, ...]:
    """The judgements that figures of a served model hang on: those of its memory where it answers in one pass."""
    if generates(job):
        return tuple(one for one in judgements if one.name in SERVING)
    alone = cublas_alone(calibrated.engine(job), job.model)
    mine = {*SERVING, *PASSES} - ({"library_workspace_gib"} if alone else set())
    return (*(one for one in judgements if one.name in mine), *((CUBLAS_WORKSPACE,) if alone else ()))
