"""The workload in words, as reports print it above the plan."""

from __future__ import annotations

from typing import Final

from tonnage.units import SECONDS_PER_HOUR
from tonnage.workload.file.job_checks import IMAGES
from tonnage.workload.file.layout_fields import ServingLayoutFields, TrainLayoutFields
from tonnage.workload.jobs import (
    BatchJob,
    Constraints,
    Lengths,
    Requests,
    Risk,
    ServeJob,
    TabularJob,
    TrainJob,
    Workload,
)
from tonnage.workload.parameters import count_parameters
from tonnage.workload.programs import Program
from tonnage.workload.shapes import ModelShape


def summarise(workload: Workload) -> tuple[tuple[str, str], ...]:
    """(label, value) pairs: the model, the job, the constraints."""
    job = workload.job
    if isinstance(job, TrainJob):
        rows = _train(job)
    elif isinstance(job, ServeJob):
        rows = _serve(job)
    elif isinstance(job, BatchJob):
        rows = [
            *_model(job.model),
            ("items", f"{job.items:,}"),
            *_requests(job.model, job.requests),
            ("weights", job.weights),
            *_layout(job),
        ]
    else:
        rows = _tabular(job)
    limits = _constraints(workload.constraints)
    return (*rows, *limits, ("buy", _bought(workload)))


def _bought(workload: Workload) -> str:
    """Purchase modes, and what changes prices or hours."""
    buy = workload.buy
    parts = [", ".join(buy.purchases).replace("_", "-")]
    if buy.schedule is not None:
        parts.append(f"on for {buy.schedule.hours_per_day:g} h a day, {buy.schedule.days_per_month:g} days a month")
    parts += [f"{percent:g} % off {key}" for key, percent in buy.discount_percent]
    parts += [f"${amount:,.2f} committed with {key}" for key, amount in buy.committed_usd]
    if buy.reserved_owned:
        parts.append("reservations are owned")
    if buy.reserved_utilization is not None:
        parts.append(f"{buy.reserved_utilization:.0%} of reserved hours in use")
    if workload.data is not None:
        parts.append(f"{workload.data.size_gb:g} GB of data in {workload.data.provider}/{workload.data.region}")
    return "; ".join(parts)


def _model(shape: ModelShape) -> list[tuple[str, str]]:
    """The model, and what its figures leave out."""
    name = f"{shape.name}, {_count(count_parameters(shape).total)} parameters"
    return [("model", name), *([("left out", shape.left_out)] if shape.left_out else [])]


def _count(number: float) -> str:
    """1,234,567 -> 1.23 M: three significant digits."""
    for size, suffix in ((1e12, " T"), (1e9, " B"), (1e6, " M"), (1e3, " k")):
        if number >= size:
            return f"{number / size:.3g}{suffix}"
    return f"{number:.3g}"


def _lengths(lengths: Lengths) -> str:
    if lengths.mean == lengths.maximum:
        return f"{lengths.maximum} tokens"
    return f"{lengths.mean:g} tokens on average, {lengths.maximum} at most"


def _train(job: TrainJob) -> list[tuple[str, str]]:
    image = job.model.architecture in IMAGES
    rows = [
        *_model(job.model),
        ("method", f"{job.method}, {job.precision} precision, {job.optimizer}"),
        *_program(job.program),
        ("data", f"{job.samples:,} " + ("images" if image else "sequences") + f" x {job.epochs:g} epochs"),
    ]
    if not image:
        rows.append(("lengths", _lengths(job.lengths)))
    rows.append(("global batch", f"{job.global_batch}"))
    return [*rows, *_layout(job)]


PROGRAM_WORDS: Final = (  # of a program's features, those a user may want to state otherwise
    ("attention", "{} attention"),
    ("loss", "{} loss"),
    ("optimizer", "{}"),
    ("kernels", "{} kernels"),
    ("offload", "{} in host memory"),
)
PROGRAM_ANSWERS: Final = (
    ("compile", "compiled"),
    ("optimizer_in_backward", "optimizer in backward"),
    ("optimizer_fused", "optimizer in one kernel"),
)


def _program(program: Program) -> list[tuple[str, str]]:
    """The program, and what is assumed of it: as stated, else as it documents itself."""
    stated = [words.format(_word(getattr(program, name))) for name, words in PROGRAM_WORDS if getattr(program, name)]
    stated += [words for name, words in PROGRAM_ANSWERS if getattr(program, name)]
    name = " ".join(filter(None, (program.name or "not named", program.version)))
    return [("program", f"{name}: {', '.join(stated)}")] if program.name or program.stated() else []


def _word(value: str | tuple[str, ...]) -> str:
    return " and ".join(value) if isinstance(value, tuple) else value


def _layout(job: TrainJob | ServeJob | BatchJob) -> list[tuple[str, str]]:
    """What of the layout is fixed."""
    fields = TrainLayoutFields if isinstance(job, TrainJob) else ServingLayoutFields
    fixed = [(name, getattr(job, name)) for name in fields.model_fields if getattr(job, name) is not None]
    return [("layout", ", ".join(f"{name} {value}" for name, value in fixed))] if fixed else []


def _requests(shape: ModelShape, requests: Requests) -> list[tuple[str, str]]:
    side = f" of {shape.image_side} x {shape.image_side} pixels" if shape.image_side else ""
    rows = [
        ("input", f"images{side}, one a request" if shape.architecture in IMAGES else _lengths(requests.input_tokens))
    ]
    if requests.output_tokens is not None:
        rows.append(("output", _lengths(requests.output_tokens)))
    return rows


def _course(job: ServeJob) -> str:
    traffic = job.traffic
    return "" if traffic is None else f" at the busy time, {traffic.mean:.0%} of it on average ({traffic.source})"


def _serve(job: ServeJob) -> list[tuple[str, str]]:
    rows = [
        *_model(job.model),
        ("rate", f"{job.rate_per_s:g} requests/s" + _course(job)),
        *_requests(job.model, job.requests),
    ]
    promises = []
    if job.p95_latency_s is not None:
        promises.append(f"p95 latency {job.p95_latency_s * 1e3:g} ms")
    if job.p95_ttft_s is not None:
        promises.append(f"p95 TTFT {job.p95_ttft_s * 1e3:g} ms")
    if job.p95_tpot_s is not None:
        promises.append(f"p95 per token {job.p95_tpot_s * 1e3:g} ms")
    if promises:
        rows.append(("promise", ", ".join(promises)))
    return [*rows, ("weights", job.weights), ("hours a month", f"{job.hours_per_month:g}"), *_layout(job)]


def _tabular(job: TabularJob) -> list[tuple[str, str]]:
    rows = [("data", f"{job.rows:,} rows x {job.features:,} features")]
    if job.method == "boosted-trees":
        rows.append(("method", f"boosted trees: {job.trees} trees of depth {job.depth}, {job.bins} bins"))
    else:
        widths = "-".join(str(width) for width in job.hidden_layers)
        rows.append(("method", f"MLP {widths}, {job.epochs:g} epochs, batch {job.global_batch}"))
    return rows


def _constraints(wanted: Constraints) -> list[tuple[str, str]]:
    parts = []
    if wanted.deadline_s is not None:
        hours = wanted.deadline_s / SECONDS_PER_HOUR
        parts.append(f"within {hours:.3g} h" if hours >= 1 else f"within {60 * hours:.3g} min")
    if wanted.budget_usd is not None:
        parts.append(f"at most ${wanted.budget_usd:,.2f}")
    for label, values in (
        ("on", wanted.providers),
        ("through", wanted.platforms),
        ("in", wanted.regions),
        ("data stays in", wanted.residency),
    ):
        if values:
            parts.append(f"{label} {', '.join(values)}")
    if wanted.gpus:
        parts.append("GPU " + " or ".join(one.text for one in wanted.gpus))
    if not wanted.interruptible:
        parts.append("not interruptible")
    if wanted.max_gpus is not None:
        parts.append(f"at most {wanted.max_gpus} GPUs")
    if wanted.exclude:
        parts.append(f"without {', '.join(one.text for one in wanted.exclude)}")
    if wanted.quotas:
        parts.append("quotas of " + ", ".join(sorted({one.provider for one in wanted.quotas})))
    if wanted.trust == "any":
        parts.append("any price may win")
    stated = [("constraints", "; ".join(parts))] if parts else []
    return [*stated, ("holds", _held(wanted))]


def _held(wanted: Constraints) -> str:
    """What is kept at the far end of the 80 % interval, and what on the expected figure."""
    risks: tuple[Risk, ...] = ("memory", "deadline", "budget", "latency")
    held = [one for one in risks if wanted.held(one)]
    expected = [one for one in risks if not wanted.held(one)]
    ends = f"{', '.join(held)} at the far end of the 80 % interval" if held else ""
    return "; ".join(filter(None, (ends, f"{', '.join(expected)} as expected" if expected else "")))
