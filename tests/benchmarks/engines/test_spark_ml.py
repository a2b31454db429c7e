"""Spark's own trees as engines of a bench: what a file may ask of them, their session, and real ones."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tonnage.benchmarks.engines.apart.engine_workers.spark_session import local_cluster, spark_settings
from tonnage.benchmarks.engines.environments import environments_folder, missing
from tonnage.benchmarks.engines.folder import BenchFolder
from tonnage.benchmarks.engines.session import carry_out
from tonnage.calibration.engine_costs import is_unknown
from tonnage.errors import WorkloadError
from tonnage.side_by_side.reading import read_bench
from tonnage.side_by_side.spec import BenchSpec
from tonnage.testing.spark import spark_cluster

HOME = os.environ.get("TONNAGE_BENCH_HOME")  # a home with the environment `sparkling`


def bench(engine: str, task: str = "binary", more: str = "") -> BenchSpec:
    return read_bench(
        f"bench:\n  name: t\n  threads: 2\n  repeats: 1\n  data: [{{name: d, task: {task}, generate: {{rows: 3000, "
        f"columns: 5}}}}]\n  engines: [{{engine: {engine}{more}}}]\n"
    )


@pytest.mark.parametrize(
    ("engine", "task", "more", "fault"),
    [
        ("spark-gbt", "multiclass", "", "know two classes, and 'd' has several"),
        ("spark-forest", "binary", ", learning_rate: 0.1", "do not learn from one another"),
        ("spark-gbt", "binary", ", epochs: 3", "no such parameter"),
        ("spark-gbt", "binary", ", devices: [0]", "see the same devices"),
        ("spark-gbt", "binary", ", master: yarn", "is not an address of a cluster"),
        ("xgboost", "binary", ", master: 'spark://head:7077'", "runs on no cluster"),
        ("spark-gbt", "binary", ", workers: 3", "3 workers share 2 threads"),
    ],
)
def test_what_they_have_no_key_for_is_refused(engine: str, task: str, more: str, fault: str) -> None:
    with pytest.raises(WorkloadError, match=fault):
        bench(engine, task, more)


@pytest.mark.parametrize("engine", ["spark-gbt", "spark-forest"])
def test_they_are_engines_in_spark(engine: str, tmp_path: Path) -> None:
    """With workers, a cluster's address and the environment of Sparkling Water; nothing predicts them."""
    [found] = bench(engine, "binary", ", workers: 2, master: 'spark://head:7077', rounds: 7").engines
    assert (found.workers, found.master, found.passes, found.family) == (2, "spark://head:7077", 7, "trees")
    assert missing(found.engine, tmp_path) == f"{engine} has no environment: tonnage bench setup sparkling"
    assert is_unknown(engine, 1)
    assert bench("spark-forest", "multiclass").engines[0].engine == "spark-forest"


def test_their_session() -> None:
    """An executor a worker, with its threads and memory; on another host the driver's address is Spark's choice."""
    job: dict[str, Any] = {"threads": 4, "workers": 2, "memory_gib": 1.5, "folder": "/f", "master": None}
    assert local_cluster(job) == "local-cluster[2,2,1536]"
    here, far = spark_settings(job), spark_settings(job | {"master": "spark://head:7077"})
    assert here["spark.driver.host"] == "127.0.0.1"
    assert "spark.driver.host" not in far
    assert (far["spark.executor.cores"], far["spark.cores.max"], far["spark.executor.memory"]) == ("2", "4", "1536m")
    assert not [name for name in far if "h2o" in name]


@pytest.mark.slow
@pytest.mark.skipif(HOME is None, reason="TONNAGE_BENCH_HOME: a home in which `tonnage bench setup sparkling` was run")
def test_on_a_cluster_by_its_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A standalone master with two workers that no bench started: an executor on each, whose memory is counted too; the
    cluster lives on."""
    place = environments_folder(Path(str(HOME))) / "sparkling" / "lib"
    [home] = place.glob("python*/site-packages/pyspark")
    monkeypatch.setenv("TONNAGE_SPARK_HOME", str(home))
    worker = {"cores": 1, "memory_gib": 2, "gpus": 0}
    with spark_cluster(tmp_path / "spark", workers={"first": worker, "second": worker}) as cluster:
        more = f", workers: 2, memory_gib: 1, rounds: 5, depth: 4, master: '{cluster.address}'"
        spec = bench("spark-gbt", "binary", more)
        [cell] = carry_out(spec, BenchFolder(tmp_path / "bench"), Path(str(HOME)), say=lambda _: None).cells
        assert cluster.living() == 2
    assert cell.reason is None
    assert len(cell.workers) == 2
    assert cell.peak_rss_bytes is not None
    assert cell.peak_rss_bytes > 600 * 2**20


@pytest.mark.slow
@pytest.mark.skipif(HOME is None, reason="TONNAGE_BENCH_HOME: a home in which `tonnage bench setup sparkling` was run")
@pytest.mark.parametrize(
    ("engine", "task"), [("spark-gbt", "binary"), ("spark-gbt", "regression"), ("spark-forest", "multiclass")]
)
def test_they_keep_the_contract(engine: str, task: str, tmp_path: Path) -> None:
    """Two executors; phases are timed, the quality is that of a model that has learnt, its curve has one point."""
    spec = bench(engine, task, ", workers: 2, memory_gib: 1, rounds: 5, depth: 4")
    [cell] = carry_out(spec, BenchFolder(tmp_path), Path(str(HOME)), say=lambda _: None).cells
    assert cell.reason is None
    assert len(cell.workers) == 2
    assert len(cell.curve) == 1
    assert cell.quality is not None
    assert cell.quality > 0.5 if task != "regression" else cell.quality < 10
