"""What every runner keeps, and the fake one with them. A gap is declared with its reason and turns red once closed."""

from __future__ import annotations

import dataclasses
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tonnage.errors import InputError
from tonnage.runners import RUNNERS, Runner, make_runner
from tonnage.runs import EventKind, RunFolder, RunSpec, RunStatus
from tonnage.runs.job import alone_script, dump_job, load_job
from tonnage.runs.liveness import is_held, workers_lock
from tonnage.runs.spec import DataSource, DataSpec, LaunchSpec
from tonnage.testing import FakeRunner

ROOT = Path(__file__).parents[2]
SECRET = "hf_very_secret"
LONGEST_S = 280.0
NAMES = [*RUNNERS, "fake"]
GAPS = {
    ("ray", "workers take SIGTERM"): "Ray's workers are threads of actors; the folder's notice asks them instead",
    ("fake", "starts processes"): "the fake carries runs to their end without any",
}
NEEDS = {"torchrun": "torch", "ray": "ray"}


def kept_by(promise: str, *, slow: tuple[str, ...] = ()) -> list[object]:
    """Every runner, those with a gap in this promise as failures that must fail."""
    marks = {
        name: [
            *([pytest.mark.xfail(strict=True, reason=GAPS[name, promise])] if (name, promise) in GAPS else []),
            *([pytest.mark.slow] if name in slow else []),
        ]
        for name in NAMES
    }
    return [pytest.param(name, marks=marks[name]) for name in NAMES]


def make(name: str) -> Runner:
    if name == "fake":
        return FakeRunner(cores=4, environ={"HF_TOKEN": SECRET})
    return make_runner(name, cores=4, worker="tonnage.testing.worker", environ={"HF_TOKEN": SECRET})


def spec(name: str, **launch: object) -> RunSpec:
    given = {"runner": "local" if name == "fake" else name, "processes": 1 if name in {"local", "fake"} else 2} | launch
    data = DataSpec(train=DataSource(location="rows.csv", format="csv"))
    return RunSpec(name="one", task="mlp", data=data, launch=LaunchSpec(**given))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", kept_by("renders"))
def test_render_touches_nothing_and_says_it_all(name: str, tmp_path: Path) -> None:
    """The same job twice, nothing on the disk, the command whole: program, worker, folder; threads shared out."""
    folder = RunFolder(tmp_path / "runs" / "one")
    job = make(name).render(spec(name), folder)
    assert job == make(name).render(spec(name), folder)
    assert list(tmp_path.iterdir()) == []
    assert Path(job.argv[0]).exists()
    assert str(folder.path) in job.argv
    assert dict(job.env)["OMP_NUM_THREADS"] == str(4 // job.processes)
    assert job.command_line in alone_script(job, folder=str(folder.path), spec="{}")
    assert load_job(dump_job(job), where="here") == job


@pytest.mark.parametrize("name", kept_by("threads"))
def test_threads_that_were_predicted(name: str, tmp_path: Path) -> None:
    """Where the file says nothing of threads, what is predicted to be quickest goes before what is shared out."""
    runner = dataclasses.replace(make(name), threads=1)  # type: ignore[type-var]
    assert dict(runner.render(spec(name), RunFolder(tmp_path)).env)["OMP_NUM_THREADS"] == "1"
    assert dict(runner.render(spec(name, threads=3), RunFolder(tmp_path)).env)["OMP_NUM_THREADS"] == "3"


@pytest.mark.parametrize("name", kept_by("secrets"))
def test_secrets_are_named_never_written(name: str, tmp_path: Path) -> None:
    """The value of HF_TOKEN is in no part of the job; its name is."""
    job = make(name).render(spec(name), RunFolder(tmp_path))
    assert job.secrets == ("HF_TOKEN",)
    assert SECRET not in dump_job(job) + alone_script(job, folder="/run", spec="{}")


@pytest.mark.parametrize("name", kept_by("threads"))
def test_threads_of_the_specification(name: str, tmp_path: Path) -> None:
    """What the file says of threads goes before what is shared out."""
    assert dict(make(name).render(spec(name, threads=3), RunFolder(tmp_path)).env)["OMP_NUM_THREADS"] == "3"


@pytest.mark.parametrize("name", kept_by("workers take SIGTERM"))
def test_workers_take_sigterm(name: str, tmp_path: Path) -> None:
    """A notice interrupts what the workers do."""
    assert make(name).render(spec(name), RunFolder(tmp_path)).signal_to != "nobody"


@pytest.mark.parametrize(
    ("device", "gpus", "asks"), [("auto", 0, False), ("auto", 2, True), ("cuda", 0, True), ("cpu", 2, False)]
)
def test_ray_is_asked_for_gpus(device: str, gpus: int, asks: bool, tmp_path: Path) -> None:
    """Ray hides devices nobody asked it for: a run that is to use those at hand asks."""
    job = make_runner("ray", cores=4, gpus=gpus, environ={}).render(spec("ray", device=device), RunFolder(tmp_path))
    assert ("--gpus" in job.argv) is asks


@pytest.fixture
def submitted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., RunFolder]]:
    """Submit a run whose worker pretends, and leave nothing behind."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))
    monkeypatch.setenv("TONNAGE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "none")
    folder = RunFolder(tmp_path / "runs" / "one")
    runners: list[Runner] = []

    def submit(name: str, **pretence: object) -> RunFolder:
        if name in NEEDS:
            pytest.importorskip(NEEDS[name])
        monkeypatch.setenv("TONNAGE_FAKE", json.dumps(pretence))
        runners.append(make(name))
        folder.create(spec(name))
        folder.record(EventKind.SUBMITTED, who="cli", name="one")
        runners[0].submit(runners[0].render(spec(name), folder), folder)
        return folder

    yield submit
    for runner in runners:
        if not runner.status(folder).state.ended:
            runner.cancel(folder, by="test", reason="over")
        settle(folder)


def settle(folder: RunFolder) -> None:
    """Wait until nobody holds the run."""
    end = time.monotonic() + LONGEST_S
    while is_held(folder.pid_file) or is_held(workers_lock(folder)):
        assert time.monotonic() < end, folder.journal_file.read_text()
        time.sleep(0.05)


def words(folder: RunFolder) -> str:
    files = (folder.journal_file, folder.path / "supervisor.log", folder.log_file)
    return "\n".join(path.read_text()[-4000:] for path in files if path.exists())


@pytest.mark.parametrize("name", kept_by("starts processes", slow=("torchrun", "ray")))
def test_a_submitted_run_succeeds(name: str, submitted: Callable[..., RunFolder]) -> None:
    """From `submit` to `succeeded` without another word, with every step in the metrics."""
    folder = submitted(name, steps=6)
    settle(folder)
    assert make(name).status(folder).state is RunStatus.SUCCEEDED, words(folder)
    assert [json.loads(line)["step"] for line in folder.metrics_file.read_text().splitlines()] == list(range(1, 7))


@pytest.mark.parametrize("name", kept_by("stops", slow=("local", "torchrun", "ray")))
def test_a_run_is_stopped(name: str, submitted: Callable[..., RunFolder]) -> None:
    """Under way after `submit`, then saved and `stopped`, with who asked."""
    folder = submitted(name, steps=100_000)
    runner = make(name)
    end = time.monotonic() + LONGEST_S
    while runner.status(folder).state is not RunStatus.RUNNING:
        assert time.monotonic() < end, words(folder)
        time.sleep(0.05)
    runner.stop(folder, by="test", reason="enough")
    settle(folder)
    assert runner.status(folder).state is RunStatus.STOPPED, words(folder)


@pytest.mark.parametrize("name", kept_by("cancels", slow=("local", "torchrun", "ray")))
def test_a_run_is_cancelled(name: str, submitted: Callable[..., RunFolder]) -> None:
    """Ended at once, and `cancelled`."""
    folder = submitted(name, steps=100_000)
    make(name).cancel(folder, by="test", reason="now")
    settle(folder)
    assert make(name).status(folder).state is RunStatus.CANCELLED, words(folder)


@pytest.mark.slow
def test_taken_ports_do_not_matter(submitted: Callable[..., RunFolder]) -> None:
    """The ports that PyTorch's launcher is known by are in use: the run takes others."""
    import socket

    with socket.socket() as first, socket.socket() as second:
        for taken, port in ((first, 29400), (second, 29500)):
            taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            taken.bind(("127.0.0.1", port))
            taken.listen()
        folder = submitted("torchrun", steps=3)
        settle(folder)
    assert make("torchrun").status(folder).state is RunStatus.SUCCEEDED, words(folder)


@pytest.mark.slow
def test_an_end_of_torchrun_that_is_final(submitted: Callable[..., RunFolder]) -> None:
    """A diverged run is not tried again by the agent, and keeps its reason through it."""
    folder = submitted("torchrun", end_at=2, end_code=77)
    settle(folder)
    state = make("torchrun").status(folder)
    assert (state.state, state.reason, state.attempt) == (RunStatus.FAILED, "Diverged", 1), words(folder)
    assert folder.log_file.read_text().count("step 1\n") == 1


def test_unknown_runners_are_named() -> None:
    """The hint knows the nearest and all others."""
    with pytest.raises(InputError) as refused:
        make_runner("torch", cores=1)
    assert "torchrun" in (refused.value.hint or "")


def test_every_gap_has_its_runner_and_its_reason() -> None:
    """The table of gaps speaks of runners that exist, in sentences."""
    assert {name for name, _ in GAPS} <= set(NAMES)
    assert all(len(reason) > 20 for reason in GAPS.values())


def test_runners_are_values() -> None:
    """Two of the same words are equal, and none can be changed."""
    one = make("local")
    assert one == make("local")
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.cores = 9  # type: ignore[attr-defined]
    assert os.environ.get("TONNAGE_FAKE") is None
