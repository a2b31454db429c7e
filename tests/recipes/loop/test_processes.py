"""Several processes learn the same as one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.ports import free_port

from tonnage.runs.journal import EventKind
from tonnage.runs.progress import read_progress
from tonnage.runs.spec import CheckpointSpec
from tonnage.runs.states import WorkerExit
from tonnage.supervisor.workers import worst_exit

HERE = Path(__file__).parent
MakeRun = Callable[..., Any]


def under_torchrun(run: Any, processes: int) -> list[str]:
    """The command of the tiny worker, on loopback."""
    return [
        sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(processes), "--master-addr", "127.0.0.1",
        "--master-port", str(free_port()), str(HERE / "tiny.py"), str(run.folder.path),
    ]  # fmt: skip


def torchrun(run: Any, *, processes: int = 2, **environment: str) -> subprocess.CompletedProcess[str]:
    """Start the tiny worker under torchrun, to its end."""
    env = {**os.environ, "OMP_NUM_THREADS": "1", **environment}
    return subprocess.run(under_torchrun(run, processes), capture_output=True, text=True, env=env, timeout=900)


def kill_after(run: Any, step: int) -> None:
    """Start it, and kill all of its processes at once when a step is done."""
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        under_torchrun(run, 2), env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as agent:
        while (mark := read_progress(run.folder.path)) is None or mark.step < step:
            assert agent.poll() is None, "it ended before it was killed"
            time.sleep(0.001)
        agent.send_signal(signal.SIGSTOP)  # or it would start those anew that die first
        for one in (*psutil.Process(agent.pid).children(recursive=True), psutil.Process(agent.pid)):
            one.kill()


def compare(one: Any, many: Any) -> None:
    assert one.curve().keys() == many.curve().keys()
    for step, said in one.curve().items():
        assert many.curve()[step] == pytest.approx(said, abs=5e-6), f"step {step}"


def test_two_processes_give_the_loss_of_one(make_run: MakeRun) -> None:
    """The same file, dropout off, a global batch that two cannot share evenly, micro-batches that do not divide it."""
    one, two = (make_run(name, dropout=0.0, max_steps=10, global_batch=15, micro_batch=4) for name in ("one", "two"))
    assert one.work() == WorkerExit.DONE
    command = [sys.executable, str(HERE / "ranks.py"), "2", str(free_port()), str(two.folder.path)]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    ended = subprocess.run(command, capture_output=True, text=True, env=env, timeout=900)
    assert ended.returncode == 0, ended.stderr
    compare(one, two)
    assert two.result()["processes"] == 2
    assert two.result()["metrics"] == one.result()["metrics"]


@pytest.mark.slow
@pytest.mark.parametrize("sharding", ["zero2", "zero3"])
def test_a_shared_out_model_gives_the_loss_of_a_whole_one(make_run: MakeRun, sharding: str) -> None:
    """FSDP over two processes; its checkpoint is whole, and a run goes on from it."""
    one = make_run("one", dropout=0.0, max_steps=10)
    shared = make_run("shared", dropout=0.0, max_steps=10, sharding=sharding)
    assert one.work() == WorkerExit.DONE
    ended = torchrun(shared, TINY_SIGNAL_AT="6")
    assert ended.returncode != 0
    assert shared.folder.state().checkpoint_step == 7
    ended = torchrun(shared)
    assert ended.returncode == 0, ended.stderr
    compare(one, shared)
    assert shared.result()["metrics"] == one.result()["metrics"]


@pytest.mark.slow
@pytest.mark.parametrize("sharding", ["zero2", "zero3"])
def test_a_run_of_one_process_goes_on_shared_out_over_two(make_run: MakeRun, sharding: str) -> None:
    """From the checkpoint of a whole model each process takes its part of weights and moments: the losses follow."""
    one = make_run("one", dropout=0.0, max_steps=10)
    grown = make_run("grown", dropout=0.0, max_steps=10, sharding=sharding)
    assert one.work() == WorkerExit.DONE
    assert grown.start(TINY_SIGNAL_AT="4").returncode == WorkerExit.PREEMPTED
    ended = torchrun(grown)
    assert ended.returncode == 0, ended.stderr
    assert [event.fields["step"] for event in grown.events(EventKind.RESUMED)] == [5]
    compare(one, grown)
    assert grown.result()["metrics"] == one.result()["metrics"]


@pytest.mark.slow
def test_kills_of_all_processes_leave_a_shared_out_run_as_it_was(make_run: MakeRun) -> None:
    """A save after each step, written beside the training, and SIGKILL to all at once: the losses are those of a run
    that was left alone, and what a kill costs is a step and the saves under way."""
    one = make_run("one", dropout=0.0, max_steps=20)
    every = CheckpointSpec(every_steps=1, keep=2)
    killed = make_run("killed", dropout=0.0, max_steps=20, sharding="zero3", checkpoint=every)
    assert one.work() == WorkerExit.DONE
    for step in (6, 13):
        kill_after(killed, step)
    assert torchrun(killed).returncode == 0
    compare(one, killed)
    resumed = killed.events(EventKind.RESUMED)
    assert len(resumed) == 2
    assert max(event.fields["lost_steps"] for event in resumed) <= 3
    assert killed.events(EventKind.CHECKPOINT_INVALID) == []


@pytest.mark.slow
def test_processes_agree_on_a_smaller_micro_batch(make_run: MakeRun) -> None:
    """Memory runs out in the preflight of both and in the middle of a step: both halve, and learn the same."""
    one, two = (make_run(name, dropout=0.0, max_steps=6) for name in ("one", "two"))
    assert one.work() == WorkerExit.DONE
    ended = torchrun(two, TINY_TOKEN_LIMIT="100", TINY_LIMIT_FROM="2")
    assert ended.returncode == 0, ended.stderr
    compare(one, two)
    sizes = [event.fields["next_micro_batch"] for event in two.events(EventKind.OUT_OF_MEMORY)]
    assert sizes == [4]


@pytest.mark.slow
def test_a_signal_to_one_process_ends_all_at_the_same_step(make_run: MakeRun) -> None:
    """All save together and end; started again they go on to the same losses."""
    one, two = (make_run(name, dropout=0.0, max_steps=10) for name in ("one", "two"))
    assert one.work() == WorkerExit.DONE
    assert torchrun(two, TINY_SIGNAL_AT="4").returncode != 0
    assert two.folder.state().checkpoint_step == 5
    assert torchrun(two).returncode == 0
    compare(one, two)


@pytest.mark.slow
def test_a_disk_that_is_full_at_the_end_ends_all_processes(make_run: MakeRun, tmp_path: Path) -> None:
    """The first process has no room for a tensor of the finished model. It takes part until all are gathered, both say
    why they end, neither crashes, and the run goes on to its end where there is room."""
    run = make_run("full", max_steps=4, sharding="zero3")
    (exits := tmp_path / "exits").mkdir()
    command = under_torchrun(run, 2)
    command[-2:] = ["-m", "tonnage.runners.rank", "--worker", "tiny", command[-1]]
    paths = os.pathsep.join([str(HERE), *sys.path])
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": paths, "TONNAGE_EXITS": str(exits)}
    given = {**env, "TINY_END_FILE_BYTES": "30000"}  # less than its embeddings
    ended = subprocess.run(command, capture_output=True, text=True, env=given, timeout=900)
    assert ended.returncode == 0, ended.stderr
    assert worst_exit(exits, 0) == WorkerExit.DISK_FULL
    assert run.events(EventKind.CRASHED) == []
    said = {event.who: event.fields["reason"] for event in run.events(EventKind.STOPPING)}
    assert said == {"rank0": "DiskFull", "rank1": "DiskFull"}
    assert not any(path.name.startswith(".model") for path in run.folder.path.iterdir())

    ended = torchrun(run)
    assert ended.returncode == 0, ended.stderr
    assert run.folder.model.is_dir()
