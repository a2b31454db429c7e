"""`run`, `ps`, `logs`, `stop`, `resume` as a user types them, over a worker that pretends."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tonnage.cli.following import exit_code
from tonnage.files import write_whole
from tonnage.runners.machine import look_at_machine
from tonnage.runners.runner import Supervised
from tonnage.runs import EventKind, RunFolder, RunReason, RunState, RunStatus
from tonnage.runs.data_prints import with_prints
from tonnage.runs.folder import append_values
from tonnage.runs.liveness import is_held
from tonnage.runs.progress import ProgressWriter
from tonnage.runs.spec import load_spec

Run = Callable[..., subprocess.CompletedProcess[str]]
SPEC = {"name": "one", "task": "mlp", "data": {"train": {"location": "", "format": "csv"}}}
FAKE = {"TONNAGE_WORKER": "tonnage.testing.worker", "MLFLOW_TRACKING_URI": "none"}
LONGEST_S = 60.0


@pytest.fixture
def spec(tmp_path: Path) -> str:
    """A specification whose rows are there."""
    (tmp_path / "rows.csv").write_text("a,b\n1,2\n")
    SPEC["data"]["train"]["location"] = str(tmp_path / "rows.csv")  # type: ignore[index]
    path = tmp_path / "one.json"
    path.write_text(json.dumps(SPEC))
    return str(path)


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """The home of the test; what still runs in it at the end is cancelled."""
    runs = tmp_path / "home" / "runs"
    yield runs
    for path in runs.glob("*"):
        (path / "cancel").write_text("")
        end = time.monotonic() + LONGEST_S
        while is_held(path / "supervisor.pid") and time.monotonic() < end:
            time.sleep(0.05)


def pretend(**fields: object) -> dict[str, str]:
    return FAKE | {"TONNAGE_FAKE": json.dumps(fields)}


def test_dry_run_touches_nothing(inside: Run, spec: str, tmp_path: Path) -> None:
    """The command, environment and folder, as a page and as JSON; no home is made."""
    page = inside("run", spec, "--dry-run", "--runner", "torchrun", "--processes", "2")
    assert page.returncode == 0
    assert "--nproc-per-node 2" in page.stdout
    assert "export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1" in page.stdout
    assert "Predicted" in page.stdout
    document = json.loads(inside("run", spec, "--dry-run", "-o", "json").stdout)
    assert document["schema"] == "tonnage/job@1"
    assert document["command"][1:] == ["-m", "tonnage.recipes.worker", str(tmp_path / "home" / "runs" / "one")]
    assert document["prediction"]["why_none"].startswith("this machine has not been measured")
    assert not (tmp_path / "home").exists()


def test_the_script_of_a_dry_run_does_the_work(
    inside: Run, spec: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It makes the folder and the specification itself: a shell carries it out as it stands, and the worker finds the
    run there."""
    for name, value in pretend(steps=2).items():
        monkeypatch.setenv(name, value)
    document = json.loads(inside("run", spec, "--dry-run", "-o", "json").stdout)
    done = subprocess.run(["sh"], input=document["script"], text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    folder = RunFolder(tmp_path / "home" / "runs" / "one")
    assert folder.spec().name == "one"
    assert any(event.kind is EventKind.TRAINING for event in folder.events())
    (run,) = json.loads(inside("ps", "--all", "-o", "json").stdout)["runs"]
    assert (run["state"], run["step"]) == ("succeeded", 2)
    for path in (folder.path.parent, *folder.path.glob("*")):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path
    assert inside("runs", "rm", "one", "-y").returncode == 0
    assert not folder.path.exists()


def test_a_script_that_was_killed_leaves_a_run_that_can_go(
    inside: Run, spec: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it works the run is under way and stays; killed, it is lost, and may be removed: nobody else ends it."""
    for name, value in pretend(steps=100_000).items():
        monkeypatch.setenv(name, value)
    document = json.loads(inside("run", spec, "--dry-run", "-o", "json").stdout)
    working = subprocess.Popen(
        ["sh", "-c", document["script"]], stdout=subprocess.DEVNULL, start_new_session=True, env=os.environ
    )
    folder = RunFolder(tmp_path / "home" / "runs" / "one")
    wait_for_step(folder.path, 2)
    (run,) = json.loads(inside("ps", "-o", "json").stdout)["runs"]
    assert run["state"] == "running"
    assert inside("runs", "rm", "one", "-y").returncode == 2
    os.killpg(working.pid, signal.SIGKILL)
    working.wait()
    (run,) = json.loads(inside("ps", "-o", "json").stdout)["runs"]
    assert run["state"] == "lost"
    assert inside("runs", "rm", "one", "-y").returncode == 0
    assert not folder.path.exists()


def test_the_script_takes_signed_addresses_from_the_environment(inside: Run, spec: str) -> None:
    """Its specification names the variable, which the worker fills; the signature itself is nowhere."""
    document = json.loads(Path(spec).read_text())
    document["data"]["train"]["location"] = "https://host/rows.csv?sig=plantedsignature"
    Path(spec).write_text(json.dumps(document))
    script = json.loads(inside("run", spec, "--dry-run", "-o", "json").stdout)["script"]
    assert "rows.csv?sig=${TONNAGE_SECRET_1}" in script
    assert ": ${TONNAGE_SECRET_1:?" in script
    assert "plantedsignature" not in script
    os.environ.pop("TONNAGE_SECRET_1")


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--max-cost", "5"), 4, "what an hour of this machine costs is not known"),
        (("--processes", "3", "--runner", "local"), 4, "the runner 'local' is one process"),
        (("--runner", "slurm"), 2, "no runner is named 'slurm'"),
        (("--notices", "oracle"), 2, "no notices are known of 'oracle'"),
        (("--name", "../x"), 4, "cannot name a run"),
    ],
)
def test_what_stands_against_a_run(
    inside: Run, spec: str, tmp_path: Path, words: tuple[str, ...], code: int, said: str
) -> None:
    """Refused before anything is made, with what to do instead."""
    done = inside("run", spec, *words)
    assert done.returncode == code
    assert said in done.stderr
    assert "hint:" in done.stderr
    assert not (tmp_path / "home").exists()


def test_rows_that_are_not_there(inside: Run, spec: str, tmp_path: Path) -> None:
    """A missing file is named before the first step."""
    (tmp_path / "rows.csv").unlink()
    done = inside("run", spec)
    assert done.returncode == 2
    assert "rows.csv" in done.stderr


@pytest.mark.parametrize(
    "line", [("logs", "two"), ("stop", "two"), ("cancel", "two"), ("resume", "two")], ids=lambda line: line[0]
)
def test_runs_that_are_not_there(inside: Run, line: tuple[str, ...]) -> None:
    """Each verb says so, and how to see those there are."""
    done = inside(*line)
    assert done.returncode == 2
    assert "no run is named 'two'" in done.stderr
    assert "tonnage ps --all" in done.stderr


def test_no_runs_yet(inside: Run) -> None:
    """An empty list is a list."""
    assert inside("ps", "--all").returncode == 0
    assert json.loads(inside("ps", "-o", "json").stdout)["runs"] == []


def test_one_broken_run_does_not_end_the_list(inside: Run, spec: str, home: Path) -> None:
    """A bad line in one journal and a specification that nobody can read: both are named, all others listed."""
    for name in ("one", "two", "three"):
        RunFolder(home / name).create(load_spec(Path(spec).read_text(), where=spec))
        RunFolder(home / name).record(EventKind.SUBMITTED, who="cli")
    with RunFolder(home / "two").journal_file.open("a") as file:
        file.write("rubbish\n")
    (home / "three" / "spec.json").write_text("{")
    done = inside("ps", "--all")
    assert done.returncode == 0
    assert "two: a line of its journal is left out" in " ".join(done.stdout.split())
    assert "three cannot be read" in " ".join(done.stdout.split())
    listed = json.loads(inside("ps", "--all", "-o", "json").stdout)["runs"]
    assert {run["name"] for run in listed} == {"one", "two"}


def test_a_run_watched_to_its_end(tonnage: Run, spec: str, home: Path) -> None:
    """The log and the prediction on stderr, the outcome on stdout, exit 0; then `logs`, `ps`, a name taken."""
    done = tonnage("run", spec, "-o", "json", env=pretend(steps=30, crash_at=9))
    assert done.returncode == 0, done.stderr
    assert "predicted" in done.stderr
    assert "step 30" in done.stderr
    assert "killed by SIGKILL; starting again" in done.stderr
    (run,) = json.loads(done.stdout)["runs"]
    assert (run["name"], run["state"], run["step"], run["attempt"]) == ("one", "succeeded", 30, 2)
    assert tonnage("logs", "one", "--tail", "2").stdout == "step 29\nstep 30\n"
    assert json.loads(tonnage("ps", "-o", "json").stdout)["runs"] == []
    again = tonnage("run", spec)
    assert (again.returncode, "--name one-2" in again.stderr) == (2, True)
    assert "has succeeded" in tonnage("resume", "one").stderr
    assert (home / "one" / "prediction.json").exists()


def test_no_resume_on_a_full_disk(inside: Run, spec: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Refused before a line is written: half a start would leave the run lost."""
    folder = RunFolder(home / "one")
    folder.create(load_spec(Path(spec).read_text(), where=spec))
    folder.record(EventKind.STOPPED, who="supervisor", reason="UserStopped")
    monkeypatch.setattr("tonnage.runners.machine.free_disk_gib", lambda _: 0.0)
    refused = inside("resume", "one")
    assert (refused.returncode, len(list(folder.events()))) == (4, 1)
    assert "make room" in refused.stderr


PLANTED = ("planteduser1", "plantedsignature", "plantedmlflow", "hf_plantedtoken")


@pytest.mark.parametrize("tracked_by", ["file", pytest.param("environment", marks=pytest.mark.slow)])
def test_no_file_of_a_run_holds_a_secret(tonnage: Run, spec: str, home: Path, tmp_path: Path, tracked_by: str) -> None:
    """Signed URL of rows, passwords of MLflow's address in file and environment, a token, all of them printed by the
    worker and told in its journal: in no file of the home, all files and folders of the run the user's alone."""
    user, signature, mlflow, token = PLANTED
    signed = f"https://127.0.0.1:9/rows.csv?X-Amz-Signature={signature}&versionId=3"
    document = json.loads(Path(spec).read_text())
    document["data"]["train"]["location"] = signed
    document["tracking"] = {"uri": f"http://me:{user}@127.0.0.1:9" if tracked_by == "file" else None}
    Path(spec).write_text(json.dumps(document))
    says = f"reading {signed} for http://me:{user}@127.0.0.1:9 with {token}"
    secrets = {"HF_TOKEN": token, "MLFLOW_TRACKING_URI": f"http://me:{mlflow}@127.0.0.1:9"}
    done = tonnage("run", spec, env=pretend(steps=3, says=says) | secrets)
    assert done.returncode == 0, done.stderr
    assert not any(secret in done.stderr + done.stdout for secret in PLANTED)
    files = [path for path in (tmp_path / "home").rglob("*") if path.is_file()]
    assert len(files) > 10
    for path in files:
        content = path.read_bytes()
        assert not [secret for secret in PLANTED if secret.encode() in content], path
    assert "reading https://127.0.0.1:9/rows.csv?X-Amz-Signature=***&versionId=3" in (home / "one/log.txt").read_text()
    for path in home.glob("one/*"):
        if path.name not in ("fake-starts-0",):
            assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path
    assert stat.S_IMODE((home / "one").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "home" / "tonnage.db").stat().st_mode) == 0o600


def test_resume_with_other_processes(inside: Run, spec: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runner, processes and device are those of the command from now on; what the machine has not is refused."""
    folder = RunFolder(home / "one")
    folder.create(load_spec(Path(spec).read_text(), where=spec))
    folder.record(EventKind.STOPPED, who="supervisor", reason="UserStopped")
    refused = inside("resume", "one", "--processes", "2", "--runner", "local")
    assert (refused.returncode, "is one process" in refused.stderr) == (4, True)
    assert inside("resume", "one", "--device", "tpu").returncode == 2
    submitted = []
    monkeypatch.setattr(Supervised, "submit", lambda _, job, __: submitted.append(job))
    write_whole(folder.prediction_file, "of one process")
    done = inside("resume", "one", "--processes", "2", "--device", "cpu", "-d")  # `local` is one process: torchrun
    assert done.returncode == 0, done.stderr
    said = [event.fields for event in folder.events() if event.kind is EventKind.SUBMITTED][-1]
    assert (said["runner"], said["processes"], said["device"]) == ("torchrun", 2, "cpu")
    assert "why_none" in folder.prediction_file.read_text()  # what was predicted was of another configuration
    launch = folder.spec().launch
    assert (launch.runner, launch.processes, launch.device) == ("torchrun", 2, "cpu")
    assert "--nproc-per-node 2" in submitted[0].command_line


def test_resume_keeps_the_threads_it_began_with(
    inside: Run, spec: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that were predicted to be quickest, so that sums go on in the same order."""
    folder = RunFolder(home / "one")
    folder.create(load_spec(Path(spec).read_text(), where=spec))
    submitted = []
    monkeypatch.setattr(Supervised, "submit", lambda _, job, __: submitted.append(dict(job.env)["OMP_NUM_THREADS"]))
    for text in ('{"threads": 1}', '{"threads": 700}', "half a fi"):  # a rotten file is no reason not to go on
        folder.record(EventKind.STOPPED, who="supervisor", reason="UserStopped")
        write_whole(folder.prediction_file, text)
        assert inside("resume", "one", "-d").returncode == 0
    cores = str(look_at_machine().cores)  # never more than this process may use
    assert submitted == ["1", cores, cores]


def test_changed_rows_are_seen_before_a_start(inside: Run, spec: str, home: Path, tmp_path: Path) -> None:
    """Where there is a checkpoint to go on from, the command itself compares the files; nothing is submitted."""
    folder = RunFolder(home / "one")
    made = load_spec(Path(spec).read_text(), where=spec)
    folder.create(replace(made, data=with_prints(made.data)))
    folder.record(EventKind.STOPPED, who="supervisor", reason="UserStopped")
    (folder.checkpoints / "step-00000005").mkdir()
    (tmp_path / "rows.csv").write_text("a,b\n1,3\n")
    refused = inside("resume", "one")
    assert (refused.returncode, len(list(folder.events()))) == (2, 1)
    assert "rows.csv is not what it was" in refused.stderr


def test_one_step_whoever_says_it(inside: Run, spec: str, home: Path) -> None:
    """`ps`, `show`, the webhook's message and the line of a follower name the step of the newest start."""
    from tonnage.cli.following import status_line
    from tonnage.supervisor.reporting import end_of

    folder = RunFolder(home / "one")
    folder.create(load_spec(Path(spec).read_text(), where=spec))
    folder.record(EventKind.SUBMITTED, who="cli")
    folder.record(EventKind.TRAINING, who="rank0", step=0, total_steps=100)
    marks = ProgressWriter(folder.path)
    marks.note(57)
    folder.record(EventKind.STARTED, who="supervisor", attempt=2)
    folder.record(EventKind.RESUMED, who="rank0", step=50)
    marks.note(52)
    marks.close()

    def told() -> set[int]:
        (row,) = json.loads(inside("ps", "--all", "-o", "json").stdout)["runs"]
        shown = json.loads(inside("show", "one", "-o", "json").stdout)
        return {row["step"], shown["step"], shown["measured"]["steps"], end_of(folder, folder.state())["step"]}

    assert told() == {52}
    folder.record(EventKind.STOPPED, who="supervisor", step=52, reason="UserStopped")
    assert told() == {52}
    append_values(folder.metrics_file, {"step": 50, "loss": 1.0})
    assert "step 52 of 100" in status_line(folder, folder.state())


def test_faults_of_ended_runs_are_told_where_these_are_listed(inside: Run, spec: str, home: Path) -> None:
    """A damaged journal of a run that is over says nothing of those under way."""
    folder = RunFolder(home / "one")
    folder.create(load_spec(Path(spec).read_text(), where=spec))
    folder.record(EventKind.SUBMITTED, who="cli")
    with folder.journal_file.open("a") as file:
        file.write("rubbish\n")
    folder.record(EventKind.SUCCEEDED, who="supervisor", step=1)
    assert "left out" not in inside("ps").stdout
    assert "left out" in inside("ps", "--all").stdout


def test_a_follower_of_a_stopped_run_was_not_interrupted(tonnage: Run, spec: str, home: Path) -> None:
    """Stopped from elsewhere: exit 130 with the run's last words, and no word of an interruption of the follower."""
    with ThreadPoolExecutor(1) as beside:
        following = beside.submit(tonnage, "run", spec, env=pretend(steps=100_000))
        wait_for_step(home / "one", 3)
        assert tonnage("stop", "one").returncode == 0
        done = following.result()
    assert done.returncode == 130
    assert "one stopped (UserStopped)" in done.stderr
    assert "interrupted" not in done.stderr


def test_runs_are_deleted(inside: Run, spec: str, home: Path) -> None:
    """By name and by age; one that is under way or lost stays, checkpoints go alone where that is asked."""
    ends = {"old": 40, "new": 1, "lost": None}
    for name, days in ends.items():
        folder = RunFolder(home / name)
        folder.create(load_spec(Path(spec).read_text(), where=spec))
        (folder.checkpoints / "step-00000001").mkdir()
        if days is not None:
            folder.record(EventKind.SUCCEEDED, who="supervisor", at=datetime.now(UTC) - timedelta(days=days))
        else:
            folder.record(EventKind.STARTED, who="supervisor", at=datetime.now(UTC) - timedelta(days=40))
    assert inside("runs", "rm").returncode == 2
    assert inside("runs", "rm", "lost", "-y").returncode == 2
    assert "old" in inside("runs", "rm", "--older-than", "30d", "--dry-run").stdout
    assert (home / "old").exists()
    assert inside("runs", "rm", "--older-than", "30d", "-y").returncode == 0
    assert sorted(path.name for path in home.iterdir()) == ["lost", "new"]
    assert inside("runs", "rm", "new", "--checkpoints", "-y").returncode == 0
    assert (home / "new" / "spec.json").exists()
    assert not list((home / "new" / "checkpoints").iterdir())
    assert inside("runs", "rm", "--keep", "1", "-y").returncode == 0
    assert (home / "new").exists()
    gone = inside("runs", "rm", "new", "-y")
    assert (gone.returncode, gone.stderr) == (0, "1 folder deleted\n")
    assert sorted(path.name for path in home.iterdir()) == ["lost"]


def test_stop_and_resume(tonnage: Run, spec: str, home: Path) -> None:
    """Detached, stopped with a checkpoint, resumed to its end: no step is lost."""
    assert tonnage("run", spec, "-d", env=pretend(steps=100_000)).returncode == 0
    wait_for_step(home / "one", 5)
    stopped = json.loads(tonnage("stop", "one", "-o", "json").stdout)["runs"][0]
    assert (stopped["state"], stopped["reason"]) == ("stopped", "UserStopped")
    assert "verified" in stopped["message"]
    assert stopped["checkpoint_step"] == stopped["step"]
    done = tonnage("resume", "one", "-o", "json", env=pretend(steps=stopped["step"] + 4))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["runs"][0]["step"] == stopped["step"] + 4
    steps = [json.loads(line)["step"] for line in (home / "one" / "metrics.jsonl").read_text().splitlines()]
    assert steps == list(range(1, stopped["step"] + 5))


@pytest.mark.slow
def test_ctrl_c_leaves_it_running(tmp_path: Path, environment: dict[str, str], spec: str, home: Path) -> None:
    """SIGINT to `tonnage run` and its whole terminal: the run goes on, and the way back is told."""
    watching = subprocess.Popen(
        [sys.executable, "-m", "tonnage", "run", spec], env=environment | pretend(steps=100_000), cwd=tmp_path,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    wait_for_step(home / "one", 3)
    os.killpg(watching.pid, signal.SIGINT)
    _, said = watching.communicate(timeout=LONGEST_S)
    assert watching.returncode == 0
    assert "tonnage logs -f one" in said
    assert is_held(home / "one" / "supervisor.pid")
    assert RunFolder(home / "one").state().state is RunStatus.RUNNING


@pytest.mark.slow
def test_a_lost_run_is_seen_and_recovered(tonnage: Run, spec: str, home: Path) -> None:
    """The supervisor killed: `ps` lists the run as lost; `resume` takes it to its end."""
    tonnage("run", spec, "-d", env=pretend(steps=100_000))
    wait_for_step(home / "one", 5)
    os.kill(int((home / "one" / "supervisor.pid").read_text()), signal.SIGKILL)
    end = time.monotonic() + LONGEST_S
    while is_held(home / "one" / "workers.lock") and time.monotonic() < end:
        time.sleep(0.05)
    (lost,) = json.loads(tonnage("ps", "-o", "json").stdout)["runs"]
    assert (lost["state"], lost["reason"]) == ("lost", "SupervisorLost")
    done = tonnage("resume", "one", env=pretend(steps=lost["checkpoint_step"] + 3))
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_a_limit_is_exit_code_four(tonnage: Run, spec: str, home: Path) -> None:
    """Stopped by --max-cost: exit 4, saved; the used-up limit refuses a resume that does not raise it."""
    limits = ("--max-cost", "0.05", "--usd-per-hour", "36", "--billing-quantum", "1s")
    done = tonnage("run", spec, *limits, "-o", "json", env=pretend(steps=100_000))
    assert done.returncode == 4, done.stderr
    (run,) = json.loads(done.stdout)["runs"]
    assert (run["state"], run["reason"]) == ("stopped", "CostLimit")
    assert run["spent_usd"] <= 0.05 + 1 / 3600 * 36
    refused = tonnage("resume", "one")
    assert refused.returncode == 4
    assert "used up" in refused.stderr
    kinds = [event.kind for event in RunFolder(home / "one").events()]
    assert EventKind.GUARD in kinds


@pytest.mark.parametrize(
    ("state", "reason", "code"),
    [
        (RunStatus.SUCCEEDED, None, 0),
        (RunStatus.FAILED, RunReason.DIVERGED, 1),
        (RunStatus.FAILED, RunReason.BAD_INPUT, 2),
        (RunStatus.STOPPED, RunReason.COST_LIMIT, 4),
        (RunStatus.STOPPED, RunReason.TIME_LIMIT, 4),
        (RunStatus.STOPPED, RunReason.IDLE, 4),
        (RunStatus.STOPPED, RunReason.PREEMPTED, 5),
        (RunStatus.STOPPED, RunReason.USER_STOPPED, 130),
        (RunStatus.CANCELLED, RunReason.USER_CANCELLED, 130),
        (RunStatus.LOST, RunReason.SUPERVISOR_LOST, 1),
    ],
)
def test_exit_codes(state: RunStatus, reason: RunReason | None, code: int) -> None:
    """How a run ended is its exit code."""
    assert exit_code(RunState(state=state, reason=reason)) == code


def wait_for_step(folder: Path, step: int) -> None:
    """Until the run has logged it."""
    end = time.monotonic() + LONGEST_S
    path = folder / "metrics.jsonl"
    while not path.exists() or f'"step": {step},' not in path.read_text():
        assert time.monotonic() < end
        time.sleep(0.02)
