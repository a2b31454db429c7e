"""How large a week of figures grows, and what a round and an opening cost.

    python benchmarks/watch_history.py [--runs 200] [--series 10] [--days 7] [--every 10]

Values wander at random, with four decimals: worse to compress than most figures.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np

from tonnage.monitoring.figures import series
from tonnage.monitoring.history import MetricHistory

START = 1_800_000_000.0


def main() -> None:
    parser = argparse.ArgumentParser(description="Figures of a week.")
    for name, default in (("runs", 200), ("series", 10), ("days", 7), ("every", 10)):
        parser.add_argument(f"--{name}", type=int, default=default)
    asked = parser.parse_args()
    keys = [series(f"m{number}", {"run": f"r{run}"}) for run in range(asked.runs) for number in range(asked.series)]
    values = np.full(len(keys), 0.5)
    rounds, drawn = asked.days * 86_400 // asked.every, np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        file, spent = Path(folder) / "history.db", 0.0
        with MetricHistory(file, keep_s=30 * 86_400.0) as history:
            for number in range(rounds):
                values = np.round(values + drawn.normal(0.0, 0.01, len(keys)), 4)
                figures = dict(zip(keys, values.tolist(), strict=True))
                began = time.process_time()
                history.add(START + asked.every * number, figures)
                if number % (3600 // asked.every) == 0:
                    history.thin(START + asked.every * number)
                spent += time.process_time() - began
        size = sum(path.stat().st_size for path in Path(folder).iterdir())
        began = time.perf_counter()
        with MetricHistory(file, keep_s=30 * 86_400.0) as history:
            opened = time.perf_counter() - began
            began = time.perf_counter()
            points = sum(len(one.times) for one in history.points(keys[:10], since=0.0, until=float("inf")))
            read = time.perf_counter() - began
    print(
        f"{rounds:,} rounds of {len(keys):,} series: {size / 1e6:.0f} MB, {1e3 * spent / rounds:.2f} ms of CPU a round"
    )
    print(f"opened in {1e3 * opened:.1f} ms; {points:,} points of 10 series read in {1e3 * read:.1f} ms")


if __name__ == "__main__":
    main()
