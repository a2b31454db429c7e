"""XGBoost and PyTorch on Ray Train as engines of a bench: what a file may ask of them, and real clusters."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tonnage.benchmarks.engines.apart.engine_workers.ray_cluster import mend
from tonnage.benchmarks.engines.environments import environments_folder, missing
from tonnage.benchmarks.engines.folder import BenchFolder
from tonnage.benchmarks.engines.session import carry_out, clean_bench
from tonnage.benchmarks.engines.worker_process import SCRATCH, free_port_pairs, left_processes
from tonnage.errors import WorkloadError
from tonnage.side_by_side.cells import BenchCell
from tonnage.side_by_side.reading import read_bench
from tonnage.side_by_side.spec import BenchSpec
from tonnage.testing.ray import end_at_once, wait_until

HOME = os.environ.get("TONNAGE_BENCH_HOME")  # a home with the environments `ray` and `sparkling`
real = pytest.mark.skipif(HOME is None, reason="TONNAGE_BENCH_HOME: a home in which `tonnage bench setup ray` was run")


def bench(*engines: str, task: str = "binary", rows: int = 3000) -> BenchSpec:
    listed = ", ".join(f"{{{one}}}" for one in engines)
    return read_bench(
        f"bench:\n  name: t\n  threads: 2\n  repeats: 1\n  timeout: 5m\n  data: [{{name: d, task: {task}, "
        f"generate: {{rows: {rows}, columns: 5}}}}]\n  engines: [{listed}]\n"
    )


def carried(spec: BenchSpec, folder: Path) -> list[BenchCell]:
    return list(carry_out(spec, BenchFolder(folder), Path(str(HOME)), say=print).cells)


@pytest.mark.parametrize(
    ("engine", "fault"),
    [
        ("engine: ray-xgboost, epochs: 3", "no such parameter"),
        ("engine: ray-pytorch, rounds: 3", "no such parameter"),
        ("engine: ray-xgboost, devices: [0]", "on processors"),
        ("engine: ray-xgboost, master: 'spark://head:7077'", "not an address of a cluster of Ray"),
        ("engine: ray-xgboost, master: head", "not an address of a cluster of Ray"),
        ("engine: spark-gbt, master: 'ray://head:10001'", "not an address of a cluster of Spark"),
        ("engine: pytorch, master: auto", "runs on no cluster"),
        ("engine: ray-pytorch, workers: 3", "3 workers share 2 threads"),
    ],
)
def test_what_they_have_no_key_for_is_refused(engine: str, fault: str) -> None:
    with pytest.raises(WorkloadError, match=fault):
        bench(engine)


@pytest.mark.parametrize("address", ["auto", "head:6379", "ray://head:10001", "[::1]:6379", "10.0.0.4:6379"])
def test_addresses_of_a_cluster(address: str) -> None:
    [engine] = bench(f"engine: ray-xgboost, master: '{address}'").engines
    assert engine.master == address


def test_they_need_an_environment_but_no_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Made and tried it is used, whatever Java is there."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert missing("ray-xgboost", tmp_path) == "ray-xgboost has no environment: tonnage bench setup ray"
    place = tmp_path / "bench-environments" / "ray"
    place.mkdir(parents=True)
    (place / "ready").touch()
    assert missing("ray-xgboost", tmp_path) is None


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (RuntimeError("Version mismatch: The cluster was started with: Ray: 2.59.0 Python: 3.11.7"), "--with ray==VER"),
        (ConnectionError("Failed to connect to Ray cluster at 10.0.0.4:6379"), "does it ask for a token"),
        (RuntimeError("authentication token is missing"), "RAY_AUTH_TOKEN"),
        (ValueError("what nobody has seen"), ""),
    ],
)
def test_what_helps_where_a_cluster_refuses(error: Exception, said: str) -> None:
    """Ray's own words, as a head of 2.59 and one with another token gave them, tell the cases apart."""
    assert said in mend(error)
    assert (mend(error) == "") == (said == "")


def test_what_a_killed_bench_left_of_sockets_is_removed(tmp_path: Path) -> None:
    """The folder that the job names, and no folder of another kind."""
    own, other = tmp_path / f"{SCRATCH}abc", tmp_path / "other"
    for number, place in enumerate((own, other)):
        place.mkdir()
        cell = tmp_path / "bench" / "cells" / str(number)
        cell.mkdir(parents=True)
        (cell / "job.json").write_text(f'{{"scratch": "{place}"}}', encoding="utf-8")
    clean_bench(BenchFolder(tmp_path / "bench"))
    assert (own.exists(), other.exists()) == (False, True)


@pytest.mark.slow
@real
@pytest.mark.parametrize(
    ("engine", "size", "task"),
    [
        ("ray-xgboost", "rounds: 8", "binary"), ("ray-xgboost", "rounds: 8", "multiclass"),
        ("ray-pytorch", "epochs: 8, batch: 64", "binary"), ("ray-pytorch", "epochs: 8, batch: 64", "regression"),
    ],
)  # fmt: skip
def test_they_keep_the_contract(engine: str, size: str, task: str, tmp_path: Path) -> None:
    """Two workers, each a process of its own; a mark a pass; the start of the workers is no part of the training; what
    they learn is what the engine without Ray learns; nothing of them is left."""
    alone = f"engine: {engine.removeprefix('ray-')}, {size}"
    plain, cell = carried(bench(alone, f"engine: {engine}, workers: 2, {size}", task=task), tmp_path)
    assert (plain.reason, cell.reason) == (None, None)
    assert sorted(one["rank"] for one in cell.workers) == [0, 1]
    assert len({one["pid"] for one in cell.workers}) == 2
    assert [passes for passes, _, _ in cell.curve] == list(range(1, 9))
    assert cell.quality == pytest.approx(plain.quality, rel=0.1)
    assert cell.train_s is not None
    assert cell.startup_s is not None
    assert cell.curve[-1][1] <= cell.train_s < cell.startup_s
    assert cell.peak_rss_bytes is not None
    assert cell.peak_rss_bytes > 100 * 2**20
    assert left_processes(tmp_path) == []


@pytest.fixture(scope="module")
def head(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """A Ray cluster that no bench has started: of two processors, with a door for clients. Its addresses by kind."""
    gcs, client = free_port_pairs(2)
    place, log = Path(f"/tmp/tonnage-ray-head-{gcs}"), tmp_path_factory.mktemp("head") / "log"
    program = environments_folder(Path(str(HOME))) / "ray" / "bin" / "ray"
    command = [
        str(program), "start", "--head", "--block", "--disable-usage-stats", "--include-dashboard=false", "--num-cpus",
        "2", "--port", str(gcs), "--ray-client-server-port", str(client), "--temp-dir", str(place),
        "--object-store-memory", str(150 << 20),
    ]  # fmt: skip
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, start_new_session=True)
    try:
        for port in (gcs, client):
            wait_until(lambda port=port: listens(port), f"Ray does not start: {log}")
        yield {"gcs": f"127.0.0.1:{gcs}", "client": f"ray://127.0.0.1:{client}"}
    finally:
        end_at_once(process)
        shutil.rmtree(place, ignore_errors=True)


def listens(port: int) -> bool:
    with contextlib.closing(socket.socket()) as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.slow
@real
def test_on_a_cluster_by_its_address(head: dict[str, str], tmp_path: Path) -> None:
    """As a machine of it and as a client from elsewhere: its workers train, their memory is counted, it lives on after
    the bench, and more workers than it has processors are refused at once."""
    gcs, client = (f"master: '{head[kind]}'" for kind in ("gcs", "client"))
    spec = bench(
        f"engine: ray-xgboost, name: trees, workers: 2, rounds: 5, {gcs}",
        f"engine: ray-pytorch, name: net, workers: 2, epochs: 5, batch: 64, {client}",
        f"engine: ray-xgboost, name: many, workers: 3, threads: 3, {gcs}",
    )
    trees, net, many = carried(spec, tmp_path)
    assert many.reason == "3 workers of 1 threads need 3 CPUs, the Ray cluster has 2"
    for cell in (trees, net):
        assert cell.reason is None
        assert cell.quality is not None
        assert cell.quality > 0.6
        assert len(cell.workers) == 2
        assert cell.peak_rss_bytes is not None
        assert cell.peak_rss_bytes > 200 * 2**20
    assert listens(int(head["gcs"].rpartition(":")[2]))


@pytest.mark.slow
@real
@pytest.mark.parametrize(
    ("engine", "reason"),
    [
        ("engine: ray-xgboost, master: '127.0.0.1:1'", "no Ray cluster answers at 127.0.0.1:1: Connection refused"),
        ("engine: ray-xgboost, master: 'ray://127.0.0.1:1'", "no Ray cluster answers at ray://127.0.0.1:1: "),
        ("engine: spark-gbt, master: 'spark://127.0.0.1:1'", "no Spark master answers at spark://127.0.0.1:1: Conn"),
        ("engine: ray-xgboost, rounds: 2, native: {max_depth: -3}", "XGBoostError: "),
    ],
)  # fmt: skip
def test_what_goes_wrong_is_said(engine: str, reason: str, tmp_path: Path) -> None:
    """An address without a cluster within seconds; what a worker raises in its own words."""
    [cell] = carried(bench(engine), tmp_path)
    assert reason in (cell.reason or "")
