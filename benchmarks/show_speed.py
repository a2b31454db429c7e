"""How long `tonnage show` of a run of 30 days takes, and its peak memory, in a process of its own.

The run is made up, in a temporary folder: 8 GPUs sampled every 5 s, a line of metrics every 20 s, a forecast a minute,
a checkpoint every 10 minutes, an evaluation an hour, a restart a day: 1.2 GB. Figures held to: 1 s and 150 MB.
`python benchmarks/show_speed.py [DAYS]`; the best of five. On a busy machine the processor time says more than the
clock.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import perf_counter
from typing import Any

from tonnage.runs.folder import RunFolder
from tonnage.runs.journal import Event, EventKind
from tonnage.runs.spec import DataSource, DataSpec, GuardSpec, RunSpec

BEGAN = datetime(2026, 10, 1, tzinfo=UTC)
STEP_S, GPUS, TURNS = 2.0, 8, 5
DAY_S = 86_400


def make_run(home: Path, days: int) -> RunFolder:
    """The folder of a run that has gone on for so many days and stopped."""
    data = DataSpec(train=DataSource(location="rows.jsonl", format="jsonl"))
    spec = RunSpec(name="long", task="causal-lm", model="llama-3.1-8b", data=data)
    spec = replace(spec, guard=GuardSpec(usd_per_hour=20.0, max_cost_usd=1e5))
    folder = RunFolder(home / "runs" / "long")
    folder.create(spec)
    for path, lines in (
        (folder.samples_file, samples(days)), (folder.metrics_file, metrics(days)), (folder.journal_file, journal(days))
    ):  # fmt: skip
        with path.open("w", encoding="utf-8") as file:
            file.writelines(line + "\n" for line in lines)
    return folder


def samples(days: int) -> Iterator[str]:
    draw = random.Random(1)
    for second in range(0, days * DAY_S, 5):
        gpus = [
            {
                "index": index, "name": "NVIDIA H100 80GB HBM3", "utilization_fraction": round(draw.random(), 2),
                "memory_used_bytes": 70 << 30, "memory_total_bytes": 80 << 30, "power_w": 600 + draw.random(),
                "temperature_c": 60.0, "energy_j": 600.0 * second, "memory_own_bytes": 69 << 30,
            }
            for index in range(GPUS)
        ]  # fmt: skip
        values = {
            "at": at(second), "processes": 10, "host_rss_bytes": 64 << 30, "cpu_fraction": 0.3,
            "machine_cpu_fraction": 0.35, "gpus": gpus,
        }  # fmt: skip
        yield json.dumps(values)


def metrics(days: int) -> Iterator[str]:
    for second in range(20, days * DAY_S, 20):
        values = {
            "step": int(second / STEP_S), "at": at(second), "epoch": second / DAY_S, "loss": 2.0 + 1000.0 / second,
            "learning_rate": 1e-4, "steps": 10, "samples": 64.0, "tokens": 131072.0, "step_s": STEP_S,
            "data_wait_s": 0.01, "host_rss_bytes": 8 << 30, "peak_allocated_bytes": 60 << 30,
            "peak_reserved_bytes": 66 << 30,
        }  # fmt: skip
        yield json.dumps(values)


def journal(days: int) -> Iterator[str]:
    yield event(0, EventKind.SUBMITTED, name="long", runner="torchrun", processes=GPUS, device="cuda")
    attempt = 0
    for second in range(0, days * DAY_S, 60):
        step = int(second / STEP_S)
        if second % DAY_S == 0:
            attempt += 1
            if attempt > 1:
                yield event(second, EventKind.RESTARTING, reason="crashed", delay_s=1.0, attempt=attempt)
            yield event(second, EventKind.STARTED, attempt=attempt, pid=1)
            yield event(second, EventKind.TRAINING, step=step, micro_batch=8, total_steps=days * DAY_S // 2)
        yield event(second, EventKind.FORECAST, usd=14400.0, low_usd=14000.0, high_usd=15000.0, end_at=at(days * DAY_S))
        if second and second % 600 == 0:
            path = f"checkpoints/step-{step:08d}"
            yield event(second, EventKind.CHECKPOINT, step=step, path=path, seconds=9.5, held_s=0.4, bytes=90 << 30)
        if second and second % 3600 == 0:
            yield event(second, EventKind.EVALUATED, step=step, split="validation", metrics={"perplexity": 9.0})
    yield event(days * DAY_S, EventKind.STOPPED)


def event(second: float, kind: EventKind, **fields: Any) -> str:
    return Event(kind=kind, at=BEGAN + timedelta(seconds=second), who="supervisor", fields=fields).to_json()


def at(second: float) -> str:
    return (BEGAN + timedelta(seconds=second)).isoformat()


def show(home: Path) -> tuple[float, float, int]:
    """Seconds by the clock and of processor time, and peak resident bytes, of one `tonnage show`."""
    began = perf_counter()
    with subprocess.Popen(
        [sys.executable, "-m", "tonnage", "show", "long"], env={**os.environ, "TONNAGE_HOME": str(home)},
        stdout=subprocess.DEVNULL,
    ) as process:  # fmt: skip
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"`tonnage show` ended with {process.returncode}")
    return perf_counter() - began, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024


def main() -> None:
    days = int(sys.argv[1]) if len(sys.argv) > 1 else 30
    with tempfile.TemporaryDirectory() as place:
        folder = make_run(Path(place), days)
        size = sum(file.stat().st_size for file in folder.path.iterdir() if file.is_file())
        print(f"a run of {days} days: {size / 1e6:,.0f} MB")
        found = [show(Path(place)) for _ in range(TURNS)]
        seconds, busy_s = min(one[0] for one in found), min(one[1] for one in found)
        most = max(one[2] for one in found)
        print(f"show: {seconds:.2f} s ({busy_s:.2f} s of a processor), at most {most / 1e6:.0f} MB resident")


if __name__ == "__main__":
    main()
