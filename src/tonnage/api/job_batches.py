"""A batch carried by the jobs of a platform: `BatchOptions(on="bedrock")` and `"openai-batch"`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing, nullcontext
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tonnage.api.batch_options import BatchOptions
from tonnage.api.batches import OnProgress, cpu_seconds, tokens_usd
from tonnage.api.bench import key_headers
from tonnage.batches.job_notes import JobNotes
from tonnage.batches.s3_objects import S3BatchObjects
from tonnage.errors import InputError
from tonnage.traffic.batch import BatchOutcome

if TYPE_CHECKING:
    from tonnage.batches.jobs import JobPlace
    from tonnage.batches.outputs import BatchOutput
    from tonnage.batches.reading import BatchInput
    from tonnage.batches.records import Finished

MILLION = Decimal(10**6)
Usd = Callable[[int, int], float | None]


def carried_by_jobs(
    source: BatchInput,
    rows: int,
    finished: Finished,
    output: BatchOutput,
    named: Path | str,
    options: BatchOptions,
    on_progress: OnProgress,
) -> BatchOutcome:
    """Rows handed over in jobs, followed and collected. `named`: the output, beside which the notes of jobs are."""
    from tonnage.batches.jobs import JobBatch, JobLimits

    before_s, (place, closes) = cpu_seconds(), _place(options)
    limits = JobLimits(
        usd=_prices(options), most_usd=options.most_usd, deadline_s=options.deadline_s, poll_s=options.poll_s
    )  # fmt: skip
    batch = JobBatch(place, source, finished, rows, output, JobNotes(named), limits, on_progress)
    try:
        output.open()
        with closes:
            batch.run()
        if batch.ending == "done":
            output.finish()
    finally:
        output.close()
    return BatchOutcome(
        progress=batch.progress(), ending=batch.ending, reason=batch.reason, output=output.shown,
        errors=output.errors_shown, faults=tuple(batch.faults.most_common()), cut_bytes=finished.cut_bytes,
        cpu_s=cpu_seconds() - before_s,
    )  # fmt: skip


def _place(options: BatchOptions) -> tuple[JobPlace, Any]:
    if options.on == "openai-batch":
        from tonnage.batches.openai_jobs import OpenAIJobs

        jobs = OpenAIJobs(options.url or "", key_headers(options.api_key_env))
        return jobs, closing(jobs)
    from tonnage.batches.bedrock_jobs import BedrockJobs, make_client

    bucket, _, prefix = (options.jobs_at or "").removeprefix("s3://").partition("/")
    store, place = S3BatchObjects(bucket), prefix.strip("/") or "tonnage"
    return BedrockJobs(make_client(), store, bucket=bucket, prefix=place, role=options.role or ""), nullcontext()


def _prices(options: BatchOptions) -> Usd:
    """What tokens cost: as stated, else of Bedrock's model as the catalog has it, less what batches take off."""
    if options.usd_per_million_input is not None or options.usd_per_million_output is not None:
        return lambda read, written: tokens_usd(options, read, written)
    listed = catalog_prices(options.model) if options.on == "bedrock" and options.model else None
    if listed is None:
        if options.most_usd is not None:
            raise InputError("--max-cost needs the price of tokens", hint="--input-usd 0.5 --output-usd 1.5")
        return lambda read, written: None  # noqa: ARG005
    read_usd, written_usd = listed
    return lambda read, written: float((read * read_usd + written * written_usd) / MILLION)


def catalog_prices(model: str) -> tuple[Decimal, Decimal] | None:
    """USD of a million tokens read and written in a batch job of a Bedrock model; None where one of them is not known.

    An inference profile of a region (`us.`, `eu.`, ...) costs what the catalog lists as `regional.`.
    """
    from tonnage.catalog import load_catalog

    managed = load_catalog().managed
    family = model.partition(".")[2] if model.count(".") > 1 else model
    names = (model, f"regional.{family}", f"regional.{model}")
    prices = [one for one in managed.tokens if one.platform == "bedrock" and one.plain and one.model in names]
    dearest = {
        one.kind: one.usd_per_million_tokens for one in sorted(prices, key=lambda one: one.usd_per_million_tokens)
    }
    taken_off = [one.fraction for one in managed.batch_discounts if one.platform == "bedrock"]
    if "input" not in dearest or not taken_off or ("output" not in dearest and "embed" not in model):
        return None
    share = 1 - min(taken_off)
    return dearest["input"] * share, dearest.get("output", Decimal(0)) * share
