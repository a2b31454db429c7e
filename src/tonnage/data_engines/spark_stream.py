"""Spark Structured Streaming: files that arrive in a folder, prepared in micro-batches, each of which is written once.

Spark's checkpoint fixes the files of a micro-batch before it is read. A killed run reads the same files again under the
same number, and a number is written once: a file of that name is replaced whole, and a Delta table keeps the number in
the commit of its rows.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib
import json
import os
import shutil
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from tonnage.data_engines.delta import append_once
from tonnage.data_engines.spark_engine import SparkEngine, said
from tonnage.errors import DataError, InputError, TonnageError
from tonnage.files import write_whole
from tonnage.preparing.carrying import Lines, PreparedTables, carry_out
from tonnage.preparing.spec import ColumnType, Preparation, StreamTerms, TableSource, TableTarget

MARK: Final = "tonnage.json"
POLL_S: Final = 0.2


def stream_batches(
    asked: Preparation, how: StreamTerms, engine: SparkEngine, lines: Lines
) -> tuple[PreparedTables, int]:
    """All that has arrived since the checkpoint (with `every_s`: and goes on arriving, until interrupted), and the
    number of micro-batches.

    DataError as of a batch, and where the checkpoint is of another preparation or lacks its result; InputError where
    another process has the checkpoint.
    """
    checkpoint = Path(how.checkpoint)
    with _held(checkpoint):
        application = _application(checkpoint, asked)
        _sweep(Path(asked.target.location))
        batches = _Batches(asked, application, lines)
        arriving = engine.arriving(asked.sources[asked.base], files_at_once=how.files_at_once)
        writer = arriving.writeStream.foreachBatch(batches.take)
        writer = writer.option("checkpointLocation", str(checkpoint / "spark"))
        every = {"availableNow": True} if how.every_s is None else {"processingTime": _interval(how.every_s)}
        engine.quiet()  # a failure is said below, in words
        try:
            _follow(writer.trigger(**every).start())
        except Exception as error:  # Java's exceptions come through py4j, which is not imported here
            if batches.failed is not None:
                raise batches.failed from None
            raise DataError(f"the stream ended: {said(error)}") from error
    return batches.total(), batches.count


def _interval(seconds: float) -> str:
    return f"{max(1, round(seconds * 1000))} milliseconds"


def _follow(query: Any) -> None:
    """Until it ends, or is interrupted: what it was at is then done again by the next run."""
    try:
        while query.isActive:
            time.sleep(POLL_S)
    except KeyboardInterrupt:
        query.stop()
        return
    query.awaitTermination()


class _Batches:
    """Micro-batches as they come: each prepared as a table of its own."""

    def __init__(self, asked: Preparation, application: str, lines: Lines) -> None:
        self.asked = asked
        self.application = application
        self.lines = lines
        self.count = 0
        self.failed: TonnageError | None = None
        self._last: PreparedTables | None = None
        self._rows_in = 0
        self._rows_out = 0

    def take(self, rows: Any, number: int) -> None:
        """One micro-batch, read once."""
        rows.persist()
        try:
            engine = _BatchEngine(rows, number, self.asked.base, self.application)
            made = carry_out(self.asked, engine, self.lines)
        except TonnageError as error:
            self.failed = error
            raise
        finally:
            rows.unpersist()
        self.count += 1
        self._rows_in += made.rows_in[self.asked.base]
        self._rows_out += made.rows_out
        self._last = made

    def total(self) -> PreparedTables:
        """All micro-batches of this run; tables beside them as they were at the last."""
        last = self._last
        if last is None:
            return PreparedTables(
                rows_in={self.asked.base: 0}, rows_out=0, columns=(), categories={}, version=None
            )  # fmt: skip
        return PreparedTables(
            rows_in={**last.rows_in, self.asked.base: self._rows_in}, rows_out=self._rows_out, columns=last.columns,
            categories=last.categories, version=last.version,
        )  # fmt: skip


class _BatchEngine(SparkEngine):
    """The rows of one micro-batch in place of the source that they arrive in."""

    def __init__(self, rows: Any, number: int, base: str, application: str) -> None:
        super().__init__(rows.sparkSession)
        self._arrived = rows
        self._number = number
        self._base = base
        self._application = application

    def open(self, view: str, source: TableSource) -> Mapping[str, ColumnType | None]:
        """The micro-batch, or a table beside it."""
        return self.open_rows(view, self._arrived) if source.name == self._base else super().open(view, source)

    def write(self, view: str, key: tuple[str, ...], target: TableTarget) -> int | None:
        """One file with the micro-batch's number in its name, or one version of a Delta table."""
        rows = self._session.table(self.dialect.name(view)).repartition(1)
        rows = rows.sortWithinPartitions(*(self.dialect.name(one) for one in key))
        place = Path(target.location)
        between = place.with_name(f"{_drafts(place)}{os.getpid()}")
        try:
            if target.format == "csv":
                rows.write.csv(str(between), header=True, mode="overwrite")
            else:
                rows.write.parquet(str(between), mode="overwrite")
            return self._once(between, target)
        except TonnageError:
            raise
        except Exception as error:  # as above
            raise DataError(f"{target.location} cannot be written: {said(error)}") from error
        finally:
            shutil.rmtree(between, ignore_errors=True)

    def _once(self, between: Path, target: TableTarget) -> int | None:
        if target.format == "delta":
            dataset: Any = importlib.import_module("pyarrow.dataset")
            parts = dataset.dataset(str(between), format="parquet")
            return append_once(
                target.location, iter(parts.to_batches()), parts.schema, application=self._application,
                number=self._number, partition_by=target.partition_by,
            )  # fmt: skip
        place = Path(target.location)
        place.mkdir(parents=True, exist_ok=True)
        for part in between.glob("part-*"):  # one, since the rows are one partition
            os.replace(part, place / f"batch-{self._number:09}.{target.format}")
        return None


def _drafts(place: Path) -> str:
    return f".{place.name}.stream-"


def _sweep(place: Path) -> None:
    """Without what a killed process left beside the target."""
    if place.parent.is_dir():
        for one in place.parent.iterdir():
            if one.name.startswith(_drafts(place)):
                shutil.rmtree(one, ignore_errors=True)


@contextmanager
def _held(checkpoint: Path) -> Iterator[None]:
    """The checkpoint for this process alone; the kernel gives it back when the process ends, killed or not."""
    try:
        checkpoint.mkdir(parents=True, exist_ok=True)
        lock = os.open(checkpoint / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise InputError(f"the checkpoint {checkpoint} cannot be used: {error.strerror}") from error
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            hint = "wait for it or end it; each preparation has its own checkpoint"
            raise InputError(f"another process streams with the checkpoint {checkpoint}", hint=hint) from None
        yield
    finally:
        os.close(lock)


def _application(checkpoint: Path, asked: Preparation) -> str:
    """The name under which a Delta table keeps the numbers of this checkpoint. DataError where rows would be written
    twice or lost."""
    mark, target = checkpoint / MARK, Path(asked.target.location)
    there = target.is_file() or (target.is_dir() and any(target.iterdir()))
    digest = preparation_digest(asked)
    if not mark.exists():
        if there:
            raise DataError(f"{target} is there already, and {checkpoint} does not know which files are in it",
                            hint="name the checkpoint that it was written with, or another target")  # fmt: skip
        name = f"tonnage-{uuid.uuid4()}"
        write_whole(mark, json.dumps({"application": name, "preparation": digest}))
        return name
    kept = json.loads(mark.read_text(encoding="utf-8"))
    if kept["preparation"] != digest:
        raise DataError(f"{checkpoint} is the checkpoint of another preparation: sources, steps or target differ",
                        hint="another checkpoint and another target, and all files are prepared again")  # fmt: skip
    if not there and any((checkpoint / "spark" / "commits").glob("[0-9]*")):
        raise DataError(f"{checkpoint} knows files as done, and {target} is not there",
                        hint="put it back, or remove the checkpoint: all files are prepared again")  # fmt: skip
    return str(kept["application"])


def preparation_digest(asked: Preparation) -> str:
    """What tells one preparation from another in its rows: sources, steps and target, not how they are streamed."""
    stated = {
        "from": asked.base,
        "sources": {name: _given(asdict(one)) for name, one in asked.sources.items()},
        "steps": [[type(one).__name__, _given(one.model_dump())] for one in asked.steps],
        "to": _given(asdict(asked.target)),
    }
    return hashlib.sha256(json.dumps(stated, sort_keys=True).encode()).hexdigest()


def _given(values: Mapping[str, Any]) -> dict[str, Any]:
    """Without what is absent, so that a later option leaves a checkpoint valid."""
    return {name: value for name, value in values.items() if value is not None}
