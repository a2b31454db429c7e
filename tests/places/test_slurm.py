"""Runs on a real Slurm of two nodes with eight pretended GPUs each, started here."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tonnage.runs import RunFolder, RunSpec
from tonnage.runs.spec import DataSource, DataSpec, dump_spec
from tonnage.testing.slurm import SlurmCluster, missing_binaries, slurm_cluster

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(missing_binaries()), reason="apt-get install --no-install-recommends slurm-wlm munge"),
]
ROOT = Path(__file__).parents[2]
LONGEST_S = 60.0
PLACE = """[places.cluster]
kind = "slurm"
gpus = 2
gpu = "h100"
gpu_memory_gib = 80
cores = 1
memory_gib = 4
time_limit_minutes = 10
grace_s = 15
usd_per_hour = 6.0
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    with slurm_cluster(tmp_path_factory.mktemp("slurm")) as found:
        yield found


class Desk:
    """A home with a place, and the command line at it."""

    def __init__(self, home: Path, cluster: SlurmCluster) -> None:
        self.home, self.cluster = home, cluster
        self.environ = {
            **os.environ, **cluster.environ, "PYTHONPATH": str(ROOT / "src"), "TONNAGE_HOME": str(home),
            "TONNAGE_WORKER": "tonnage.testing.worker", "MLFLOW_TRACKING_URI": "none",
        }  # fmt: skip
        (home / "rows.csv").write_text("a,b\n1,2\n")
        (home / "places.toml").write_text(PLACE)

    def run(self, name: str, *words: str, **pretence: Any) -> RunFolder:
        data = DataSpec(train=DataSource(location=str(self.home / "rows.csv"), format="csv"))
        (self.home / "spec.json").write_text(dump_spec(RunSpec(name=name, task="mlp", data=data)))
        self.environ["TONNAGE_FAKE"] = json.dumps(pretence)
        self.tonnage("run", str(self.home / "spec.json"), "--on", "slurm:cluster", "-d", *words)
        return self.folder(name)

    def folder(self, name: str) -> RunFolder:
        return RunFolder(self.home / "runs" / name)

    def tonnage(self, *words: str, code: int = 0) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "tonnage", *words], env=self.environ, capture_output=True, text=True, check=False
        )
        assert done.returncode == code, done.stderr
        return done.stdout

    def wait(self, true: Callable[[], bool]) -> None:
        until = time.monotonic() + LONGEST_S
        while not true():
            assert time.monotonic() < until, self.cluster.command("squeue", "--states=all")
            time.sleep(0.2)

    def reach(self, folder: RunFolder, state: str) -> None:
        self.wait(lambda: folder.state().state.value == state)

    def kill_node(self, name: str) -> None:
        """The node is lost: its daemon and all that it started. The controller learns it."""
        self.cluster.nodes[name].kill()
        self.cluster.nodes[name].wait()
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                held = process.environ()
                here = held.get("SLURM_CONF") == self.cluster.environ["SLURM_CONF"]
                if here and held.get("SLURMD_NODENAME") == name:
                    above = process.parent()
                    found += [process, *([above] if above and "slurmstepd" in above.name() else [])]
        # Slurm's own first: a step's daemon that outlives its script reports the script's end, not the node's.
        for process in sorted(set(found), key=lambda one: "slurmstepd" not in one.name()):
            with contextlib.suppress(psutil.Error):
                process.kill()
        self.cluster.command("scontrol", "update", f"NodeName={name}", "State=DOWN", "Reason=killed")

    def jobs(self, folder: RunFolder) -> list[str]:
        """Ids of all jobs, ended ones too, that bear the run's name."""
        lines = self.cluster.command("squeue", "-h", "--states=all", "-o", "%A|%k").splitlines()
        return [line.split("|")[0] for line in lines if line.endswith(":" + folder.path.name)]


@pytest.fixture
def desk(tmp_path: Path, cluster: SlurmCluster, monkeypatch: pytest.MonkeyPatch) -> Desk:
    monkeypatch.setenv("SLURM_CONF", cluster.environ["SLURM_CONF"])
    return Desk(tmp_path, cluster)


def losses(folder: RunFolder) -> dict[int, float]:
    """The newest loss of each step."""
    return {line["step"]: line["loss"] for line in map(json.loads, folder.metrics_file.read_text().splitlines())}


def test_a_run_is_carried_out(desk: Desk) -> None:
    """Submitted once, run on a node with its GPUs, followed to its end by its journal; Slurm calls it COMPLETED."""
    folder = desk.run("plain", steps=20, step_s=0.02)
    desk.tonnage("logs", "-f", "plain")
    assert folder.state().state.value == "succeeded"
    [job] = desk.jobs(folder)
    desk.wait(lambda: "JobState=COMPLETED" in desk.cluster.command("scontrol", "show", "job", "-o", job))


def test_stop_saves_and_resume_goes_on(desk: Desk) -> None:
    """A stopped run has saved; `resume` is another submission, and the older job's script could do nothing."""
    folder = desk.run("halted", steps=400, step_s=0.05)
    desk.wait(lambda: (folder.state().checkpoint_step or 0) > 0)
    desk.tonnage("stop", "halted")
    assert folder.state().state.value == "stopped"
    desk.environ["TONNAGE_FAKE"] = json.dumps({"steps": 40, "step_s": 0.01})
    desk.tonnage("resume", "halted")
    assert folder.state().state.value == "succeeded"
    assert json.loads(folder.place_file.read_text())["number"] == 2
    assert len(desk.jobs(folder)) == 2


def test_preempted_requeued_and_the_same_curve(desk: Desk) -> None:
    """A job of a higher partition takes both nodes: the run saves, is requeued and resumes; its losses are the same."""
    pretence = {"steps": 120, "step_s": 0.08, "checkpoint_every": 50}
    plain = desk.run("undisturbed", **(pretence | {"step_s": 0.005}))
    folder = desk.run("preempted", **pretence)
    desk.wait(lambda: folder.state().step > 5)
    urgent = desk.cluster.command(
        "sbatch", "--parsable", "-p", "urgent", "-N2", "--exclusive", "-o", "/dev/null", "--wrap", "sleep 4"
    )
    desk.reach(folder, "restarting")
    assert folder.state().reason == "Preempted"
    assert "preempted" not in desk.tonnage("places", "orphans")
    desk.reach(folder, "succeeded")
    desk.reach(plain, "succeeded")
    assert losses(folder) == losses(plain)
    assert folder.state().attempt == 2
    assert folder.state().lost_steps == 0
    assert len(desk.jobs(folder)) == 1
    assert "COMPLETED" in desk.cluster.command("scontrol", "show", "job", "-o", urgent)


KILLED = """
import os, signal, sys
from tonnage.places import record
from tonnage.places.slurm import executor
point = sys.argv.pop(1)
def die(*_): os.kill(os.getpid(), signal.SIGKILL)
if point == "before the record": executor.write_submission = die
if point == "before sbatch": executor.Slurm._sent = die
if point == "after sbatch":
    sent = executor.Slurm._sent
    executor.Slurm._sent = lambda *given: (sent(*given), die())
if point == "before submit": executor.Slurm.submit = die
from tonnage.cli import main
main()
"""


@pytest.mark.parametrize("point", ["before submit", "before the record", "before sbatch", "after sbatch"])
def test_a_killed_client(point: str, desk: Desk) -> None:
    """Killed at any point of submit: never a second job, no orphan, and `resume` goes on where nothing was sent."""
    name = point.replace(" ", "-")
    data = DataSpec(train=DataSource(location=str(desk.home / "rows.csv"), format="csv"))
    (desk.home / "spec.json").write_text(dump_spec(RunSpec(name=name, task="mlp", data=data)))
    desk.environ["TONNAGE_FAKE"] = json.dumps({"steps": 20, "step_s": 0.05})
    words = ["run", str(desk.home / "spec.json"), "--on", "cluster", "-d"]
    died = subprocess.run(
        [sys.executable, "-c", KILLED, point, *words], env=desk.environ, capture_output=True, check=False
    )
    assert died.returncode == -signal.SIGKILL, died.stderr
    folder = desk.folder(name)
    if point != "after sbatch":
        desk.tonnage("ps")
        assert folder.state().state.value == "lost"
        desk.tonnage("resume", name)
    desk.reach(folder, "succeeded")
    assert len(desk.jobs(folder)) == 1
    assert json.loads(desk.tonnage("places", "orphans", "-o", "json"))["orphans"] == []


def test_orphans_are_found_and_ended(desk: Desk) -> None:
    """The job of a run whose folder was removed is an orphan; `--end` ends it, and no other home's."""
    folder = desk.run("removed", steps=2000, hang_at=8)  # one that writes would fail by itself
    desk.wait(lambda: (folder.state().checkpoint_step or 0) > 0)
    [job] = desk.jobs(folder)
    folder.path.rename(desk.home / "elsewhere")
    [found] = json.loads(desk.tonnage("places", "orphans", "--end", "-o", "json"))["orphans"]
    assert (found["job_id"], found["why"]) == (job, "its run was removed")
    desk.wait(lambda: "JobState=CANCELLED" in desk.cluster.command("scontrol", "show", "job", "-o", job))
    assert json.loads(desk.tonnage("places", "orphans", "-o", "json"))["orphans"] == []


def test_taken_out_of_the_queue(desk: Desk) -> None:
    """A run that waits is stopped without a job left; one cancelled by an administrator ends as cancelled."""
    hold = desk.cluster.command(
        "sbatch", "--parsable", "-p", "urgent", "-N1", "--exclusive", "--nodelist=gpu1", "-o", "/dev/null", "--wrap",
        "sleep 60",
    )  # fmt: skip
    (desk.home / "places.toml").write_text(
        PLACE.replace("gpus = 2", 'gpus = 2\npartition = "short"').replace("= 10", "= 1")
    )
    mine, theirs = desk.run("waits", steps=5), desk.run("waits-too", steps=5)
    assert mine.state().state.value == "pending"
    desk.tonnage("stop", "waits")
    assert mine.state().state.value == "stopped"
    desk.cluster.command("scancel", *desk.jobs(theirs))
    desk.tonnage("ps")
    assert (theirs.state().state.value, theirs.state().attempt) == ("cancelled", 0)
    desk.cluster.command("scancel", hold)


def test_the_time_limit_of_a_job_is_not_that_of_a_run(desk: Desk) -> None:
    """Slurm's `--signal` comes before the limit of one minute: the run saves, is requeued, and goes on."""
    (desk.home / "places.toml").write_text(
        PLACE.replace("time_limit_minutes = 10", "time_limit_minutes = 1").replace("grace_s = 15", "grace_s = 20")
    )
    folder = desk.run("long", steps=700, step_s=0.1, checkpoint_every=1000)
    until = time.monotonic() + 200
    while not folder.state().state.ended:
        assert time.monotonic() < until
        time.sleep(0.5)
    assert folder.state().state.value == "succeeded"
    assert folder.state().attempt >= 2
    assert folder.state().lost_steps == 0
    assert losses(folder) == {step: 1 / step for step in range(1, 701)}
    assert len(desk.jobs(folder)) == 1


def test_cancelled_by_an_administrator_while_it_runs(desk: Desk) -> None:
    """`scancel` ends the job: it saves, and does not put itself into the queue again."""
    folder = desk.run("unwanted", steps=2000, step_s=0.05)
    desk.wait(lambda: (folder.state().checkpoint_step or 0) > 0)
    [job] = desk.jobs(folder)
    desk.cluster.command("scancel", job)
    desk.wait(lambda: "JobState=CANCELLED" in desk.cluster.command("scontrol", "show", "job", "-o", job))
    desk.tonnage("ps")
    assert (folder.state().state.value, folder.state().attempt) == ("cancelled", 1)
    assert folder.state().checkpoint_step == folder.state().step


@pytest.mark.parametrize(
    ("change", "said"),
    [("gpus = 9", "8 GPUs"), ('gpu = "a100"', "type 'a100'"), ("time_limit_minutes = 90", "over the limit"),
     ('partition = "nope"', "no partition"), ("memory_gib = 100", "GiB")],
)  # fmt: skip
def test_check_refuses(change: str, said: str, desk: Desk) -> None:
    """What the cluster lacks ends it with exit code 4 before anything is written or started."""
    key = change.split(" ")[0]
    kept = [line for line in PLACE.splitlines() if not line.startswith(key + " ")]
    (desk.home / "places.toml").write_text("\n".join([*kept, change]) + "\n")
    assert said in desk.tonnage("places", "check", "cluster", code=4)
    with pytest.raises(AssertionError, match=said):
        desk.run("refused", steps=1)
    assert not desk.folder("refused").path.exists()


def test_a_lost_node(desk: Desk) -> None:
    """All processes of the node die without a word: Slurm requeues the job, and the run goes on from its checkpoint."""
    folder = desk.run("orphaned", steps=150, step_s=0.05, checkpoint_every=5)
    desk.wait(lambda: (folder.state().checkpoint_step or 0) > 5)
    [job] = desk.jobs(folder)
    node = desk.cluster.command("squeue", "-h", "-j", job, "-o", "%N")
    desk.kill_node(node)
    desk.reach(folder, "succeeded")
    assert (folder.state().attempt, folder.state().lost_steps <= 5) == (2, True)
    assert len(losses(folder)) == 150
