"""What the harness of `tonnage bench` costs: its rows per second over those of a bare script of the same engine.

    python benchmarks/bench_overhead.py [--engine xgboost] [--pairs 7]

Harness and script take turns on the same arrays with the same parameters, threads and pinned cores, each in a process
of its own, so that a busy machine slows both. Both clocks stand around the engine's own training call alone; the script
has no callback, no watcher and no journal. Figure held to: 0.98 or more, the median over the pairs; by the clock, and
by processor seconds of the training (script over harness), which what other programs take does not lengthen.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from tonnage.benchmarks.engines.folder import BenchFolder
from tonnage.benchmarks.engines.session import prepare_all, read_host
from tonnage.benchmarks.engines.worker_process import run_cell
from tonnage.side_by_side.reading import read_bench
from tonnage.side_by_side.result import rate_of
from tonnage.side_by_side.spec import BenchSpec

BARE = {
    "xgboost": """
import xgboost
data = xgboost.QuantileDMatrix(x, y, max_bin=256, nthread=threads)
given = dict(objective="binary:logistic", tree_method="hist", max_depth=6, max_bin=256, eta=0.1, nthread=threads,
             seed=0)
def train(passes):
    xgboost.train(given, data, passes)
""",
    "lightgbm": """
import lightgbm
data = lightgbm.Dataset(x, y, params=dict(max_bin=255, num_threads=threads, verbosity=-1)).construct()
given = dict(objective="binary", max_depth=6, num_leaves=64, max_bin=255, learning_rate=0.1, num_threads=threads,
             seed=0, verbosity=-1)
def train(passes):
    lightgbm.train(given, data, passes)
""",
}
AROUND = """
import json, os, sys, time
import numpy as np
folder, rounds, threads = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
x, y = np.load(folder + "/train_features.npy"), np.load(folder + "/train_target.npy")
{engine}
train(3)
begun, cpu = time.monotonic(), time.process_time()
train(rounds)
rate = len(y) * rounds / (time.monotonic() - begun)
print(json.dumps([rate, time.process_time() - cpu]))
"""


def bare_rate(engine: str, folder: Path, rounds: int, threads: int) -> tuple[float, float]:
    """Rows a second of the bare script, and processor seconds of its training."""
    pinned = os.environ | {"OMP_NUM_THREADS": str(threads)}
    command = [sys.executable, "-c", AROUND.replace("{engine}", BARE[engine]), str(folder), str(rounds), str(threads)]
    done = subprocess.run(command, env=pinned, capture_output=True, text=True, check=True)
    rate, cpu_s = json.loads(done.stdout.splitlines()[-1])
    return float(rate), float(cpu_s)


def harness_rate(spec: BenchSpec, table: Path, folder: BenchFolder) -> tuple[float, float]:
    """The same through the harness."""
    cell = run_cell(spec.data[0], spec.engines[0], 0, table=table, seed=0, timeout_s=spec.timeout_s, bench=folder.path,
                    home=folder.path)  # fmt: skip
    rate = rate_of(cell, spec.engines[0])
    assert rate is not None, cell.reason
    assert cell.cpu_s is not None
    return rate, cell.cpu_s


def main() -> None:
    parser = argparse.ArgumentParser(description="rows a second of the harness over those of a bare script")
    parser.add_argument("--engine", choices=sorted(BARE), default="xgboost")
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    spec = read_bench(
        f"bench: {{name: overhead, threads: {given.threads}, data: [{{name: d, generate: {{rows: {given.rows}, "
        f"columns: 28}}}}], engines: [{{engine: {given.engine}, rounds: {given.rounds}}}]}}"
    )
    with TemporaryDirectory() as place:
        folder = BenchFolder(Path(place))
        table = prepare_all(spec, folder)["d"].folder
        ratios, of_cpu = [], []
        for pair in range(given.pairs):
            both = {}
            for who in ("script", "harness") if pair % 2 else ("harness", "script"):
                if who == "script":
                    both[who] = bare_rate(given.engine, table, given.rounds, given.threads)
                else:
                    both[who] = harness_rate(spec, table, folder)
            ratios.append(both["harness"][0] / both["script"][0])
            of_cpu.append(both["script"][1] / both["harness"][1])
            print(f"harness {both['harness'][0]:,.0f} rows/s, {both['harness'][1]:.2f} CPU s; script "
                  f"{both['script'][0]:,.0f} rows/s, {both['script'][1]:.2f} CPU s")  # fmt: skip
    print(read_host().processor)
    for what, found in (("rows/s by the clock", ratios), ("by processor time", of_cpu)):
        print(f"{what}: median {median(found):.3f} (least {min(found):.3f}, most {max(found):.3f})")


if __name__ == "__main__":
    main()
