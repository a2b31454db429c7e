"""How far predicted gains of a switch are from measured ones: pairs of measured rows that differ in one thing.

    TONNAGE_FACTS=FOLDER python benchmarks/gains_of_switches.py

For every two rows of one source, model, device and setting that differ in number format (or engine) alone, the gain
that was measured over the one that is predicted; printed are the pairs and the 10th, 50th and 90th percentile of it.
The intervals of `tonnage optimise` (`optimisations/predicting.py`) are these.
"""

from __future__ import annotations

import csv
import os
from collections import defaultdict
from itertools import combinations
from pathlib import Path

import numpy as np

from tonnage import load_catalog
from tonnage.calibration.kinds import KindName, judged_rows, kind_named
from tonnage.calibration.prediction import JudgedRow
from tonnage.calibration.store import load_calibration

TRAINING = (
    "source", "model", "seq_len", "gpu", "n_gpus", "micro_batch_per_gpu", "grad_accum", "global_batch", "precision",
    "method", "optimizer", "sharding", "activation_checkpointing", "attention", "compile", "metric",
)  # fmt: skip
INFERENCE = (
    "source", "model", "gpu", "n_gpus", "tp", "engine", "precision", "weights_quant", "batch_size", "concurrency",
    "input_len", "output_len", "metric",
)  # fmt: skip
SPEEDS = ("per_s", "time_s", "latency", "qps")
ASKED: tuple[tuple[KindName, tuple[str, ...], tuple[str, ...]], ...] = (
    ("training", TRAINING, ("precision",)), ("training", TRAINING, ("compile",)),
    ("inference", INFERENCE, ("precision", "weights_quant")), ("inference", INFERENCE, ("engine",)),
)  # fmt: skip


def ratios(folder: Path, kind_name: KindName, columns: tuple[str, ...], switch: tuple[str, ...]) -> list[float]:
    """Measured over predicted gain of each pair."""
    kind, catalog, calibration = kind_named(kind_name), load_catalog(), load_calibration()
    if calibration is None:
        raise SystemExit("this build has no calibration")
    path = folder / f"{kind_name}_calibration.csv"
    fitted, seen = getattr(calibration, kind_name), calibration.names_seen(kind_name)
    judged = {
        one.row_id: one.measured / one.predicted
        for one in judged_rows(kind, kind.read(path, catalog), catalog, fitted, seen=seen)
        if isinstance(one, JudgedRow) and not one.suspect and one.predicted > 0
    }
    alike: dict[tuple[str, ...], dict[tuple[str, ...], float]] = defaultdict(dict)
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if row["id"] in judged and any(one in row["metric"] for one in SPEEDS):
                shared = tuple(row[name] for name in columns if name not in switch)
                alike[shared].setdefault(tuple(row[name] for name in switch), judged[row["id"]])
    return [one / other for group in alike.values() for one, other in combinations(group.values(), 2)]


def main() -> None:
    """Print a line for each kind of work and switch."""
    folder = Path(os.environ["TONNAGE_FACTS"])
    for kind, columns, switch in ASKED:
        found = ratios(folder, kind, columns, switch)
        low, middle, high = np.quantile(found, (0.1, 0.5, 0.9)) if found else (np.nan,) * 3
        print(f"{kind:9} {'+'.join(switch):24} {len(found):5} pairs  {low:.2f} {middle:.2f} {high:.2f}")


if __name__ == "__main__":
    main()
