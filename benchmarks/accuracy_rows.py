"""What the accuracy page counts: kinds of prediction with the figures they are held to, and why a row is far off."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import expm1, log
from statistics import median
from typing import TypeAlias

from tonnage.calibration.prediction import JudgedRow

Cells: TypeAlias = Mapping[str, str]
MIN_ALIKE = 3
ATTRIBUTES = ("family", "gpu", "engine", "precision", "batch", "source")


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One line of the figures Tonnage is held to. Readings that bound a figure from one side are told apart
    (`accuracy_tables.bound_sentences`)."""

    name: str
    kind: str
    unit: str
    median_pct: float
    p90_pct: float
    belongs: Callable[[JudgedRow, Cells], bool]

    @property
    def slug(self) -> str:
        return re.sub(r"[^a-z]+", "-", self.name.lower()).strip("-")

    def met_by(self, median_pct: float, p90_pct: float) -> bool:
        """Whether errors are no larger than asked."""
        return median_pct <= self.median_pct and p90_pct <= self.p90_pct


TRAINING_RATES = frozenset({"tokens_per_s_per_gpu", "sequences_per_s", "images_per_s", "iteration_time_s"})
DECODER_RATES = frozenset({"output_tokens_per_s", "requests_per_s", "total_tokens_per_s"})
PASS_METRICS = ("latency_ms", "sequences_per_s", "samples_per_s", "server_compute")


def _is_pass(row: JudgedRow, cells: Cells, kind: str) -> bool:
    return cells.get("kind") == kind and row.metric.startswith(PASS_METRICS)


TARGETS = (
    Target(name="training throughput", kind="training", unit="tokens, sequences or images a second", median_pct=8,
           p90_pct=20, belongs=lambda row, _: row.metric in TRAINING_RATES),
    Target(name="peak training memory", kind="training", unit="GiB", median_pct=6, p90_pct=15,
           belongs=lambda row, _: row.metric.startswith("peak_mem")),
    Target(name="encoder latency and throughput", kind="inference", unit="ms or a second", median_pct=10, p90_pct=25,
           belongs=lambda row, cells: _is_pass(row, cells, "encoder")),
    Target(name="vision latency and throughput", kind="inference", unit="ms or a second", median_pct=10, p90_pct=25,
           belongs=lambda row, cells: _is_pass(row, cells, "vision")),
    Target(name="decoder throughput", kind="inference", unit="tokens or requests a second", median_pct=7, p90_pct=20,
           belongs=lambda row, cells: cells.get("kind") == "decoder" and row.metric in DECODER_RATES),
    Target(name="decoder TTFT and TPOT", kind="inference", unit="ms", median_pct=12, p90_pct=30,
           belongs=lambda row, _: row.metric.startswith(("ttft", "tpot"))),
)  # fmt: skip


def attributes(row: JudgedRow, cells: Cells) -> dict[str, str]:
    """What a row has in common with others."""
    batch = _batch(cells)
    return {
        "family": row.family,
        "gpu": row.gpu,
        "engine": cells.get("engine") or cells.get("source_group", ""),
        "precision": cells.get("precision", ""),
        "batch": batch if batch in ("1", "not stated") else "larger",
        "source": cells.get("source", ""),
    }


def diagnosis(row: JudgedRow, rows: Sequence[JudgedRow], cells: Mapping[str, Cells]) -> str:
    """What the row shares its error with, read off its attributes alone and in pairs.

    The smallest set of rows of the same kind that is off the same way by at least half as much; «alone» when there is
    none: then the row itself is the outlier, or says too little of itself.
    """
    own = log(row.predicted / row.measured)
    mine = attributes(row, cells[row.row_id])
    others = [
        (attributes(other, cells[other.row_id]), log(other.predicted / other.measured))
        for other in rows
        if other.group == row.group and other.row_id != row.row_id
    ]
    found: list[tuple[int, str]] = []
    for names in (*((name,) for name in ATTRIBUTES), *combinations(ATTRIBUTES, 2)):
        alike = [error for theirs, error in others if all(theirs[name] == mine[name] for name in names)]
        if len(alike) >= MIN_ALIKE and abs(median(alike)) >= abs(own) / 2 and median(alike) * own > 0:
            what = " and ".join(f"{name} {mine[name]}" for name in names)
            found.append(
                (len(alike), f"{what}: {len(alike)} others are off by {100 * expm1(median(alike)):+.0f} % too")
            )
    if found:
        return min(found)[1]
    alike = [error for theirs, error in others if theirs["source"] == mine["source"]]
    if not alike:
        return "the only row of its source"
    near = 100 * expm1(median(alike))
    return f"alone: {len(alike)} others of its source are off by {near:+.0f} % (batch {_batch(cells[row.row_id])})"


def _batch(cells: Cells) -> str:
    return cells.get("micro_batch_per_gpu") or cells.get("batch_size") or cells.get("concurrency") or "not stated"
