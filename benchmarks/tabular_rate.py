"""Measures how fast this machine trains boosted trees (XGBoost hist) and multiplies matrices, about six minutes.

    pip install xgboost-cpu==3.2.0 numpy
    python benchmarks/tabular_rate.py            # prints rows and writes two CSV files under benchmarks/results

Each size runs in a process of its own, so that the peak resident memory is that of the size; times are the least of
three. A cell update is one (row, feature) entry added to a histogram: rows x features x (1 + (depth - 1) / 2) x trees,
because from the second level on only the smaller child of a split is built, the other by subtraction.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np

RESULTS = Path(__file__).parent / "results"
TREES = 20
REPEATS = 3
SIZES = (  # rows, features, (depth, threads)...
    (100_000, 28, ((4, 2), (6, 2), (8, 2), (10, 2))),
    (1_000_000, 28, ((6, 1), (4, 2), (6, 2), (8, 2), (10, 2))),
    (100_000, 100, ((6, 1), (6, 2))),
    (300_000, 100, ((4, 2), (6, 2), (8, 2))),
    (100_000, 310, ((6, 1), (6, 2))),
    (250_000, 310, ((6, 2),)),
    (3_000_000, 28, ((6, 2),)),  # from here on the quantised table outgrows the processor's cache
    (1_000_000, 100, ((6, 1), (6, 2))),
    (600_000, 310, ((6, 2), (8, 2))),
)
PRODUCTS = ((1024, 310, 512), (4096, 310, 512), (4096, 512, 256), (4096, 2048, 2048))  # batch rows, in, out


def least_s(run: Callable[[], object], repeats: int = REPEATS) -> float:
    """Seconds of the fastest of `repeats` runs."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


def resident_bytes() -> int:
    """Resident memory of this process now (Linux)."""
    with open("/proc/self/statm", encoding="ascii") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def measure_trees(rows: int, features: int, runs: Iterable[tuple[int, int]]) -> list[dict[str, float]]:
    """One CSV row per (depth, threads) for dense continuous data, the slowest kind to sketch."""
    import xgboost

    random = np.random.default_rng(0)
    table = random.standard_normal((rows, features), dtype=np.float32)
    target = (table[:, :5].sum(axis=1) + random.standard_normal(rows) > 0).astype(np.float32)
    loaded_bytes = resident_bytes()
    threads_most = max(threads for _, threads in runs)
    start = time.perf_counter()
    data = xgboost.QuantileDMatrix(table, target, nthread=threads_most, max_bin=256)
    quantise_s = time.perf_counter() - start
    measured = []
    for depth, threads in runs:
        options = {
            "tree_method": "hist",
            "objective": "binary:logistic",
            "max_depth": depth,
            "max_bin": 256,
            "nthread": threads,
            "min_child_weight": 1,
            "eta": 0.1,
        }
        train_s = least_s(lambda options=options: xgboost.train(options, data, TREES))
        updates = rows * features * (1 + (depth - 1) / 2) * TREES
        measured.append(
            {
                "rows": rows,
                "features": features,
                "trees": TREES,
                "depth": depth,
                "threads": threads,
                "quantise_threads": threads_most,
                "quantise_s": round(quantise_s, 3),
                "train_s": round(train_s, 4),
                "cell_updates_per_s": round(updates / train_s),
                "loaded_rss_bytes": loaded_bytes,
                "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
            }
        )
    return measured


def measure_products() -> list[dict[str, float]]:
    """float32 matrix products of an MLP's shapes, FLOP a second with every core (a multiply-add counts two)."""
    measured = []
    for batch, inner, outer in PRODUCTS:
        left = np.ones((batch, inner), dtype=np.float32)
        right = np.ones((inner, outer), dtype=np.float32)
        seconds = least_s(lambda left=left, right=right: left @ right, repeats=20)
        flop = 2.0 * batch * inner * outer
        cores = len(os.sched_getaffinity(0))
        measured.append(
            {
                "batch_rows": batch,
                "inputs": inner,
                "outputs": outer,
                "cores": cores,
                "seconds": round(seconds, 6),
                "flop_per_s": round(flop / seconds),
            }
        )
    return measured


def write(path: Path, rows: list[dict[str, float]], about: dict[str, str]) -> None:
    """CSV of `rows`, each with the machine and the date it was measured on."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=[*rows[0], *about])
        writer.writeheader()
        writer.writerows({**row, **about} for row in rows)


def processor() -> str:
    """Processor's name as Linux prints it."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, help="measure this one size in this process, as JSON (used by the script)")
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    if given.size is not None:
        print(json.dumps(measure_trees(*SIZES[given.size])))
        return
    from importlib.metadata import version

    about = {"processor": processor(), "xgboost": version("xgboost-cpu"), "measured_on": time.strftime("%Y-%m-%d")}
    trees: list[dict[str, float]] = []
    for index in range(len(SIZES)):
        command = [sys.executable, __file__, "--size", str(index)]
        answer = subprocess.run(command, check=True, capture_output=True, text=True)
        found = json.loads(answer.stdout)
        for row in found:
            print(row, flush=True)
        trees += found
    write(given.out / "tabular_trees.csv", trees, about)
    products = measure_products()
    for row in products:
        print(row)
    write(given.out / "tabular_products.csv", products, {**about, "xgboost": ""})


if __name__ == "__main__":
    main()
