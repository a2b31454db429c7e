"""Whether a data set fits into the GPUs or the Java heaps of an engine; where not, how many rows do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import ceil

import numpy as np

from tonnage.errors import InputError
from tonnage.side_by_side.spec import BenchData, BenchSpec, EngineSpec, TableFacts, environment_of
from tonnage.sizing.tabular import TabularAssumptions, mlp_device_memory, trees_device_memory
from tonnage.units import from_gib, to_gib

FLOAT_BYTES = 4.0
# Heap over the size of the table. H2O: «about four times the size of your data»; Sparkling Water's nodes are Spark's
# executors, which hold the rows once more (docs.h2o.ai: General Troubleshooting Tips; Data Sharing, internal backend).
# Advice, not a limit: the size here is that of the float32 table, and H2O compresses columns. So it is a warning.
HEAP_TABLES = {"h2o": 4.0, "sparkling": 5.0}
ORDER_BYTES = 8.0  # a row's place in the shuffled epoch, int64


def device_bytes(spec: BenchSpec, engine: EngineSpec, rows: int, columns: int, facts: TableFacts | None) -> float:
    """Bytes that one of the engine's GPUs holds at the peak, of a data set of `rows` rows in all.

    Trees: the physics of XGBoost's quantised table, its share of the training rows. The network here keeps its share of
    the float32 table on the device, and scores the validation or the test rows there afterwards.
    """
    held = max(spec.validation_fraction, spec.test_fraction) * rows
    trained = rows * (1.0 - spec.validation_fraction - spec.test_fraction)
    job = engine.tabular_job(max(round(trained), 1), columns, facts)
    if job is None:  # AutoML: the rows at least, as its algorithms hold them
        return trained * columns * FLOAT_BYTES
    assumed, each = TabularAssumptions(), np.array([float(engine.workers)])
    if engine.family == "trees":
        return float(trees_device_memory(job, each, assumed).total_bytes[0])
    working = mlp_device_memory(job, np.array([engine.batch / engine.workers]), 1, assumed).total_bytes[0]
    table = (
        trained / engine.workers * (columns * FLOAT_BYTES + FLOAT_BYTES + ORDER_BYTES) + held * columns * FLOAT_BYTES
    )
    return float(working + table)


def refuse_what_does_not_fit_on_devices(
    spec: BenchSpec,
    data: BenchData,
    rows: int,
    columns: int,
    memory_bytes: Mapping[str, float],
    facts: TableFacts | None = None,
) -> None:
    """InputError for the first engine whose GPUs cannot hold the data set, with the number of rows that fits.

    `memory_bytes`: of each device whose memory is known; the others are passed over. An engine's smallest counts.
    """
    for engine in spec.engines:
        known = [memory_bytes[one] for one in engine.devices if one in memory_bytes]
        if not known or device_bytes(spec, engine, rows, columns, facts) <= min(known):
            continue
        fits = _most_rows(spec, engine, rows, columns, facts, min(known))
        needed = device_bytes(spec, engine, rows, columns, facts)
        raise InputError(
            f"data set '{data.name}' needs about {to_gib(needed):.3g} GiB on each GPU of {engine.name}, "
            f"{to_gib(min(known)):.3g} GiB are there",
            hint=f"rows: {fits} fits" if fits else "no row fits beside what the engine itself takes: another device",
        )


def small_heaps(spec: BenchSpec, data: BenchData, rows: int, columns: int) -> Iterator[str]:
    """A warning for each engine of H2O whose Java processes together have less memory than H2O advises for the data
    set, with the number of rows and the memory that it would advise."""
    for engine in spec.engines:
        tables = HEAP_TABLES.get(environment_of(engine.engine))
        if tables is None or engine.engine.startswith("spark-"):
            continue  # Spark's own models put on the disk what does not fit
        heap = engine.workers * from_gib(engine.memory_gib)
        needed = tables * rows * columns * FLOAT_BYTES
        if needed > heap:
            yield (
                f"{engine.name} may run out of Java heap: H2O advises about {to_gib(needed):.3g} GiB for data set "
                f"'{data.name}', it has {engine.workers} x {engine.memory_gib:g} GiB; "
                f"its advice is met by rows: {int(heap / (tables * columns * FLOAT_BYTES))}, or memory_gib: "
                f"{ceil(to_gib(needed) / engine.workers * 10) / 10:g}"
            )


def _most_rows(
    spec: BenchSpec, engine: EngineSpec, rows: int, columns: int, facts: TableFacts | None, memory_bytes: float
) -> int:
    """The largest number of rows that fits, by halving; the bytes rise with the rows."""
    low, high = 0, rows
    while high - low > 1:
        middle = (low + high) // 2
        if device_bytes(spec, engine, middle, columns, facts) <= memory_bytes:
            low = middle
        else:
            high = middle
    return low
