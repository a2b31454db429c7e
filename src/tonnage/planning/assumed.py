"""Which judgements a plan of one kind of work stands on: those of sizing, and those of starting and interrupting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from tonnage.catalog import Catalog
from tonnage.planning.grounds import Grounds
from tonnage.planning.plan import Option
from tonnage.planning.spot.drawing import mean_h
from tonnage.planning.spot.knowledge import other_machines
from tonnage.planning.spot.saves import WRITE_GB_PER_S, WRITE_RANGE, WRITE_SOURCE
from tonnage.planning.spot_columns import Z80
from tonnage.pricing.interruptions import STARTUP_SOURCE, Terms
from tonnage.sizing.assumption_table import Assumption, listed
from tonnage.sizing.tabular_assumptions import TabularAssumptions
from tonnage.workload.jobs import BatchJob, ServeJob, TabularJob, TrainJob, Workload

LEFT_OUT_NAMED: Final = 5  # rows of a snapshot that a plan names one by one
SERVING_ONLY: Final = ("kv_cache_memory_fraction", "target_utilisation")
ENGINE_WORDS: Final = {
    "eager": "a framework that launches one kernel an operation",
    "captured": "kernels of a framework, captured and replayed without the host",
    "graph": "a graph runtime that launches one kernel an operation",
    "traced": "a traced graph with some fused kernels",
    "compiled": "a compiler that fuses element-wise work",
    "optimised": "an optimised graph of a general runtime",
    "converted": "a network converted for a fused-kernel engine",
    "library": "hand-written kernels of a library",
    "fused": "fused kernels, captured graphs (TensorRT class)",
    "static-llm": "captured decode steps at a fixed batch",
    "hosted-llm": "decode steps launched by a general framework",
    "llm": "continuous batching behind a compiled scheduler (TensorRT-LLM class)",
    "llm-python": "continuous batching behind a Python scheduler (vLLM class)",
}
CLOSED_FORM: Final = (
    "p95 figures are closed forms for steady arrivals, not simulated. Against the event simulation p95 latency is off "
    "by 5 to 8 % in the median for decoders, and too high for encoders (by 40 % where lengths are alike, 2 to 3 times "
    "where they vary); p95 TTFT by 39 to 56 %"
)
SERVING: Final = (  # rates of inference are figures of the engine: sizing/engines.py
    "power_limited_fraction",
    "runtime_context_gib",
    "collective_buffers_gib",
    "library_workspace_gib",
    *SERVING_ONLY,
)


def assumptions_used(workload: Workload, grounds: Grounds) -> tuple[Assumption, ...]:
    """The judgements behind a plan of `workload`, with ranges and sources; what the workload states is none."""
    return (*_sizing(workload, grounds), *terms_assumed(workload))


def engine_figures(job: ServeJob | BatchJob, grounds: Grounds) -> tuple[Assumption, ...]:
    """What the engine's class costs, figure by figure: value, range it may take, what it means and what it rests on."""
    engine = grounds.engine(job)
    fitted = grounds.inference
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


def prediction_notes(workload: Workload, options: Sequence[Option], grounds: Grounds) -> tuple[str, ...]:
    """What the figures of a plan stand on: the engine, the form of the percentiles, the rows behind the intervals."""
    job, notes = workload.job, []
    if isinstance(job, ServeJob | BatchJob):
        engine = grounds.engine(job)
        chosen = f"{job.engine} (class {engine.name})" if job.engine else f"an engine of the class {engine.name}"
        other = "" if job.engine else "; `engine:` names another"
        notes.append(f"inference figures are those of {chosen}: {ENGINE_WORDS[engine.name]}{other}")
    if isinstance(job, ServeJob):
        notes.append(CLOSED_FORM)
    intervals = [one for option in options[:1] for one in option.run.intervals]
    if intervals and not any(one.rows for one in intervals):
        notes.append("80 % intervals are judgements: no measured rows stand behind them")
    elif intervals:
        dated = f"calibration of {grounds.made_on}" if grounds.made_on else "no calibration"
        notes.append(
            f"80 % intervals of the first option, {dated}: "
            + "; ".join(f"{one.of} by {one.describe()}" for one in intervals)
        )
    return tuple(notes)


def terms_assumed(workload: Workload) -> tuple[Assumption, ...]:
    """Terms of starting, saving and losing machines that the workload leaves to us."""
    buy, found = workload.buy, []
    if buy.startup_s is None:
        low, high, source = STARTUP_SOURCE
        found.append(Assumption(name="startup_s", value=Terms().startup_s, low=low, high=high, source=source))
    if "spot" not in buy.purchases or isinstance(workload.job, ServeJob):
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


def terms_note(workload: Workload) -> str | None:
    """One sentence for the plan: what was assumed about starting and interruptions."""
    words = {
        "startup_s": ("start-up of {} min", 60.0),
        "checkpoint_gb_per_s": ("checkpoints written at {} GB/s", 1.0),
        "spot_interruptions_per_hour": (
            "{} interruptions an hour on spot without traces or a published band",
            1.0,
        ),
    }
    parts = []
    for one in terms_assumed(workload):
        text, unit = words[one.name]
        parts.append(f"{text.format(f'{one.value / unit:.2g}')} ({one.low / unit:.2g} to {one.high / unit:.2g})")
    return "assumed, as the workload does not say: " + "; ".join(parts) if parts else None


def _sizing(workload: Workload, grounds: Grounds) -> tuple[Assumption, ...]:
    job = workload.job
    if isinstance(job, TabularJob):
        return listed(TabularAssumptions())
    judgements = listed(grounds.assumed)
    if not isinstance(job, TrainJob):
        return (*(one for one in judgements if one.name in SERVING), *engine_figures(job, grounds))
    unused = {*SERVING_ONLY, "collective_buffers_gib"}
    if job.model.architecture != "convolution":
        unused |= {"convolution_peak_fraction", "training_convolution_fraction"}
    return tuple(one for one in judgements if one.name not in unused)


def left_out_notes(catalog: Catalog) -> tuple[str, ...]:
    """Rows of the snapshot whose prices cannot be used: the first few by name, the others by number."""
    named = [f"left out of the prices: {text}" for text in catalog.left_out[:LEFT_OUT_NAMED]]
    rest = len(catalog.left_out) - len(named)
    return (*named, *([f"{rest} more rows are left out of the prices: `tonnage catalog check`"] if rest else ()))
