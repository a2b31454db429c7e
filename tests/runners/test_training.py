"""Real training under every runner: the same loss, and a killed worker replaced."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tonnage.runners import make_runner
from tonnage.runs import EventKind, RunFolder, RunSpec, RunStatus
from tonnage.runs.liveness import is_held
from tonnage.runs.requests import cancel_request, write_request
from tonnage.runs.spec import CheckpointSpec, DataSource, DataSpec, LaunchSpec, TrainingSpec

pytestmark = [pytest.mark.slow]
pytest.importorskip("torch")
pytest.importorskip("accelerate")
ROOT = Path(__file__).parents[2]
LONGEST_S = 280.0
Start = Callable[..., RunFolder]


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Submit a run of the tiny task under a runner."""
    paths = [str(ROOT / "src"), str(ROOT / "tests" / "runners")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    monkeypatch.setenv("TONNAGE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "none")
    folders: list[RunFolder] = []

    def submit(runner: str, processes: int, *, steps: int = 12) -> RunFolder:
        folder = RunFolder(tmp_path / "runs" / f"{runner}-{processes}")
        folders.append(folder)
        spec = RunSpec(
            name=folder.path.name, task="sequence-classification", model="0.0",
            data=DataSpec(train=DataSource(location="200", format="jsonl")),
            training=TrainingSpec(
                global_batch=16, max_steps=steps, epochs=1000.0, log_every_steps=1, precision="fp32", learning_rate=1e-3
            ),
            checkpoint=CheckpointSpec(every_steps=5),
            launch=LaunchSpec(runner=runner, processes=processes, device="cpu", threads=1),  # type: ignore[arg-type]
        )  # fmt: skip
        folder.create(spec)
        folder.record(EventKind.SUBMITTED, who="cli", name=spec.name)
        made = make_runner(runner, cores=2, worker="tiny_worker", python=sys.executable)
        made.submit(made.render(spec, folder), folder)
        return folder

    yield submit
    for folder in folders:
        write_request(cancel_request(folder), by="test", reason="over")
        wait(folder)


def wait(folder: RunFolder) -> RunFolder:
    """Until nobody looks after the run any more."""
    end = time.monotonic() + LONGEST_S
    while is_held(folder.pid_file):
        assert time.monotonic() < end, words(folder)
        time.sleep(0.1)
    return folder


def words(folder: RunFolder) -> str:
    files = (folder.journal_file, folder.path / "supervisor.log", folder.log_file)
    return "\n".join(path.read_text()[-5000:] for path in files if path.exists())


def losses(folder: RunFolder) -> dict[int, float]:
    assert folder.state().state is RunStatus.SUCCEEDED, words(folder)
    lines = [json.loads(line) for line in folder.metrics_file.read_text().splitlines()]
    return {line["step"]: line["loss"] for line in lines}


@pytest.mark.parametrize("runner", ["torchrun", "ray"])
def test_two_workers_have_the_loss_of_one(start: Start, runner: str) -> None:
    """The same file on one process and on two: every step's loss within what summing in another order costs."""
    if runner == "ray":
        pytest.importorskip("ray")
    one = losses(wait(start("local", 1)))
    two = losses(wait(start(runner, 2)))
    assert one.keys() == two.keys() == set(range(1, 13))
    for step, loss in one.items():
        assert two[step] == pytest.approx(loss, rel=1e-4), f"step {step}"


def test_a_worker_of_torchrun_killed(start: Start) -> None:
    """SIGKILL to one of two: the agent replaces it, the run resumes, the curve is the undisturbed one."""
    whole = losses(wait(start("local", 1, steps=300)))
    folder = start("torchrun", 2, steps=300)
    end = time.monotonic() + LONGEST_S
    while not folder.metrics_file.exists() or '"step": 20,' not in folder.metrics_file.read_text():
        assert time.monotonic() < end, words(folder)
        time.sleep(0.02)
    shim = next(event for event in folder.events() if event.kind is EventKind.STARTED).fields["pid"]
    ranks = [
        one for one in psutil.Process(shim).children(recursive=True) if "tonnage.runners.rank" in one.cmdline()[2:4]
    ]
    os.kill(ranks[-1].pid, signal.SIGKILL)
    curve = losses(wait(folder))
    assert [event.kind for event in folder.events()].count(EventKind.STARTED) == 1, words(
        folder
    )  # the agent's own work
    assert EventKind.RESUMED in [event.kind for event in folder.events()]
    assert curve.keys() == whole.keys()
    assert max(abs(curve[step] - whole[step]) for step in whole) < 1e-3


@pytest.mark.skipif(sys.platform != "linux", reason="stopped processes are found by their state")
@pytest.mark.parametrize("which", ["both", "one"])
def test_stopped_ranks_hear_the_request(start: Start, which: str) -> None:
    """SIGSTOP to ranks of DDP, one of which the other waits for in a collective: asked to save, they are woken, agree
    on a step, save and end."""
    folder = start("torchrun", 2, steps=1_000_000)
    wait_for_line(folder)
    ranks = workers_of(folder)
    for rank in ranks if which == "both" else ranks[1:]:
        os.kill(rank, signal.SIGSTOP)
    write_request(folder.stop_request, by="test", reason="")
    wait(folder)
    state = folder.state()
    assert (state.state, state.message.endswith("verified")) == (RunStatus.STOPPED, True), (
        folder.journal_file.read_text()
    )
    assert state.checkpoint_step == state.step > 0


def wait_for_line(folder: RunFolder) -> None:
    """Until the first step is logged."""
    end = time.monotonic() + LONGEST_S
    while not folder.metrics_file.exists():
        assert time.monotonic() < end, folder.log_file.read_text()
        time.sleep(0.05)


def workers_of(folder: RunFolder) -> list[int]:
    """The processes that train, not their launcher."""
    shim = next(event.fields["pid"] for event in folder.events() if event.kind is EventKind.STARTED)
    below = psutil.Process(shim).children(recursive=True)
    return [one.pid for one in below if "tonnage.runners.rank" in one.cmdline()[2:4]]
