"""Many requests carried through a service, each answered once: `tonnage.batch`."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tonnage.api.answers import Answer
from tonnage.api.batch_options import JOBS, BatchOptions, Service, check_options
from tonnage.api.bench import key_headers
from tonnage.api.charging import batch_reserved, charge_of
from tonnage.api.planned_batches import read_planned
from tonnage.api.started_services import served_here
from tonnage.errors import InputError, PlanRefused, TonnageError
from tonnage.http.listed_models import first_listed, models_path
from tonnage.http.pool import run_in_loop
from tonnage.reports.batch import batch_report
from tonnage.settings import current_settings
from tonnage.traffic.batch import BatchOutcome, BatchProgress

if TYPE_CHECKING:
    from tonnage.batches.carrying import Carriage
    from tonnage.batches.outputs import BatchOutput
    from tonnage.batches.reading import BatchInput, CheckedInput
    from tonnage.batches.records import Finished
    from tonnage.http.pool import Endpoint

OnProgress = Callable[["BatchProgress"], None]
MILLION: Final = 1e6
SERVED_NAME: Final = "served"  # of a model that the batch starts itself
LIST_TIMEOUT_S: Final = 10.0
RAY_PART_ROWS: Final = 1000  # of one task


def batch(
    source: Path | str,
    output: Path | str,
    options: BatchOptions | None = None,
    *,
    service: Service | None = None,
    on_check: Callable[[int], None] | None = None,
    on_progress: OnProgress | None = None,
) -> Answer[BatchOutcome]:
    """Send each row of `source` (JSONL or Parquet) to a service and append each answer to `output`, in OpenAI's format.

    Both are files or objects (`s3://`, `gs://`, `az://`); an object is written whole once all rows are done, from parts
    that are beside it until then.

    The output line is the record that a row is done: the same call goes on with what is not there yet, after a kill
    too. Rows without an answer go to `OUT.errors.jsonl`, with the reason. Answers come in the order in which they end.
    `service` gives the URL of a service that runs as long as the batch, in place of `options.url`.

    The answer's fault is set where the batch stopped before its end or rows failed. Raises InputError for options and
    files that cannot be used (DataError: two rows of one custom_id), MissingExtra without the extra `load`, or without
    that of an object store.
    """
    options = options or BatchOptions()
    check_options(options, service)
    planned = None if options.plan is None else read_planned(options.plan)
    if options.serve is not None:
        from tonnage.api.serving import ServeOptions

        service = served_here(options.serve, ServeOptions(model=options.weights, name=options.model or SERVED_NAME))
    unlisted: str | None = None
    if options.model is None:
        name, unlisted = (SERVED_NAME, None) if options.serve else _listed_model(options)
        options = replace(options, model=name)
    with batch_reserved(current_settings().home, str(output), charge_of(options), _bound_usd(options)) as spend:
        outcome = _done(source, output, options, unlisted, service, on_check, spend.following(on_progress or silent))
    return Answer(replace(outcome, planned=planned), batch_report, _fault(outcome))


def _bound_usd(options: BatchOptions) -> float | None:
    """The most that it may cost; None: not known."""
    free = options.usd_per_million_input == 0 and options.usd_per_million_output == 0
    return 0.0 if free else options.most_usd


def _done(
    source: Path | str, output: Path | str, options: BatchOptions, unlisted: str | None, service: Service | None,
    on_check: Callable[[int], None] | None, on_progress: OnProgress,
) -> BatchOutcome:  # fmt: skip
    from tonnage.batches.outputs import open_output

    if options.shared:
        from tonnage.api.shared_batches import share

        return share(source, output, options, unlisted, service, on_check, on_progress)
    place = open_output(output)
    with place.alone():
        reading = _CheckedInput(source, place, output, options, unlisted, on_check)
        if reading.left == 0:
            place.finish()
            return reading.nothing_left()
        with service or nullcontext(options.url or "") as url:
            return _carried(reading, url, options, on_progress)


def _listed_model(options: BatchOptions) -> tuple[str | None, str | None]:
    """The first model that the service lists, or why it is not known: it lists none, or does not answer."""
    import httpx

    if options.url is None:
        return None, None
    base = options.url.rstrip("/")
    try:
        answer = httpx.get(base + models_path(base), headers=key_headers(options.api_key_env), timeout=LIST_TIMEOUT_S)
    except (httpx.UnsupportedProtocol, httpx.InvalidURL):
        return None, None  # said where the address is read
    except httpx.HTTPError as error:
        return None, f"{options.url} was asked for its models and gave no answer: {error}"
    found = first_listed(answer.content)
    return found, None if found else f"{options.url} lists no model (status {answer.status_code})"


class _CheckedInput:
    """The input checked against what earlier runs have recorded."""

    def __init__(
        self, source: Path | str, output: BatchOutput, named: Path | str, options: BatchOptions,
        unlisted: str | None, on_check: Callable[[int], None] | None,
    ) -> None:  # fmt: skip
        from tonnage.batches.reading import BatchInput, check_input, open_input

        self.output, self.named = output, named
        self.source: BatchInput = BatchInput(path=open_input(source), task=options.task, model=options.model)  # type: ignore[arg-type]
        if options.on == "ray" and not self.source.in_lines:
            raise InputError("--on ray reads JSON lines", hint="one process carries a Parquet file")
        if options.retry_errors:
            output.forget_errors()
        self.finished: Finished = output.finished()
        self.checked = check_input(self.source, self.finished, on_check, part_lines=RAY_PART_ROWS, unlisted=unlisted)
        self.rows = self.checked.rows

    @property
    def left(self) -> int:
        return self.rows - len(self.finished.keys)

    def nothing_left(self) -> BatchOutcome:
        """Of a batch that earlier runs have finished."""
        return finished_outcome(self.rows, self.finished, self.output.shown, self.output.errors_shown)


def finished_outcome(rows: int, finished: Finished, output: str, errors: str) -> BatchOutcome:
    """The outcome where nothing was left to do."""
    progress = BatchProgress(
        total=rows, done_before=rows, answered=0, failed=0, in_flight=0, limit=0, retries=0, seconds=0.0,
        input_tokens=finished.input_tokens, output_tokens=finished.output_tokens, usd=None,
    )  # fmt: skip
    return BatchOutcome(
        progress=progress, ending="done", reason="", output=output, errors=errors, faults=(),
        cut_bytes=finished.cut_bytes, cpu_s=0.0,
    )  # fmt: skip


def _carried(reading: _CheckedInput, url: str, options: BatchOptions, on_progress: OnProgress) -> BatchOutcome:
    if options.on in JOBS:
        from tonnage.api.job_batches import carried_by_jobs

        return carried_by_jobs(
            reading.source, reading.rows, reading.finished, reading.output, reading.named, options, on_progress
        )
    from tonnage.http.pool import read_endpoint

    if options.on == "ray":
        return carried_on_ray(
            reading.source, reading.checked, reading.finished, reading.output, read_endpoint(url), options,
            on_progress,
        )  # fmt: skip
    from tonnage.batches.carrying import BatchTransfer
    from tonnage.batches.reading import undone_rows

    carriage, output = carriage_of(read_endpoint(url), options), reading.output
    before_s = cpu_seconds()
    try:
        output.open()
        transfer = BatchTransfer(
            carriage, finished=reading.finished, total=reading.rows, sink=output, on_progress=on_progress
        )  # fmt: skip
        ending = run_in_loop(transfer.carry(undone_rows(reading.source.rows(), reading.finished)))
        progress = transfer.progress()
        if ending == "done":
            output.finish()
    finally:
        output.close()
    return BatchOutcome(
        progress=progress, ending=ending, reason=transfer.reason, output=output.shown,
        errors=output.errors_shown, faults=tuple(transfer.faults.most_common()), cut_bytes=reading.finished.cut_bytes,
        cpu_s=cpu_seconds() - before_s,
    )  # fmt: skip


def carriage_of(to: Endpoint, options: BatchOptions) -> Carriage:
    """How rows are carried, from the options. InputError where the key's variable is not set."""
    from tonnage.batches.carrying import Carriage

    return Carriage(
        endpoint=to, headers=key_headers(options.api_key_env), timeout_s=options.timeout_s, tries=options.tries,
        patience_s=options.patience_s, concurrency=options.concurrency,
        usd_per_input_token=_per_token(options.usd_per_million_input),
        usd_per_output_token=_per_token(options.usd_per_million_output), most_usd=options.most_usd,
        deadline_s=options.deadline_s,
    )  # fmt: skip


def _fault(outcome: BatchOutcome) -> TonnageError | None:
    progress = outcome.progress
    left = f"{progress.total - progress.finished:,} of {progress.total:,} rows are left"
    again = "the same command goes on with them"
    if outcome.ending in ("cost", "deadline", "away"):
        return PlanRefused(f"{outcome.reason}: {left}", hint=again)
    if outcome.ending != "done":
        return TonnageError(f"{outcome.reason}: {left}", hint=again)
    if progress.failed:
        failed = "1 row has" if progress.failed == 1 else f"{progress.failed:,} rows have"
        return TonnageError(
            f"{failed} no answer: {outcome.errors} says why",
            hint="mend them in the input where they are at fault; --retry-errors asks them again",
        )
    return None


def tokens_usd(options: BatchOptions, read: int, written: int) -> float:
    """What tokens cost at the prices stated; none for a kind without a price."""
    return read * (_per_token(options.usd_per_million_input) or 0.0) + written * (
        _per_token(options.usd_per_million_output) or 0.0
    )


def _per_token(usd_per_million: float | None) -> float | None:
    return None if usd_per_million is None else usd_per_million / MILLION


def cpu_seconds() -> float:
    times = os.times()
    return times.user + times.system


def silent(progress: BatchProgress) -> None:
    del progress


def carried_on_ray(
    source: BatchInput,
    checked: CheckedInput,
    finished: Finished,
    output: BatchOutput,
    to: Endpoint,
    options: BatchOptions,
    on_progress: OnProgress,
) -> BatchOutcome:
    """Rows asked by workers, recorded by this process. Parts are those of `checked`."""
    from tonnage.batches.on_ray import RayBatch, RayWork

    before_s, carriage = cpu_seconds(), carriage_of(to, options)
    work = RayWork(
        source=source, checked=checked, finished=finished, carriage=replace(carriage, headers={}),
        key_headers=key_headers, key_variable=options.api_key_env, parts=range(len(checked.begins)),
    )  # fmt: skip
    batch = RayBatch(
        work, output, workers=options.workers, most_usd=options.most_usd, deadline_s=options.deadline_s,
        on_progress=on_progress,
    )  # fmt: skip
    try:
        output.open()
        ended = batch.run()
        if ended.ending == "done":
            output.finish()
    finally:
        output.close()
    return BatchOutcome(
        progress=ended.progress, ending=ended.ending, reason=ended.reason, output=output.shown,
        errors=output.errors_shown, faults=ended.faults, cut_bytes=finished.cut_bytes, cpu_s=cpu_seconds() - before_s,
    )  # fmt: skip
