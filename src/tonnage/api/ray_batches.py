"""A batch carried by the workers of a Ray cluster: `BatchOptions(on="ray")`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tonnage.api.batch_options import BatchOptions
from tonnage.api.batches import OnProgress, carriage_of, cpu_seconds
from tonnage.api.bench import key_headers

if TYPE_CHECKING:
    from tonnage.batches.outputs import BatchOutput
    from tonnage.batches.reading import BatchInput, CheckedInput
    from tonnage.batches.records import Finished
    from tonnage.http.pool import Endpoint
    from tonnage.traffic.batch import BatchOutcome


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
    from tonnage.traffic.batch import BatchOutcome

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
