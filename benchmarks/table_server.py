"""Rows a second of served XGBoost trees beside a bare loop of the library's own predict, batches of 1 and 32 rows.

    python benchmarks/table_server.py [--rounds 5] [--seconds 3] [-c 8]

100 trees of depth 6 over 20 columns of numbers. «loop»: one thread calls the library, rows ready as an array, by
`predict` on a DMatrix and by `inplace_predict` (which does without). «served»: the encoder server, one worker, requests
of so many rows as JSON over HTTP by wrk on the same cores; «tensors»: the same as one tensor [n, 20] of Open Inference
v2. All take turns, so that a busy machine slows all. Printed: minimum, median and maximum of the rounds, rows a CPU
second of the process (which others on a busy machine slow less), and each over the loop of `predict`.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np
import psutil
import xgboost

from encoder_server import LUA, cpu_s, free_port, load, served
from tonnage.serving.encoder.service import EncoderService, dump_service

COLUMNS, TREES, DEPTH = 20, 100, 6
PREDICT, INFER = "/predict", "/v2/models/trees/infer"


def grown(folder: Path) -> xgboost.Booster:
    """The trees, saved too."""
    made = np.random.default_rng(0)
    rows = made.normal(size=(20_000, COLUMNS)).astype(np.float32)
    labels = rows[:, 0] * rows[:, 1] + np.abs(rows[:, 2]) + made.normal(size=len(rows))
    booster = xgboost.train({"max_depth": DEPTH, "nthread": 1}, xgboost.DMatrix(rows, label=labels), TREES)
    booster.save_model(folder / "trees.ubj")
    return booster


def bodies(path: str, rows: int) -> str:
    """16 requests as Lua's texts."""
    made, found = np.random.default_rng(1), []
    for _ in range(16):
        values = made.normal(size=(rows, COLUMNS)).astype(np.float32).round(4).tolist()
        named = [{f"f{at}": value for at, value in enumerate(row)} for row in values]
        tensor = {"name": "rows", "datatype": "FP32", "shape": [rows, COLUMNS], "data": values}
        found.append(json.dumps({"rows": named} if path == PREDICT else {"inputs": [tensor]}))
    return ",".join(f"[==[{one}]==]" for one in found)


def looped(call: Callable[[], object], rows: int, seconds: float) -> tuple[float, float]:
    """Rows a second, and a CPU second, of calls one after the other."""
    call()
    began, began_cpu, calls = time.perf_counter(), time.process_time(), 0
    while time.perf_counter() - began < seconds:
        call()
        calls += 1
    return calls * rows / (time.perf_counter() - began), calls * rows / (time.process_time() - began_cpu)


def asked(folder: Path, path: str, rows: int, *, connections: int, seconds: float) -> tuple[float, float]:
    """The same of a server."""
    port, file, script = free_port(), folder / "service.json", folder / "load.lua"
    service = EncoderService(model=str(folder / "trees.ubj"), name="trees", workers=1, port=port)
    file.write_text(dump_service(service), encoding="utf-8")
    script.write_text(LUA.replace("PATH", json.dumps(path)).replace("BODIES", bodies(path, rows)), encoding="utf-8")
    command = [sys.executable, "-m", "tonnage.serving.encoder", str(file)]
    first = json.dumps({"rows": [[0.0] * COLUMNS]})
    with served("served", command, PREDICT, port, dict(os.environ), folder / "log.txt", warm_up=first) as number:
        load(port, path, script, connections=connections, seconds=1.0)
        before = cpu_s(number)
        requests, _, bad = load(port, path, script, connections=connections, seconds=seconds)
        used = cpu_s(number) - before
    if bad:
        raise SystemExit(f"{bad} requests failed: {(folder / 'log.txt').read_text()[-500:]}")
    return requests * rows, requests * seconds * rows / used


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-c", "--connections", type=int, default=8)
    parser.add_argument("--seconds", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    if shutil.which("wrk") is None:
        raise SystemExit("wrk is not installed: apt-get install wrk")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        booster = grown(folder)
        for rows in (1, 32):
            compare(folder, booster, rows, given)


def compare(folder: Path, booster: xgboost.Booster, rows: int, given: argparse.Namespace) -> None:
    """The rounds of one batch size, and their table."""
    values = np.random.default_rng(1).normal(size=(rows, COLUMNS)).astype(np.float32)
    serve = {"connections": given.connections, "seconds": given.seconds}
    ways: dict[str, Callable[[], tuple[float, float]]] = {
        "loop of predict": lambda: looped(
            lambda: booster.predict(xgboost.DMatrix(values, nthread=1)), rows, given.seconds),
        "loop of inplace_predict": lambda: looped(lambda: booster.inplace_predict(values), rows, given.seconds),
        "served, JSON": lambda: asked(folder, PREDICT, rows, **serve),
        "served, tensors": lambda: asked(folder, INFER, rows, **serve),
    }  # fmt: skip
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for _ in range(given.rounds):
        for name, measure in ways.items():
            found[name].append(measure())
    base, base_cpu = (median(one[at] for one in found["loop of predict"]) for at in (0, 1))
    print(f"\nbatches of {rows}: rows a second (min median max), rows a CPU second, each over the loop of predict")
    for name, some in found.items():
        rates, per_cpu = [one[0] for one in some], median(one[1] for one in some)
        print(f"{name:24} {min(rates):9,.0f} {median(rates):9,.0f} {max(rates):9,.0f} {per_cpu:9,.0f}"
              f"   {median(rates) / base:5.2f}x {per_cpu / base_cpu:5.2f}x")  # fmt: skip
    print(f"load of the machine: {psutil.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
