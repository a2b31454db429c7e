"""A real Spark standalone cluster: the command line at it, workers without power, and a run over two executors."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tonnage.places.contract import home_mark
from tonnage.runs import RunFolder
from tonnage.testing.spark import DRIVER_GIB, SparkCluster, spark_cluster, spark_home

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(spark_home() is None, reason="pip install 'tonnage[spark]' and Java 17, or TONNAGE_SPARK_HOME"),
]
PLACE = """[places.nodes]
kind = "spark"
address = "{address}"
rest = "{rest}"
web = "{web}"
bucket = "file://{folder}/bucket"
mount = "{folder}/there"
python = "{python}"
cores = 1
gpus = {gpus}
gpu_memory_gib = 80
memory_gib = 2
driver_memory_gib = {driver_gib}
nodes = {nodes}
time_limit_minutes = 10
grace_s = 20
exchange_s = 0.5
usd_per_hour = 6.0
settings."spark.executorEnv.GLOO_SOCKET_IFNAME" = "lo"
env.TONNAGE_FAKE = '{{}}'
"""
LONGEST_S = 240.0  # of one thing that is waited for: Java and torch take their time to start
GPU_WORKER = {"cores": 2, "memory_gib": 3, "gpus": 8}
FILE = "sequence-classification.tonnage.yaml"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    edge = {"cores": 4, "memory_gib": 2 * DRIVER_GIB, "gpus": 0}
    workers = {"edge": edge, "first": GPU_WORKER, "second": GPU_WORKER}
    with spark_cluster(tmp_path_factory.mktemp("spark"), workers=workers) as found:
        yield found


def terms(cluster: SparkCluster, folder: Path, python: str, *, nodes: int = 1, gpus: int = 8) -> str:
    text = PLACE.format(address=cluster.address, rest=cluster.rest, web=cluster.web, folder=folder, python=python,
                        nodes=nodes, gpus=gpus, driver_gib=DRIVER_GIB)  # fmt: skip
    return text.replace("env.TONNAGE_FAKE", 'settings."spark.executorEnv.TONNAGE_FAKE"')


@pytest.fixture
def desk(tmp_path: Path, cluster: SparkCluster, desk_at: Callable[..., Any]) -> Any:

    return desk_at(tmp_path / "here", terms(cluster, tmp_path, sys.executable))


def pretend(desk: Any, **pretence: Any) -> None:
    """What workers do from now on, wherever they are."""
    desk.pretend(**pretence)
    file = desk.home / "places.toml"
    key = 'settings."spark.executorEnv.TONNAGE_FAKE"'
    lines = [f"{key} = '{json.dumps(pretence)}'" if line.startswith(key) else line
             for line in file.read_text().splitlines()]  # fmt: skip
    file.write_text("\n".join(lines) + "\n")


def wait(true: Callable[[], bool]) -> None:
    until = time.monotonic() + LONGEST_S
    while not true():
        assert time.monotonic() < until, "it did not come so far in time"
        time.sleep(0.2)


def there(desk: Any, name: str) -> RunFolder:
    """The run's folder on the worker."""
    return RunFolder(desk.home.parent / "there" / "runs" / home_mark(desk.home / "runs") / name)


def losses(folder: RunFolder) -> dict[int, float]:
    return {line["step"]: line["loss"] for line in map(json.loads, folder.metrics_file.read_text().splitlines())}


def lost_steps(folder: RunFolder) -> list[int]:
    """Of each start that went on."""
    events = map(json.loads, folder.journal_file.read_text().splitlines())
    return [one["lost_steps"] for one in events if one["kind"] == "resumed"]


def drivers(cluster: SparkCluster) -> list[str]:
    """Drivers of ours that live."""
    return [one["id"] for one in cluster.page()["activedrivers"] if one["mainclass"].startswith("tonnage.")]


def until_saved(following: Any, folder: RunFolder, step: int) -> None:
    wait(lambda: following.poll() is not None or (folder.state().checkpoint_step or 0) >= step)
    assert following.poll() is None, following.communicate()


def test_a_worker_without_power(desk: Any, cluster: SparkCluster) -> None:
    """Executor and work die in one instant: the stage fails, and goes on elsewhere from the newest checkpoint."""
    pretend(desk, steps=300, step_s=0.03, checkpoint_every=10)
    following = desk.begin("run", desk.spec("struck"), "--on", "nodes")
    folder = desk.folder("struck")
    until_saved(following, folder, 30)
    name = cluster.worker_of(int(there(desk, "struck").pid_file.read_text()))
    cluster.lose_worker(name)
    said = following.communicate(timeout=LONGEST_S)[1]
    cluster.add_worker(f"{name}-again", **GPU_WORKER)
    assert following.returncode == 0, said
    assert (folder.state().state.value, folder.state().attempt) == ("succeeded", 2)
    assert losses(folder) == {step: 1 / step for step in range(1, 301)}
    assert [one <= 20 for one in lost_steps(folder)] == [True]  # a checkpoint more may have been on its way
    assert drivers(cluster) == []


def test_the_drivers_worker_without_power(desk: Any, cluster: SparkCluster) -> None:
    """The master starts the driver on another worker: it goes on under the next epoch, one job all the time."""
    cluster.add_worker("edge-2", cores=4, memory_gib=2 * DRIVER_GIB, gpus=0)
    pretend(desk, steps=500, step_s=0.03, checkpoint_every=10)
    following = desk.begin("run", desk.spec("driven"), "--on", "nodes")
    folder = desk.folder("driven")
    until_saved(following, folder, 30)
    [driver] = [one for one in cluster.page()["activedrivers"] if one["mainclass"].endswith(".driven")]
    name = next(name for name in cluster.workers if (cluster.folder / name / driver["id"]).is_dir())
    cluster.lose_worker(name)
    said = following.communicate(timeout=LONGEST_S)[1]
    cluster.add_worker(f"{name}-again", cores=4, memory_gib=2 * DRIVER_GIB, gpus=0)
    assert following.returncode == 0, said
    assert folder.state().state.value == "succeeded"
    assert losses(folder) == {step: 1 / step for step in range(1, 501)}
    assert folder.state().lost_steps <= 20
    assert json.loads(folder.place_file.read_text())["job_id"] == driver["id"]
    assert drivers(cluster) == []


def test_clients_that_die(desk: Any, cluster: SparkCluster) -> None:
    """Killed at moments of a submission: what no run waits for is found by its class, waiting drivers too."""
    pretend(desk, steps=4000, step_s=0.02)
    desk.kill_clients("nodes", (0.9, 1.3, 1.8, 2.4))
    desk.tonnage("places", "orphans", "--end")
    wait(lambda: drivers(cluster) == [])
    assert json.loads(desk.tonnage("places", "orphans", "-o", "json"))["orphans"] == []


def test_an_interpreter_that_lacks_what_runs_need(desk: Any, cluster: SparkCluster, tmp_path: Path) -> None:
    """It ends, with the module's name; the master launches a driver that cannot begin no more than so often."""
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexport PYTHONPATH="$PYTHONPATH"\nexec {_base_python()} -S "$@"\n')
    bare.chmod(0o755)
    file = desk.home / "places.toml"
    file.write_text(file.read_text() + f'settings."spark.pyspark.python" = "{bare}"\n'
                    f'settings."spark.pyspark.driver.python" = "{_python()}"\n')  # fmt: skip
    following = desk.begin("run", desk.spec("bare"), "--on", "nodes")
    said = "".join(following.communicate(timeout=LONGEST_S))
    assert following.returncode != 0
    assert "No module named 'pydantic" in said
    assert drivers(cluster) == []


def _python() -> str:

    return sys.executable


def _base_python() -> str:

    return str(Path(sys.base_prefix) / "bin" / "python3")


def test_real_training_over_two_executors(tmp_path: Path, cluster: SparkCluster, desk_at: Callable[..., Any]) -> None:
    """torchrun's agents meet at the first task; one executor is lost: the losses of an undisturbed run."""
    pytest.importorskip("torch")
    desk = desk_at(tmp_path / "here", terms(cluster, tmp_path, _python(), nodes=2, gpus=0))
    del desk.environ["TONNAGE_WORKER"]
    desk.tonnage("init", "sequence-classification", "--out", str(tmp_path / "st"))
    file = tmp_path / "st" / FILE
    text = file.read_text().replace("log_every: 5", "log_every: 1").replace("epochs: 3", "epochs: 30")
    text = text.replace("  # device: cuda", "  threads: 1\n  # device: cuda")  # others sum in another order
    file.write_text(text.replace("every_steps: 50", "every_steps: 20"))
    two = ("--runner", "torchrun", "--processes", "2", "-y")
    desk.tonnage("run", str(file), "--name", "plain", *two)
    following = desk.begin("run", str(file), "--name", "apart", "--on", "nodes", *two)
    plain, folder = desk.folder("plain"), desk.folder("apart")
    until_saved(following, folder, 40)
    first = cluster.worker_of(int(there(desk, "apart").pid_file.read_text()))
    executors = [name for name in cluster.workers if list((cluster.folder / name).glob("app-*/*/stderr"))]
    app = max(one["id"] for one in cluster.page()["activeapps"])
    others = [name for name in executors if name != first and (cluster.folder / name / app).is_dir()]
    cluster.lose_worker((others or [first])[0])
    cluster.add_worker("third", **GPU_WORKER)
    said = following.communicate(timeout=2 * LONGEST_S)[1]
    assert following.returncode == 0, said
    assert folder.state().attempt == 2
    assert losses(folder) == losses(plain)
    first_result, last = (json.loads(one.result_file.read_text())["metrics"] for one in (plain, folder))
    assert first_result == last
