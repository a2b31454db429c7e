"""Is a rate so? Against what the planner predicts for that model and GPU, over what settings the text leaves open."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final

from tonnage.catalog import Accelerator, Catalog
from tonnage.catalog.grammar import parse_gpu_filter
from tonnage.claims.findings import ClaimAnswer
from tonnage.claims.statements import RateClaim
from tonnage.errors import UnknownModel
from tonnage.planning.calibrated_model import CalibratedModel
from tonnage.planning.sizes import make_size_report
from tonnage.sizing.estimates import Figure
from tonnage.workload.jobs import (
    BatchJob,
    BuyTerms,
    Constraints,
    EngineName,
    Job,
    Lengths,
    Requests,
    Team,
    TrainJob,
    Workload,
)
from tonnage.workload.known import find_model
from tonnage.workload.shapes import ModelShape

TRAINED: Final = (128, 512, 2048, 8192)  # tokens a sequence
ANSWERED: Final = ((128, 128), (1024, 128), (128, 1024), (1024, 1024))  # tokens in and out
WEIGHTS: Final = ("fp16", "fp8")
ENGINES: Final[tuple[EngineName, ...]] = ("vllm", "tensorrt-llm")
BEYOND: Final = 1.5  # times the fastest end of an 80 % interval: what lies between is not called wrong
SAMPLES, ITEMS = 1_000_000, 1_000_000
ALONE: Final = 1  # requests in flight: what one user sees
NO_DAY: Final = datetime.min.replace(tzinfo=UTC)  # sizes have no prices, which alone hang on the day
TEXT: Final = ("encoder", "decoder", "encoder-decoder")
SOURCE: Final = "the planner's prediction"


def answer_rate(claim: RateClaim, catalog: Catalog) -> ClaimAnswer:
    """`ok` within the intervals of all plausible settings, `wrong` far above, `partly` below: settings can be bad."""
    try:
        shape = find_model(claim.model)
    except UnknownModel:
        return ClaimAnswer(verdict="unknown", hint=f"the shape of {claim.model} is not known")
    if shape.architecture not in TEXT:
        return ClaimAnswer(verdict="unknown", hint="rates of models of pictures and sound hang on what one sample is")
    spans = [span for device in claim.gpu.devices for span in _spans(claim, shape, device, catalog)]
    if not spans:
        return ClaimAnswer(verdict="unknown", hint="nothing to buy with such GPUs runs it, as far as the catalog knows")
    part = claim.gpus / claim.in_job
    low, high = min(one.low for one in spans) * part, max(one.high for one in spans) * part
    right = f"{_short(low)} to {_short(high)} {claim.unit}/s, by sequence length, batch and format"
    if claim.amount.low > BEYOND * high:
        return ClaimAnswer(
            verdict="wrong", right=right, source=SOURCE, hint="faster than any setting is predicted to be"
        )
    top = claim.amount.low if claim.amount.high == float("inf") else claim.amount.high
    if top < low:
        return ClaimAnswer(verdict="partly", right=right, source=SOURCE, hint="slower than predicted: which settings?")
    if claim.amount.low > high:
        return ClaimAnswer(verdict="unknown", right=right, source=SOURCE, hint="a little faster than predicted")
    return ClaimAnswer(verdict="ok", right=right, source=SOURCE)


def _short(value: float) -> str:
    return f"{float(f'{value:.3g}'):,g}"


def _spans(claim: RateClaim, shape: ModelShape, device: Accelerator, catalog: Catalog) -> Iterator[Figure]:
    if claim.trains:
        jobs = _training(claim, shape)
    elif shape.causal:
        jobs = _generating(claim, shape)
    else:
        jobs = _reading(claim, shape)
    for job in jobs:
        yield from _rates(job, device, claim.in_job, claim.unit, catalog)


def _training(claim: RateClaim, shape: ModelShape) -> Iterator[Job]:
    longest = shape.max_positions or max(TRAINED)
    lengths = (claim.length,) if claim.length else tuple(n for n in TRAINED if n <= longest) or (longest,)
    for tokens in lengths:
        for batch in (8, 256):
            yield TrainJob(
                model=shape, samples=SAMPLES, lengths=Lengths(mean=tokens, maximum=tokens), epochs=1.0,
                global_batch=int(batch * claim.in_job), method="lora" if claim.adapters else "full",
            )  # fmt: skip


def _generating(claim: RateClaim, shape: ModelShape) -> Iterator[Job]:
    formats = (claim.number_format,) if claim.number_format else WEIGHTS
    for entered, written in ANSWERED:
        requests = Requests(
            input_tokens=Lengths(mean=entered, maximum=entered), output_tokens=Lengths(mean=written, maximum=written)
        )
        for weights in formats:
            job = BatchJob(model=shape, requests=requests, items=ITEMS, weights=weights)  # type: ignore[arg-type]
            yield from (replace(job, engine=engine) for engine in ENGINES)
            yield replace(job, concurrency=ALONE, replicas=1)


def _reading(claim: RateClaim, shape: ModelShape) -> Iterator[Job]:
    for tokens in (claim.length,) if claim.length else (32, min(512, shape.max_positions or 512)):
        requests = Requests(input_tokens=Lengths(mean=tokens, maximum=tokens), output_tokens=None)
        job = BatchJob(model=shape, requests=requests, items=ITEMS)
        yield job
        yield replace(job, batch=1)


def _rates(job: Job, device: Accelerator, count: float, unit: str, catalog: Catalog) -> Iterator[Figure]:
    """The rate of each machine with so many of that device, alone."""
    made = _sized(job, device.name, count, catalog)
    for rates in made:
        found = dict(rates)
        if unit == "tokens" and isinstance(job, BatchJob) and job.requests.output_tokens is not None:
            if "requests_per_s" in found:
                yield found["requests_per_s"].scaled(job.requests.output_tokens.mean)
        elif f"{unit}_per_s" in found:
            yield found[f"{unit}_per_s"]
        elif unit == "samples" and "requests_per_s" in found:
            yield found["requests_per_s"]


@lru_cache(maxsize=256)
def _sized(job: Job, device: str, count: float, catalog: Catalog) -> tuple[Any, ...]:
    limits = Constraints(max_nodes=1, accept_risk=("memory",), trust="any")
    workload = Workload(name="claim", job=job, constraints=limits, buy=BuyTerms(), team=Team(), as_of=NO_DAY)
    report = make_size_report(
        workload, catalog, gpus=(parse_gpu_filter(f"{device}:{count:g}"),), calibrated=CalibratedModel.packaged()
    )
    return tuple(row.run.rates for row in report.rows if row.nodes == 1)
