"""Doubts about measured inference rows, from their figures alone: a table that repeats that of another number format.

Doubted rows are judged and counted apart, and are in no fit. What one row says that no device can do
(`InferenceCase.faster_than_memory`) is in no fit either, but counts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from math import log
from typing import Any, Final

from tonnage.calibration.prediction import SkippedRow
from tonnage.calibration.reading import in_batches
from tonnage.calibration.rows import InferenceRow
from tonnage.catalog.catalog import Catalog
from tonnage.errors import UnknownAccelerator
from tonnage.sizing.served_formats import FORMATS
from tonnage.values import dataclass

NOISE: Final = 0.05  # two runs of one configuration lie as near (one publisher's revisions of a table: 0 to 7 %)
AGREEING: Final = 0.9  # of the configurations, that agree so in a table that repeats another
FASTER: Final = 1.5  # times the rate of the other format, from which on a device must show the difference
DEVICE_BOUND: Final = 2.0  # times the least time in its table: the device's work is then most of it, not the launches
FEWEST_PAIRS: Final = 8  # fewer may agree by chance
RATES: Final = ("sequences_per_s", "samples_per_s", "output_tokens_per_s")

Configuration = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class PrintedTable:
    """What one document prints of one program on one GPU in one number format."""

    source: str
    gpu: str
    engine: str
    precision: str
    weights_quant: str


def doubt_repeated(items: Iterable[Any], catalog: Catalog) -> Iterator[Any]:
    """`items` in order, rows of a table that repeats that of a slower format marked as suspect; skipped rows pass.

    A document's rows are compared where they follow one another, as many at a time as a batch holds.
    """
    for _, following in groupby(items, key=documents()):
        for batch in in_batches(following):
            rows = [item for item in batch if isinstance(item, InferenceRow)]
            doubted = repeated_tables(rows, catalog)
            for item in batch:
                reason = doubted.get(table_of(item)) if isinstance(item, InferenceRow) else None
                yield replace(item, quality="suspect", doubt=reason) if reason else item


def documents() -> Callable[[Any], str]:
    """The source of each item in turn; of a skipped row that of the row before it."""
    last = ""

    def source(item: Any) -> str:
        nonlocal last
        last = last if isinstance(item, SkippedRow) else item.source
        return last

    return source


def repeated_tables(rows: Sequence[InferenceRow], catalog: Catalog) -> dict[PrintedTable, str]:
    """Tables whose figures are those of the same document's table in a format that the device multiplies more slowly,
    with the reason.

    Configurations count that are bound by the device: they take at least `DEVICE_BOUND` times the shortest of their
    model. There, a format of `FASTER` times the rate shows, unless it was not on.
    """
    tables: defaultdict[PrintedTable, dict[Configuration, float]] = defaultdict(dict)
    for row in rows:
        if seconds := _seconds(row):
            tables[table_of(row)][_configuration(row)] = seconds
    found: dict[PrintedTable, str] = {}
    for slow, printed in tables.items():
        bound = _device_bound(printed)
        for fast, others in tables.items():
            if not _is_same_but_faster(slow, fast, catalog):
                continue
            apart = [abs(log(others[one] / printed[one])) for one in bound if one in others]
            if len(apart) >= FEWEST_PAIRS and sum(off <= NOISE for off in apart) >= AGREEING * len(apart):
                found[fast] = _reason(slow, fast, len(apart))
    return found


def _reason(slow: PrintedTable, fast: PrintedTable, pairs: int) -> str:
    return (
        f"the {fast.precision} table repeats the {slow.precision} table: {AGREEING:.0%} or more of {pairs} "
        f"configurations that the device bounds are the same within {NOISE:.0%}, though it multiplies "
        f"{fast.precision} at least {FASTER:g} times as fast"
    )


def table_of(row: InferenceRow) -> PrintedTable:
    """The table a row is in."""
    return PrintedTable(row.source, row.gpu, row.engine, row.precision, row.weights_quant)


def _is_same_but_faster(slow: PrintedTable, fast: PrintedTable, catalog: Catalog) -> bool:
    alike = (slow.source, slow.gpu, slow.engine, slow.weights_quant) == (
        fast.source, fast.gpu, fast.engine, fast.weights_quant
    )  # fmt: skip
    if not alike or slow.precision == fast.precision:
        return False
    peaks = [_peak(one, catalog) for one in (slow, fast)]
    return bool(peaks[0] and peaks[1] and peaks[1] >= FASTER * peaks[0])


def _peak(table: PrintedTable, catalog: Catalog) -> float | None:
    """TFLOP/s of the device at the table's format; None where either is not known."""
    served = FORMATS.get(table.precision)
    try:
        return None if served is None else catalog.accelerator(table.gpu).dense_tflops(served.compute)  # type: ignore[arg-type]
    except UnknownAccelerator:
        return None


def _configuration(row: InferenceRow) -> Configuration:
    return (row.model, row.metric, row.n_gpus, row.tp, row.batch_size, row.concurrency, row.input_len, row.output_len,
            row.compiled)  # fmt: skip


def _seconds(row: InferenceRow) -> float | None:
    """What a batch takes, up to a factor of its metric; None for what is no time and no rate of a batch."""
    if row.value <= 0:
        return None
    if "_ms" in row.metric:
        return row.value
    return row.batch_size / row.value if row.metric in RATES and row.batch_size else None


def _device_bound(printed: Mapping[Configuration, float]) -> list[Configuration]:
    shortest: dict[tuple[object, ...], float] = {}
    for one, seconds in printed.items():
        shortest[one[:2]] = min(seconds, shortest.get(one[:2], seconds))
    return [one for one, seconds in printed.items() if seconds >= DEVICE_BOUND * shortest[one[:2]]]
