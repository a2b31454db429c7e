"""A worker that dies on a cluster, killed for real: a failed cell whose reason names it, and the rest goes on."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tonnage.benchmarks.engines.folder import BenchFolder
from tonnage.benchmarks.engines.session import carry_out
from tonnage.benchmarks.engines.worker_process import left_processes
from tonnage.side_by_side.cells import BenchCell
from tonnage.side_by_side.reading import read_bench

HOME = os.environ.get("TONNAGE_BENCH_HOME")  # a home with the environments `ray` and `sparkling`
LONG = 1_000_000  # passes that do not end within a test
on_clusters = [
    pytest.mark.slow,
    pytest.mark.skipif(HOME is None, reason="TONNAGE_BENCH_HOME: a home in which `tonnage bench setup` was run"),
]


def carried_with_a_death(engine: str, folder: Path, is_victim: Callable[[psutil.Process], bool]) -> list[BenchCell]:
    """The cells of the engine and of scikit-learn after it; kill -9 meets the first victim there is."""
    spec = read_bench(
        "bench:\n  name: t\n  threads: 2\n  repeats: 1\n  timeout: 5m\n  data: [{name: d, generate: {rows: 3000, "
        f"columns: 5}}}}]\n  engines: [{{{engine}, workers: 2}}, {{engine: scikit-learn, rounds: 2}}]\n"
    )
    done = threading.Event()

    def watch() -> None:
        while not done.wait(0.5):
            for one in left_processes(folder):
                try:
                    found = is_victim(one)
                except psutil.NoSuchProcess:
                    continue
                if found:
                    one.kill()
                    return

    killer = threading.Thread(target=watch)
    killer.start()
    try:
        return list(carry_out(spec, BenchFolder(folder), Path(HOME or folder), say=print).cells)
    finally:
        done.set()
        killer.join()


def spent(word: str, cpu_s: float) -> Callable[[psutil.Process], bool]:
    """Processes with the word in their command that have spent more of a processor than their start takes."""
    return lambda one: word in " ".join(one.cmdline()) and one.cpu_times().user > cpu_s


def is_second_rank(process: psutil.Process) -> bool:
    return process.cmdline()[-1] == "1" and process.cpu_times().user > 6.0


@pytest.mark.slow
def test_of_pytorch(tmp_path: Path) -> None:
    """The second rank of DDP: its number, process and signal, though the first sees a closed connection alone."""
    pytest.importorskip("torch")
    failed, good = carried_with_a_death(f"engine: pytorch, epochs: {LONG}", tmp_path, is_second_rank)
    assert "rank 1 (process " in (failed.reason or "")
    assert "was ended by SIGKILL" in (failed.reason or "")
    assert good.reason is None


@pytest.mark.parametrize(
    "engine",
    [
        pytest.param(f"engine: ray-xgboost, rounds: {LONG}", marks=on_clusters),
        pytest.param(f"engine: ray-pytorch, epochs: {LONG}", marks=on_clusters),
    ],
)
def test_of_ray(engine: str, tmp_path: Path) -> None:
    """A process of Ray Train: its rank, process and machine."""
    failed, good = carried_with_a_death(engine, tmp_path, spent("RayTrainWorker", 8.0))
    assert "the Ray worker of rank" in (failed.reason or "")
    assert "(process " in (failed.reason or "")
    assert good.reason is None
    assert left_processes(tmp_path) == []


@pytest.mark.parametrize(
    "engine",
    [
        pytest.param(f"engine: spark-gbt, rounds: {LONG}, memory_gib: 1", marks=on_clusters),
        pytest.param(f"engine: sparkling-gbm, rounds: {LONG}, memory_gib: 1", marks=on_clusters),
    ],
)
def test_of_spark(engine: str, tmp_path: Path) -> None:
    """An executor: its number, address and what Spark says of its end. Spark itself would have replaced it."""
    failed, good = carried_with_a_death(engine, tmp_path, spent("CoarseGrainedExecutorBackend", 8.0))
    assert "of Spark at 127.0.0.1:" in (failed.reason or "")
    assert "was lost: " in (failed.reason or "")
    assert good.reason is None
    assert left_processes(tmp_path) == []
