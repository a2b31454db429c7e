"""Rows joined, windowed, encoded and tokenised, on one machine or on many: `tonnage.prepare`."""

from __future__ import annotations

import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

from tonnage.api.answers import Answer
from tonnage.api.declaring import Options, option
from tonnage.errors import InputError
from tonnage.values import dataclass

if TYPE_CHECKING:
    from tonnage.data_engines.duckdb_engine import DuckDbEngine
    from tonnage.data_engines.ray_engine import RayDataEngine
    from tonnage.data_engines.spark_engine import SparkEngine
    from tonnage.preparing.spec import Preparation
    from tonnage.reports.prepare import PreparationDone

LOCAL: Final = "local[*]"  # Spark on the cores of this machine
ENGINES: Final = ("duckdb", "spark", "ray")


@dataclass(frozen=True, slots=True, kw_only=True)
class PrepareOptions(Options):
    """What carries a preparation out."""

    engine: str = option(
        "--engine", "duckdb (this machine), spark or ray (Ray Data).", default="duckdb", metavar="NAME"
    )
    master: str | None = option(
        "--master", "Of Spark or Ray: the cluster's address; its workers see the same paths. [default: this machine, "
        "or what RAY_ADDRESS names]", default=None, metavar="URL",
    )  # fmt: skip
    stream: bool = option(
        "--stream", "Take files as they arrive in the folder of `from`, each row written once; engine spark.",
        default=False,
    )  # fmt: skip
    threads: int | None = option("--threads", "Of DuckDB. [default: the cores]", default=None, metavar="N")


def prepare(file: Path | str, options: PrepareOptions | None = None) -> Answer[PreparationDone]:
    """The preparation of a file, carried out: the same result whichever engine does it.

    Raises WorkloadError for a file that cannot be used, DataError (source, column, key, line) for rows that cannot,
    MissingExtra where the engine is not installed.
    """
    from tonnage.data_engines.lines import places_of
    from tonnage.preparing.carrying import carry_out
    from tonnage.preparing.reading import load_preparation
    from tonnage.reports.prepare import PreparationDone, prepare_report

    options = options or PrepareOptions()
    if options.engine not in ENGINES:
        raise InputError(f"no engine is named '{options.engine}'", hint=f"one of {', '.join(ENGINES)}")
    if options.threads is not None and options.threads < 1:
        raise InputError(f"--threads: found {options.threads}, expected at least 1")
    if options.stream and options.engine != "spark":
        raise InputError(f"--stream: {options.engine} reads no streams", hint="--engine spark")
    asked = load_preparation(Path(file))
    if options.stream:
        return _streamed(asked, options)
    began = time.perf_counter()
    with TemporaryDirectory(prefix="tonnage-prepare-") as scratch:
        engine = _started(options, Path(scratch))
        ready = time.perf_counter()
        try:
            made = carry_out(asked, engine, places_of)
        finally:
            engine.close()
    ended = time.perf_counter()
    return Answer(
        PreparationDone(asked=asked, engine=options.engine, made=made, start_s=ready - began, work_s=ended - ready),
        prepare_report,
    )


def _started(options: PrepareOptions, scratch: Path) -> DuckDbEngine | SparkEngine | RayDataEngine:
    """The engine that was asked for. MissingExtra where it is not installed."""
    if options.engine == "duckdb":
        from tonnage.data_engines.duckdb_engine import DuckDbEngine

        return DuckDbEngine(scratch, threads=options.threads)
    if options.engine == "ray":
        from tonnage.data_engines.ray_engine import RayDataEngine

        return RayDataEngine(scratch, address=options.master)
    from tonnage.data_engines.spark_engine import SparkEngine

    return SparkEngine.start(options.master or LOCAL)


def _streamed(asked: Preparation, options: PrepareOptions) -> Answer[PreparationDone]:
    from tonnage.data_engines.lines import places_of
    from tonnage.data_engines.spark_engine import SparkEngine
    from tonnage.data_engines.spark_stream import stream_batches
    from tonnage.preparing.streaming import load_categories, streamed
    from tonnage.reports.prepare import PreparationDone, prepare_report

    fitted = asked.stream.fitted if asked.stream is not None else None
    asked, how = streamed(asked, {} if fitted is None else load_categories(Path(fitted)))
    began = time.perf_counter()
    engine = SparkEngine.start(options.master or LOCAL)
    ready = time.perf_counter()
    try:
        made, batches = stream_batches(asked, how, engine, places_of)
    finally:
        engine.close()
    done = PreparationDone(asked=asked, engine=options.engine, made=made, batches=batches, start_s=ready - began,
                           work_s=time.perf_counter() - ready)  # fmt: skip
    return Answer(done, prepare_report)
