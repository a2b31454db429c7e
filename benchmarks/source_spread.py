"""How far two sources agree that measured the same configuration: what no prediction can be nearer to both of."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import exp, log
from statistics import median
from typing import Any

from accuracy_rows import TARGETS, Target
from rivals.compare import percentile
from tonnage.calibration.prediction import SkippedRow

# What two rows share that measured the same: all that a row states but for versions, and the program that ran.
SAME = {
    "training": (
        "model", "gpu", "n_gpus", "seq_len", "micro_batch_per_gpu", "global_batch", "precision", "method", "sharding",
        "activation_checkpointing", "program", "metric",
    ),
    "inference": (
        "model", "kind", "gpu", "n_gpus", "tp", "engine", "precision", "weights_quant", "batch_size", "concurrency",
        "input_len", "output_len", "metric",
    ),
}  # fmt: skip
SIZED_BY = ("micro_batch_per_gpu", "global_batch", "batch_size", "concurrency")  # rows that state none are not compared
FEWEST = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Pairs of sources: how far apart they are, and what a prediction halfway between errs by, in %."""

    pairs: int
    sources: int
    apart_median_pct: float
    apart_p90_pct: float
    least_median_pct: float
    least_p90_pct: float


def source_spread(rows: Iterable[Any], same: Sequence[str]) -> Spread | None:
    """The spread over configurations that at least two sources (documents) measured; None with fewer than `FEWEST`.

    A source that states a configuration twice counts once, by its median. Halfway, in logarithms, is the place from
    which the larger of both errors is least.
    """
    found: defaultdict[tuple[Any, ...], defaultdict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        if row.quality != "suspect" and row.value > 0 and any(getattr(row, name, None) for name in SIZED_BY):
            found[tuple(getattr(row, name) for name in same)][row.source].append(row.value)
    apart, sources = [], set()
    for values in found.values():
        for first, second in combinations(sorted(values), 2):
            apart.append(abs(log(median(values[first]) / median(values[second]))))
            sources |= {first, second}
    if len(apart) < FEWEST:
        return None
    whole, half = ([100.0 * (exp(one * share) - 1.0) for one in apart] for share in (1.0, 0.5))
    return Spread(
        pairs=len(apart),
        sources=len(sources),
        apart_median_pct=median(whole),
        apart_p90_pct=percentile(whole, 0.9),
        least_median_pct=median(half),
        least_p90_pct=percentile(half, 0.9),
    )


def spread_table(tables: dict[str, Sequence[Any]]) -> Iterator[str]:
    """A line for each kind of prediction that two sources speak of. `tables`: rows of each table."""
    yield "| prediction | pairs | sources | apart: median | p90 | halfway errs by: median | p90 |"
    yield "| --- | ---: | ---: | ---: | ---: | ---: | ---: |"
    for target in (one for one in TARGETS if one.kind in tables):
        found = source_spread((row for row in tables[target.kind] if counts(target, row)), SAME[target.kind])
        if found is not None:
            yield (
                f"| {target.name} | {found.pairs:,} | {found.sources} | {found.apart_median_pct:.0f} "
                f"| {found.apart_p90_pct:.0f} | {found.least_median_pct:.0f} | {found.least_p90_pct:.0f} |"
            )


def counts(target: Target, row: Any) -> bool:
    """Whether a row is of a target's kind."""
    return not isinstance(row, SkippedRow) and target.belongs(row, {"kind": getattr(row, "kind", "")})
