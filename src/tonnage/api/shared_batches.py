"""One input carried by several processes or machines over a folder that all see: `BatchOptions(shared=True)`."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tonnage.api.batch_options import BatchOptions, Service
from tonnage.api.batches import OnProgress, carriage_of, cpu_seconds, finished_outcome
from tonnage.batches.objects import is_object_url
from tonnage.errors import InputError
from tonnage.files import SHARED, write_whole
from tonnage.http.pool import read_endpoint, run_in_loop
from tonnage.traffic.batch import BatchOutcome, BatchProgress

if TYPE_CHECKING:
    from tonnage.batches.leases import LeaseBook
    from tonnage.batches.reading import BatchInput, CheckedInput
    from tonnage.batches.records import Finished

MERGE_LOOK_S: Final = 0.5


def share(
    source: Path | str,
    output: Path | str,
    options: BatchOptions,
    unlisted: str | None,
    service: Service | None,
    on_check: Callable[[int], None] | None,
    on_progress: OnProgress,
) -> BatchOutcome:
    """Carry leased parts of `source` until all are done, by any worker; one of them then merges the shards into
    `output`. `unlisted`: why the service's model is not known (`check_input`).

    Everything is in the folder `OUT.parts` meanwhile. The outcome counts this worker's rows; those of others are
    done before.
    """
    from tonnage.batches.leases import LeaseBook, worker_name
    from tonnage.batches.reading import BatchInput, check_input, open_input
    from tonnage.batches.records import read_finished

    if is_object_url(str(output)):
        raise InputError("--shared writes to a folder that all machines see", hint="leave out --shared, or name a file")
    output = Path(output)
    if not output.parent.is_dir():
        raise InputError(f"{output.parent} is not a folder", hint="make it first, or name another output")
    given = BatchInput(path=open_input(source), task=options.task, model=options.model)  # type: ignore[arg-type]
    if not given.in_lines:
        raise InputError("--shared reads JSON lines", hint="one process carries a Parquet file")
    folder = output.with_name(output.name + ".parts")
    if output.exists() and not folder.is_dir():
        raise InputError(f"{output} was not written with --shared", hint="go on without it, or name another output")
    checked = check_input(given, read_finished((), cut=False), on_check, unlisted=unlisted)
    book = LeaseBook(folder, worker_name(), len(checked.begins), options.lease_s)
    _agree(folder, given, checked)
    worker = _BatchWorker(given, checked, book, folder, output, options)
    if book.merged:
        book.release()
        return worker.nothing_left()
    with service or nullcontext(options.url or "") as url:
        return worker.work(url, on_progress)


class _BatchWorker:
    """This process's part of a shared batch."""

    def __init__(
        self,
        source: BatchInput,
        checked: CheckedInput,
        book: LeaseBook,
        folder: Path,
        output: Path,
        options: BatchOptions,
    ) -> None:
        self._source, self._checked, self._book, self._folder = source, checked, book, folder
        self._output, self._options = output, options
        self._errors = output.with_name(output.name + ".errors.jsonl")

    def work(self, url: str, on_progress: OnProgress) -> BatchOutcome:
        from tonnage.batches.carrying import BatchTransfer
        from tonnage.batches.leases import LeasedRows
        from tonnage.batches.records import FileSink, Record, read_finished

        carriage, before_s = carriage_of(read_endpoint(url), self._options), cpu_seconds()
        answers, errors = (Record(self._folder / f"{self._book.worker}.{kind}.jsonl") for kind in ("answers", "errors"))
        leased = LeasedRows(self._source, self._checked, self._book, self._shards)

        def show(progress: BatchProgress) -> None:
            self._book.renew()
            on_progress(progress)

        try:
            transfer = BatchTransfer(
                carriage, finished=read_finished((), cut=False), total=self._checked.rows,
                sink=FileSink(answers, errors), on_progress=show, on_recorded=leased.recorded,
            )  # fmt: skip
            ending = run_in_loop(transfer.carry(leased.rows()))
            if ending == "done":
                self._merge()
        finally:
            for shard in (answers, errors):
                shard.close()
                if not shard.path.stat().st_size:
                    shard.path.unlink()
            self._book.release()
        done = self._finished()
        others = max(len(done.keys) - transfer.progress().answered - transfer.progress().failed, 0)
        return BatchOutcome(
            progress=replace(transfer.progress(), done_before=others), ending=ending, reason=transfer.reason,
            output=str(self._output), errors=str(self._errors), faults=tuple(transfer.faults.most_common()),
            cut_bytes=0, cpu_s=cpu_seconds() - before_s,
        )  # fmt: skip

    def nothing_left(self) -> BatchOutcome:
        """Of a batch that is merged."""
        return finished_outcome(self._checked.rows, self._finished(), str(self._output), str(self._errors))

    def _finished(self) -> Finished:
        """What all workers have recorded, each row once."""
        import numpy as np

        from tonnage.batches.records import read_finished

        found = read_finished(self._shards(), cut=False)
        return replace(found, keys=np.unique(found.keys))

    def _shards(self) -> list[Path]:
        return sorted(self._folder.glob("*.answers.jsonl")) + sorted(self._folder.glob("*.errors.jsonl"))

    def _merge(self) -> None:
        """All parts are done: one worker merges, the others wait for it."""
        from tonnage.batches.leases import merge_shards

        while not self._book.merged:
            self._book.renew()
            if self._book.claim_merge():
                answers = [one for one in self._shards() if one.name.endswith(".answers.jsonl")]
                errors = [one for one in self._shards() if one.name.endswith(".errors.jsonl")]
                merge_shards(answers, errors, self._output, self._errors)
                self._book.finish_merge()
            else:
                time.sleep(MERGE_LOOK_S)


def _agree(folder: Path, source: BatchInput, checked: CheckedInput) -> None:
    """All workers read the same rows in the same way: the first says how, the others compare."""
    own = {"rows": checked.rows, "bytes": source.size_bytes, "task": source.task, "model": source.model,
           "part_lines": checked.part_lines}  # fmt: skip
    place = folder / "input.json"
    if not place.exists():
        write_whole(place, json.dumps(own), mode=SHARED)
    kept = json.loads(place.read_text(encoding="utf-8"))
    differs = [name for name, value in own.items() if kept.get(name) != value]
    if differs:
        raise InputError(
            f"{folder} is of another input: {', '.join(f'{name} {kept.get(name)}' for name in differs)} there",
            hint="name another output, or move that folder away",
        )
