"""What H2O and Sparkling Water are predicted to take before any row of them, beside runs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tonnage.calibration.engine_costs import (
    RAY_CELL_S,
    RAY_START_S,
    added_seconds,
    costs_of,
    is_unknown,
    java_bytes,
    thread_seconds,
)
from tonnage.calibration.tabular_fit import correction
from tonnage.calibration.tabular_rows import physics
from tonnage.side_by_side.reading import read_bench
from tonnage.sizing.tabular import CpuColumns
from tonnage.units import from_gib, to_gib
from tonnage.workload.jobs import TabularJob

# engine, workers, threads, rows, columns, trees, depth, seconds. Of docs/bench-engines.md (two machines, 35,000 and
# 700,000 rows) and of runs of 2026-11-27, which no constant was taken from (the last two came after all constants); the
# costs of two nodes were looked at beside the first rows of 35,000.
RUNS = [
    ("sparkling-xgboost", 2, 2, 35_000, 28, 50, 6, 14.3), ("sparkling-xgboost", 2, 2, 35_000, 28, 50, 6, 13.7),
    ("sparkling-gbm", 2, 2, 35_000, 28, 50, 6, 23.0), ("sparkling-gbm", 2, 2, 35_000, 28, 50, 6, 20.9),
    ("sparkling-gbm", 2, 2, 700_000, 28, 50, 6, 106.0), ("h2o-gbm", 1, 2, 4_200, 8, 20, 6, 1.58),
    ("sparkling-xgboost", 2, 2, 35_000, 28, 50, 6, 25.3), ("sparkling-xgboost", 2, 2, 70_000, 28, 50, 6, 17.7),
    # of 2026-11-27, on a host that others used too; what a thread spends on cells and scores is from the first six,
    # what workers of Ray spend on a call from the last three
    ("h2o-gbm", 1, 2, 7_000, 10, 50, 6, 3.83), ("h2o-gbm", 1, 2, 35_000, 28, 50, 6, 11.87),
    ("h2o-gbm", 1, 2, 140_000, 28, 50, 6, 28.6), ("h2o-xgboost", 1, 2, 7_000, 10, 50, 6, 3.84),
    ("h2o-xgboost", 1, 2, 35_000, 28, 50, 6, 7.11), ("h2o-xgboost", 1, 2, 140_000, 28, 50, 6, 17.7),
    ("ray-xgboost", 2, 2, 7_000, 10, 50, 6, 1.10), ("ray-xgboost", 2, 2, 35_000, 28, 50, 6, 2.30),
    ("ray-xgboost", 2, 2, 140_000, 28, 50, 6, 2.48),
]  # fmt: skip
# PyTorch on Ray, two workers, hidden layers of 128 and 64, batches of 1,024, 5 epochs: the same host and day.
NETS = [(7_000, 10, 0.30), (35_000, 28, 0.80), (140_000, 28, 4.01)]
# rows, seconds of training alone: szilard/GBM-perf results.txt, H2O on r4.8xlarge (16 cores), 100 trees of depth 10,
# airline data, 8 entries a row.
GBM_PERF = [(100_000, 11.1), (1_000_000, 12.4), (10_000_000, 60.7)]


def predicted(
    job: TabularJob, threads: float, workers: int = 1, threads_per_core: float = 1.0
) -> tuple[float, float, float]:
    """Seconds and their 80 % interval."""
    cores = CpuColumns(
        vcpus=np.array([threads]), memory_bytes=np.array([2.0**40]), arm=np.array([False]),
        threads_per_core=np.array([threads_per_core]),
    )  # fmt: skip
    change = correction(None, method=job.method, engine=job.engine, passes=float(job.trees), device=None,
                        workers=workers, job=job)  # fmt: skip
    seconds = float(change.seconds(physics(job, cores).total_s, threads)[0])
    return seconds, seconds * change.spread.low_factor, seconds * change.spread.high_factor


@pytest.mark.parametrize(("engine", "workers", "threads", "rows", "columns", "trees", "depth", "seconds"), RUNS)
def test_runs_lie_within_the_interval(
    engine: str, workers: int, threads: float, rows: int, columns: int, trees: int, depth: int, seconds: float
) -> None:
    """Each of them took 27 to 230 times the physics alone on its small tables."""
    job = TabularJob(rows=rows, features=columns, trees=trees, depth=depth, engine=engine)
    _, low, high = predicted(job, float(threads), workers)
    assert low < seconds < high


@pytest.mark.parametrize(("rows", "columns", "seconds"), NETS)
def test_runs_of_nets_on_ray_lie_within_the_interval(rows: int, columns: int, seconds: float) -> None:
    """A network's steps wait for the other worker's gradients."""
    job = TabularJob(rows=rows, features=columns, method="mlp", epochs=5, hidden_layers=(128, 64), global_batch=1024,
                     engine="ray-pytorch")  # fmt: skip
    _, low, high = predicted(job, 2.0, 2)
    assert low < seconds < high


@pytest.mark.parametrize(("rows", "seconds"), GBM_PERF)
def test_the_public_table_of_h2o_lies_within_it(rows: int, seconds: float) -> None:
    """From 0.1 to 10 million rows, where the floor of a level binds first and the cells last. The table is of training
    alone, on 32 threads of 16 cores: what bringing the rows and scoring them takes is taken off."""
    costs = costs_of("h2o-gbm", 1)
    assert costs is not None
    job = TabularJob(rows=rows, features=8, trees=100, depth=10, engine="h2o-gbm")
    value, low, high = predicted(job, 32.0, threads_per_core=2.0)
    brought = costs.start_s + costs.cell_s * rows * 8
    scored = thread_seconds(costs, job) - thread_seconds(replace(costs, score_s=0.0), job)
    assert low / value < seconds / (value - brought - scored / 32.0) < high / value


def test_native_engines_have_no_such_costs() -> None:
    """Their prediction without rows is the physics, as before; on a shared model in shares nothing is known."""
    for engine in ("xgboost", "lightgbm", "catboost", "scikit-learn", "pytorch"):
        assert costs_of(engine, 1) is None
        assert not is_unknown(engine, 2)
    assert is_unknown("pytorch-fsdp", 2)
    assert not is_unknown("pytorch-fsdp", 1)


@pytest.mark.parametrize(("engine", "method"), [("ray-xgboost", "boosted-trees"), ("ray-pytorch", "mlp")])
def test_what_workers_of_ray_exchange_is_added(engine: str, method: str) -> None:
    """More with each worker, nothing for one; more bytes take longer. The physics of XGBoost or PyTorch is kept."""
    costs = costs_of(engine, 2)
    assert costs is not None
    assert costs.factor == 1.0
    job = TabularJob(rows=35_000, features=28, trees=50, method=method, engine=engine)  # type: ignore[arg-type]
    wider = replace(job, bins=512, hidden_layers=(2048, 1024))
    alone, two, four = (added_seconds(costs, job, 50.0, workers) for workers in (1, 2, 4))
    assert alone == pytest.approx(RAY_START_S + 35_000 * 28 * RAY_CELL_S)
    assert alone < two < four
    assert added_seconds(costs, wider, 50.0, 2) > two
    assert not is_unknown(engine, 2)


def test_more_nodes_cost_more_a_level() -> None:
    """Two nodes wait for one another at each level of a tree."""
    one, two = costs_of("sparkling-gbm", 1), costs_of("sparkling-gbm", 2)
    assert one is not None
    assert two is not None
    assert two.level_s > one.level_s


def test_a_bench_shows_them() -> None:
    """H2O is predicted in seconds where XGBoost takes a tenth of one; what AutoML finds nobody knows."""
    from tonnage.side_by_side.cells import BenchCell
    from tonnage.side_by_side.host import Host
    from tonnage.side_by_side.result import sum_up

    spec = read_bench("""bench:
  name: a
  threads: 2
  data: [{name: d, generate: {rows: 1000, columns: 10}}]
  engines: [{engine: xgboost}, {engine: h2o-gbm}, {engine: h2o-automl}, {engine: pytorch-fsdp, workers: 2},
            {engine: sparkling-gbm, workers: 2}]
""")
    host = Host(processor="test", physical_cores=1, logical_cores=2, memory_bytes=8 * 2**30, arm=False)
    cell = BenchCell(data="d", engine="", turn=0, prepare_s=1.0, train_s=4.0, quality=0.9, train_rows=700)
    rows = sum_up(spec, [replace(cell, engine=one.name) for one in spec.engines], host, {"d": 10})
    found = {row.engine.name: row.predicted_s for row in rows}
    assert {name for name, figure in found.items() if figure is None} == {"h2o-automl", "pytorch-fsdp"}
    values = [found[name].value for name in ("xgboost", "h2o-gbm", "sparkling-gbm")]  # type: ignore[union-attr]
    assert values[0] < 0.2 < 3.0 < values[1] < values[2]


def test_memory_of_java_is_near_what_was_measured() -> None:
    """Peak resident memory of own runs (28 columns, heaps of 2 GiB): within a factor of 1.4 from 7,000 to 700,000 rows;
    never above the heaps and what is around them; no figure for what has no Java, and for AutoML."""
    measured = [  # engine, workers, training rows, GiB: means of the repeats, 2026-11-23 to 27
        ("h2o-gbm", 1, 7_000, 0.51), ("h2o-gbm", 1, 35_000, 0.72), ("h2o-gbm", 1, 140_000, 0.96),
        ("h2o-xgboost", 1, 35_000, 0.70), ("sparkling-gbm", 2, 35_000, 2.65), ("sparkling-xgboost", 2, 35_000, 2.45),
        ("sparkling-gbm", 2, 70_000, 3.25), ("sparkling-gbm", 2, 700_000, 4.82),
        ("sparkling-xgboost", 2, 700_000, 4.57),
    ]  # fmt: skip
    for engine, workers, rows, gib in measured:
        found = java_bytes(engine, workers, from_gib(2), 4.0 * 28 * rows)
        assert found is not None
        assert 1 / 1.4 < gib / to_gib(found) < 1.4, (engine, rows)
    most = java_bytes("sparkling-gbm", 2, from_gib(2), 1e15)
    assert most == pytest.approx(from_gib(1.2 + 2 * 0.65 + 2 * 2))
    assert java_bytes("xgboost", 1, from_gib(2), 1e9) is None
    assert java_bytes("h2o-automl", 1, from_gib(2), 1e9) is None
