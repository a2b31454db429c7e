"""Doubts about measured training rows, from their figures alone: rows that print another number format's figures.

A document that prints one configuration in two number formats, of which the device multiplies one much faster, prints
two figures. Where it prints the same twice, in several configurations, one column is the other's: the one is doubted
whose format has another row of that configuration, in the same document, that says something quite different. Doubted
rows are judged and counted apart, and are in no fit.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from math import log
from typing import Any, Final

from tonnage.calibration.inference_doubts import FASTER, documents
from tonnage.calibration.reading import in_batches
from tonnage.calibration.rows import TrainingRow
from tonnage.catalog.catalog import Catalog
from tonnage.errors import TonnageError
from tonnage.sizing.devices import peak_tflops
from tonnage.sizing.precision import TRAINING

SAME: Final = 0.01  # of a figure: two runs of one configuration differ by more
FEWEST: Final = 2  # configurations that repeat; one does so by chance
CONFIGURATION: Final = (
    "model", "params", "n_layers", "d_model", "seq_len", "image_side", "gpu", "n_gpus", "gpus_per_node",
    "micro_batch_per_gpu", "grad_accum", "global_batch", "method", "optimizer", "sharding", "activation_checkpointing",
    "attention", "compile", "program", "objective", "metric",
)  # fmt: skip


def doubt_repeated_formats(items: Iterable[Any], catalog: Catalog) -> Iterator[Any]:
    """`items` in order, rows that repeat another format's figures marked as suspect; skipped rows pass.

    A document's rows are compared where they follow one another, as many at a time as a batch holds.
    """
    for _, following in groupby(items, key=documents()):
        for batch in in_batches(following):
            doubted = repeated_formats([item for item in batch if isinstance(item, TrainingRow)], catalog)
            for item in batch:
                reason = doubted.get(item.id) if isinstance(item, TrainingRow) else None
                yield replace(item, quality="suspect", doubt=reason) if reason else item


def repeated_formats(rows: Sequence[TrainingRow], catalog: Catalog) -> dict[str, str]:
    """The doubted rows of one document by their ids, each with the reason."""
    configurations: defaultdict[tuple[object, ...], list[TrainingRow]] = defaultdict(list)
    for row in rows:
        if row.quality != "suspect" and row.value > 0:
            configurations[tuple(getattr(row, name) for name in CONFIGURATION)].append(row)
    found = {
        key: pair
        for key, mine in configurations.items()
        if len({row.precision for row in mine}) > 1 and (pair := _repeated(mine, catalog)) is not None
    }
    if len(found) < FEWEST:
        return {}
    return {
        copy.id: f"{copy.precision} prints what {of.precision} does within {SAME:.0%}, as in {len(found) - 1} more "
        f"configurations of its document, which prints another {copy.precision} figure of it too"
        for copy, of in found.values()
    }


def _repeated(rows: Sequence[TrainingRow], catalog: Catalog) -> tuple[TrainingRow, TrainingRow] | None:
    """Of one configuration the row that repeats another format's figure against its own format's, and that other."""
    for row in rows:
        others = [one for one in rows if one is not row and one.precision == row.precision]
        if not any(abs(log(one.value / row.value)) > log(FASTER) for one in others):
            continue
        for one in rows:
            same = one.precision != row.precision and abs(log(one.value / row.value)) <= SAME
            if same and _differ(row, one, catalog):
                return row, one
    return None


def _differ(row: TrainingRow, other: TrainingRow, catalog: Catalog) -> bool:
    """Whether the device multiplies one row's format so much faster than the other's that it must show."""
    rates = [rate for one in (row, other) if (rate := _peak(one, catalog)) is not None]
    return len(rates) == 2 and max(rates) >= FASTER * min(rates)


def _peak(row: TrainingRow, catalog: Catalog) -> float | None:
    numbers = TRAINING.get(row.precision.strip().lower())
    try:
        return None if numbers is None else peak_tflops(catalog.accelerator(row.gpu), numbers.compute)
    except TonnageError:
        return None
