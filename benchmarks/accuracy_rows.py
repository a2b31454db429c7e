"""What the accuracy page counts: kinds of prediction with the figures they are held to, and why a row is far off."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import log
from statistics import median
from typing import TypeAlias

from tonnage.calibration.judgement import Judged

Cells: TypeAlias = Mapping[str, str]
MIN_ALIKE = 3
ATTRIBUTES = ("family", "gpu", "engine", "precision", "batch", "source")


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One line of the figures Tonnage is held to."""

    name: str
    kind: str
    unit: str
    median_pct: float
    p90_pct: float
    belongs: Callable[[Judged, Cells], bool]

    @property
    def slug(self) -> str:
        return re.sub(r"[^a-z]+", "-", self.name.lower()).strip("-")


TRAINING_RATES = frozenset({"tokens_per_s_per_gpu", "sequences_per_s", "images_per_s", "iteration_time_s"})
DECODER_RATES = frozenset({"output_tokens_per_s", "requests_per_s", "total_tokens_per_s"})
PASS_METRICS = ("latency_ms", "sequences_per_s", "samples_per_s", "server_compute")


def _is_pass(row: Judged, cells: Cells, kind: str) -> bool:
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
    Target(name="decoder throughput", kind="inference", unit="tokens or requests a second", median_pct=8, p90_pct=22,
           belongs=lambda row, cells: cells.get("kind") == "decoder" and row.metric in DECODER_RATES),
    Target(name="decoder TTFT and TPOT", kind="inference", unit="ms", median_pct=12, p90_pct=30,
           belongs=lambda row, _: row.metric.startswith(("ttft", "tpot"))),
)  # fmt: skip


def attributes(row: Judged, cells: Cells) -> dict[str, str]:
    """What a row has in common with others."""
    batch = cells.get("micro_batch_per_gpu") or cells.get("batch_size") or cells.get("concurrency") or ""
    return {
        "family": row.family,
        "gpu": row.gpu,
        "engine": cells.get("engine") or cells.get("source_group", ""),
        "precision": cells.get("precision", ""),
        "batch": "1" if batch == "1" else "larger" if batch else "not stated",
        "source": cells.get("source", ""),
    }


def diagnosis(row: Judged, rows: Sequence[Judged], cells: Mapping[str, Cells]) -> str:
    """What the row shares its error with, read off the attributes: the smallest group that is off by half as much.

    «alone» when rows that share each attribute are on average right: then the row itself is the outlier.
    """
    own = log(row.predicted / row.measured)
    mine = attributes(row, cells[row.row_id])
    same_kind = [other for other in rows if other.group == row.group and other.row_id != row.row_id]
    found: list[tuple[int, str]] = []
    for name in ATTRIBUTES:
        alike = [
            log(other.predicted / other.measured)
            for other in same_kind
            if attributes(other, cells[other.row_id])[name] == mine[name]
        ]
        if len(alike) >= MIN_ALIKE and abs(median(alike)) >= abs(own) / 2 and median(alike) * own > 0:
            shared = 100 * (2.718281828459045 ** median(alike) - 1)
            found.append((len(alike), f"{name} {mine[name]}: {len(alike)} others are off by {shared:+.0f} % too"))
    return min(found)[1] if found else "alone: rows that share its family, GPU, engine or source are not off this way"
