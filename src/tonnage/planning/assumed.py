"""Which judgements a plan of one kind of work stands on: those of sizing, and those of starting and interrupting."""

from __future__ import annotations

from typing import Final

from tonnage.pricing.interruptions import TERMS_SOURCES, Terms
from tonnage.sizing.assumptions import Assumption, Assumptions, listed
from tonnage.sizing.tabular_assumptions import TabularAssumptions, listed_tabular
from tonnage.workload.jobs import Buy, TabularJob, TrainJob, Workload

SERVING_ONLY: Final = ("kv_cache_memory_fraction", "target_utilisation")
SERVING: Final = (  # rates of inference are figures of the engine: sizing/engines.py
    "power_limited_fraction",
    "runtime_context_gib",
    "collective_buffers_gib",
    "library_workspace_gib",
    *SERVING_ONLY,
)


def assumptions_used(workload: Workload, assumed: Assumptions) -> tuple[Assumption, ...]:
    """The judgements behind a plan of `workload`, with ranges and sources; what the workload states is none."""
    return (*_sizing(workload, assumed), *terms_assumed(workload.buy))


def terms_assumed(buy: Buy) -> tuple[Assumption, ...]:
    """Start-up, checkpoint and interruption terms that the workload leaves to us."""
    default = Terms()
    left = {"checkpoint_s": default.checkpoint_s}
    if buy.startup_s is None:
        left["startup_s"] = default.startup_s
    if buy.interruptions_per_hour is None and "spot" in buy.purchases:
        left["interruptions_per_hour"] = default.interruptions_per_hour
    if "spot" not in buy.purchases:
        del left["checkpoint_s"]
    return tuple(
        Assumption(name=name, value=left[name], low=low, high=high, source=source)
        for name, (low, high, source) in TERMS_SOURCES.items()
        if name in left
    )


def terms_note(buy: Buy) -> str | None:
    """One sentence for the plan: what was assumed about starting and interruptions."""
    words = {
        "startup_s": ("start-up of {} min", 60.0),
        "checkpoint_s": ("{} s a checkpoint", 1.0),
        "interruptions_per_hour": ("{} interruptions an instance-hour on spot", 1.0),
    }
    parts = []
    for one in terms_assumed(buy):
        text, unit = words[one.name]
        parts.append(f"{text.format(f'{one.value / unit:g}')} ({one.low / unit:g} to {one.high / unit:g})")
    return "assumed, as the workload does not say: " + "; ".join(parts) if parts else None


def _sizing(workload: Workload, assumed: Assumptions) -> tuple[Assumption, ...]:
    job = workload.job
    if isinstance(job, TabularJob):
        return listed_tabular(TabularAssumptions())
    judgements = listed(assumed)
    if not isinstance(job, TrainJob):
        return tuple(one for one in judgements if one.name in SERVING)
    unused = {*SERVING_ONLY, "collective_buffers_gib"}
    if job.model.architecture != "convolution":
        unused |= {"convolution_peak_fraction", "training_convolution_fraction"}
    return tuple(one for one in judgements if one.name not in unused)
