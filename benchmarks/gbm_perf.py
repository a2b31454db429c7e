"""GBM-perf's public table of XGBoost beside our predictions, as the rows of docs/gbm-perf.md.

    python benchmarks/gbm_perf.py

Airline data, one-hot: 8 entries a row; 100 trees of depth 10. The figures are in benchmarks/results/gbm_perf.csv.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from tonnage import load_catalog
from tonnage.sizing.assumptions import Assumptions
from tonnage.sizing.devices import Machine, stack
from tonnage.sizing.tabular import (
    TREES_TIME_ON_CPUS_SPREAD,
    TREES_TIME_ON_GPUS_SPREAD,
    CpuColumns,
    estimate_trees_on_cpus,
    estimate_trees_on_gpus,
)
from tonnage.units import from_gib
from tonnage.workload.jobs import TabularJob

RESULTS = Path(__file__).parent / "results" / "gbm_perf.csv"
AIRLINE = TabularJob(rows=10_000_000, features=8, trees=100, depth=10, bins=213)  # about 1,700 bins in all


def predicted_s(row: Mapping[str, str]) -> float:
    """Seconds of one row, as `kind: tabular` predicts them."""
    job = replace(AIRLINE, rows=int(row["rows"]))
    if row["vcpus"]:
        columns = CpuColumns(
            vcpus=np.array([float(row["vcpus"])]), memory_bytes=np.array([from_gib(192.0)]), arm=np.array([False]),
            threads_per_core=np.array([float(row["threads_per_core"])]),
        )  # fmt: skip
        return float(estimate_trees_on_cpus(job, columns).total_s[0])
    catalog = load_catalog()
    machine = Machine(
        accelerator=catalog.accelerator(row["device"]), count=1, intra=catalog.link(""), network_gb_per_s=None,
        network_latency_us=40.0,
    )  # fmt: skip
    device = stack([machine], "fp16", Assumptions())
    found = estimate_trees_on_gpus(job, device, np.array([1.0]), np.array([from_gib(64.0)]))
    return float(found.total_s[0])


def main() -> None:
    """Print a line of the table for each row."""
    for row in csv.DictReader(RESULTS.read_text(encoding="utf-8").splitlines()):
        spread = TREES_TIME_ON_CPUS_SPREAD if row["vcpus"] else TREES_TIME_ON_GPUS_SPREAD
        made, seconds = spread.around(predicted_s(row)), float(row["seconds"])
        where = f"{row['device']}, {row['vcpus']} vCPUs" if row["vcpus"] else row["device"]
        inside = "yes" if made.low <= seconds <= made.high else "no"
        print(
            f"| {where} | {int(row['rows']):,} | {seconds:.3g} | {made.value:.3g} ({made.low:.3g}–{made.high:.3g}) | "
            f"{seconds / made.value:.2f} | {inside} |"
        )


if __name__ == "__main__":
    main()
