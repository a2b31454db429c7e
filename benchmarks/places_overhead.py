"""What `tonnage run --on slurm` takes beyond a hand-written sbatch of the same work, on a real Slurm of this machine.

    python benchmarks/places_overhead.py [--steps 300] [--step-s 0.1] [--turns 3]

The work pretends: the same worker for so many steps, started by a script for `sbatch` and by `tonnage run --on`, in
turns. Wall time from the command to the end of the work; processor time of the client.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tonnage.runs import RunFolder, RunSpec
from tonnage.runs.spec import DataSource, DataSpec, dump_spec
from tonnage.testing.slurm import slurm_cluster

PLACE = '[places.cluster]\nkind = "slurm"\ncores = 1\nmemory_gib = 1\ntime_limit_minutes = 30\n'


def main() -> None:
    """Both ways in turns; medians and every turn."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--step-s", type=float, default=0.1)
    parser.add_argument("--turns", type=int, default=3)
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the cluster ends with it, whoever ends it
    with tempfile.TemporaryDirectory() as folder, slurm_cluster(Path(folder) / "slurm") as cluster:
        home = Path(folder) / "home"
        home.mkdir()
        (home / "places.toml").write_text(PLACE)
        (home / "rows.csv").write_text("a,b\n1,2\n")
        fake = json.dumps({"steps": asked.steps, "step_s": asked.step_s, "checkpoint_every": 50})
        more = {"TONNAGE_HOME": str(home), "TONNAGE_WORKER": "tonnage.testing.worker", "TONNAGE_FAKE": fake,
                "MLFLOW_TRACKING_URI": "none"}  # fmt: skip
        os.environ.update(cluster.environ | more)
        by_hand, placed = [], []
        os.environ["TONNAGE_FAKE"] = json.dumps({"steps": 2})
        _timed(_placed(home, "first"))  # the home's database is made by its first run
        os.environ["TONNAGE_FAKE"] = fake
        for turn in range(asked.turns):
            by_hand.append(_timed(_by_hand(home, f"hand-{turn}")))
            placed.append(_timed(_placed(home, f"placed-{turn}")))
    _tell(by_hand, placed, asked.steps * asked.step_s)


def _spec(home: Path, name: str) -> RunSpec:
    return RunSpec(
        name=name, task="mlp", data=DataSpec(train=DataSource(location=str(home / "rows.csv"), format="csv"))
    )


def _by_hand(home: Path, name: str) -> list[str]:
    folder = RunFolder(home / "runs" / name)
    folder.create(_spec(home, name))
    script = home / f"{name}.sh"
    log = folder.log_file
    script.write_text(
        f"#!/bin/sh\n#SBATCH --cpus-per-task=1\n#SBATCH --mem=1024M\n#SBATCH --time=30\n#SBATCH --output={log}\n"
        f"{sys.executable} -m tonnage.testing.worker {folder.path}\ntouch {folder.path}/done\n"
    )
    wait = f"sbatch {script}; until [ -e {folder.path}/done ]; do sleep 0.02; done"  # `--wait` looks every ten seconds
    return ["sh", "-c", wait]


def _placed(home: Path, name: str) -> list[str]:
    spec = home / f"{name}.json"
    spec.write_text(dump_spec(_spec(home, name)))
    return [sys.executable, "-m", "tonnage", "run", str(spec), "--on", "cluster", "-q"]


def _timed(words: list[str]) -> tuple[float, float]:
    """Seconds of wall time, and of the client's processor time."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run(words, stdout=subprocess.DEVNULL, check=True)
    wall_s, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall_s, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _tell(by_hand: list[tuple[float, float]], placed: list[tuple[float, float]], work_s: float) -> None:
    hand_s, placed_s = (statistics.median(wall for wall, _ in turns) for turns in (by_hand, placed))
    print(f"load of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    print(f"work: {work_s:g} s of pretended steps")
    for name, turns in (("sbatch by hand", by_hand), ("tonnage run --on", placed)):
        walls = ", ".join(f"{wall:.2f}" for wall, _ in turns)
        cpu = statistics.median(cpu for _, cpu in turns)
        print(f"{name:18} {walls} s of wall time; {cpu:.2f} s of the client's processor time")
    print(f"overhead: {placed_s - hand_s:+.2f} s, {(placed_s - hand_s) / hand_s:+.1%} of {hand_s:.1f} s")


if __name__ == "__main__":
    main()
