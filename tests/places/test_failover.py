"""A run that its place loses goes on elsewhere, from its checkpoint, with the same losses; never two write to it."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tonnage.api.failover import first_that_can
from tonnage.errors import PlanRefused
from tonnage.places.contract import home_mark
from tonnage.runs import RunFolder
from tonnage.settings import current_settings
from tonnage.testing import slurm, sshd
from tonnage.testing.runs import run_spec

NEEDED = pytest.mark.skipif(
    bool(slurm.missing_binaries() or sshd.missing_binaries()), reason="needs slurm-wlm, munge and openssh-server"
)
PLACE = """[places.cluster]
kind = "slurm"
cores = 1
memory_gib = 2
time_limit_minutes = 10
grace_s = 20
usd_per_hour = 6.0

"""
FILE = "sequence-classification.tonnage.yaml"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[slurm.SlurmCluster]:
    with slurm.slurm_cluster(tmp_path_factory.mktemp("slurm")) as found:
        yield found


@pytest.fixture
def desk(tmp_path: Path, cluster: slurm.SlurmCluster, box: Callable[..., str], desk_at: Callable[..., Any]) -> Any:
    return desk_at(tmp_path / "here", PLACE + box(tmp_path / "there"), cluster.environ)


def there(desk: Any, name: str) -> RunFolder:
    """The run's folder on the SSH machine."""
    return RunFolder(desk.home.parent / "there" / "runs" / home_mark(desk.home / "runs") / name)


def losses(folder: RunFolder) -> dict[int, float]:
    return {line["step"]: line["loss"] for line in map(json.loads, folder.metrics_file.read_text().splitlines())}


def strike(folder: RunFolder) -> None:
    """SIGKILL to the supervisor of a run and all below it: as when its machine is gone."""
    pid = int(folder.pid_file.read_text())
    for one in [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]:
        with contextlib.suppress(psutil.Error):
            one.send_signal(signal.SIGKILL)


@NEEDED
@pytest.mark.slow
def test_slurm_then_ssh_then_here(desk: Any, cluster: slurm.SlurmCluster, tmp_path: Path) -> None:
    """A real model, killed on Slurm, gone on with by SSH, killed there, finished here: every loss as undisturbed."""
    pytest.importorskip("torch")
    del desk.environ["TONNAGE_WORKER"]
    desk.tonnage("init", "sequence-classification", "--out", str(tmp_path / "st"))
    file = tmp_path / "st" / FILE
    text = file.read_text().replace("log_every: 5", "log_every: 1").replace("epochs: 3", "epochs: 60")
    text = text.replace("  # device: cuda", "  threads: 1\n  # device: cuda")  # others sum in another order
    file.write_text(text.replace("every_steps: 50", "every_steps: 20"))
    desk.tonnage("run", str(file), "--name", "plain")
    plain, folder = desk.folder("plain"), desk.folder("moved")
    desk.tonnage("run", str(file), "--name", "moved", "--on", "cluster", "-d")
    desk.wait(lambda: (folder.state().checkpoint_step or 0) >= 100)
    [job] = cluster.command("squeue", "-h", "-o", "%A").splitlines()
    assert "is running" in desk.tonnage("resume", "moved", "--on", "box", code=2)
    cluster.command("scancel", job)
    desk.wait(lambda: "cancelled" in desk.tonnage("ps", "-a"))
    desk.tonnage("resume", "moved", "--on", "box", "-d")
    desk.wait(lambda: (there(desk, "moved").state().checkpoint_step or 0) >= 400)
    strike(there(desk, "moved"))
    assert "lost" in desk.tonnage("ps")
    desk.tonnage("resume", "moved", "--on", "local")
    assert folder.state().state.value == "succeeded"
    assert folder.state().attempt == 3
    assert folder.state().lost_steps <= 20
    assert losses(folder) == losses(plain)
    assert not there(desk, "moved").path.exists()
    first, last = (json.loads(one.result_file.read_text())["metrics"] for one in (plain, folder))
    assert first == last


@pytest.mark.skipif(bool(slurm.missing_binaries()), reason="needs slurm-wlm and munge")
@pytest.mark.slow
def test_slurm_then_here(cluster: slurm.SlurmCluster, tmp_path: Path, desk_at: Callable[..., Any]) -> None:
    """All processes of the job die at once: the run is lost there, and goes on here from its newest checkpoint."""
    desk = desk_at(tmp_path / "here", PLACE, cluster.environ)
    desk.pretend(steps=150, step_s=0.04, checkpoint_every=5)
    desk.tonnage("run", desk.spec("struck"), "--on", "cluster", "-d")
    folder = desk.folder("struck")
    desk.wait(lambda: (folder.state().checkpoint_step or 0) > 20)
    strike(folder)
    desk.wait(lambda: folder.state().state.ended or "lost" in desk.tonnage("ps"))
    desk.tonnage("resume", "struck", "--on", "local")
    state = folder.state()
    assert (state.state.value, state.attempt, state.lost_steps <= 5) == ("succeeded", 2, True)
    assert losses(folder) == {step: 1 / step for step in range(1, 151)}
    assert cluster.command("squeue", "-h") == ""


@pytest.mark.skipif(bool(sshd.missing_binaries()), reason="needs openssh-server")
@pytest.mark.slow
def test_on_plan(tmp_path: Path, box: Callable[..., str], desk_at: Callable[..., Any]) -> None:
    """The first option that a place has is carried out there; the option and its cost are said before."""
    pytest.importorskip("torch")
    desk = desk_at(tmp_path / "here", "", {})
    del desk.environ["TONNAGE_WORKER"]
    desk.tonnage("init", "mlp", "--out", str(tmp_path / "st"))
    file = str(tmp_path / "st" / "mlp.tonnage.yaml")
    chosen = json.loads(desk.tonnage("plan", file, "-o", "json"))["options"][4]
    machine = f'machine = "{chosen["provider"]}/{chosen["instance_type"]}"\nregion = "{chosen["region"]}"\n'
    bought = f'purchase = "{chosen["purchase"]}"\n'
    (desk.home / "places.toml").write_text(box(tmp_path / "there") + machine + bought)
    following = desk.begin("run", file, "--name", "planned", "--on", "plan")
    said = following.communicate(timeout=300)[1]
    assert following.returncode == 0, said
    assert f"option {chosen['rank']} of the plan: {chosen['instance_type']}" in said
    folder = desk.folder("planned")
    assert (folder.state().state.value, folder.state().place) == ("succeeded", "box")
    assert folder.spec().guard.usd_per_hour == pytest.approx(chosen["usd_per_instance_hour"] * chosen["count"])


@NEEDED
@pytest.mark.slow
def test_on_any(desk: Any) -> None:
    """Started where it can be; struck there while it is followed, it goes on at the next place by itself."""
    text = (desk.home / "places.toml").read_text()
    (desk.home / "places.toml").write_text(text.replace("cores = 1\nmemory_gib = 2", "cores = 99\nmemory_gib = 2"))
    desk.pretend(steps=150, step_s=0.04, checkpoint_every=5)
    following = desk.begin("run", desk.spec("free"), "--on", "any")
    desk.wait(lambda: following.poll() is not None or (there(desk, "free").state().checkpoint_step or 0) > 20)
    assert following.poll() is None, following.communicate()
    strike(there(desk, "free"))
    said = following.communicate(timeout=120)[1]
    folder = desk.folder("free")
    assert following.returncode == 0, said
    assert "free was lost at box" in said
    assert "free goes on at local" in said
    assert (folder.state().attempt, folder.state().lost_steps <= 5) == (2, True)
    assert losses(folder) == {step: 1 / step for step in range(1, 151)}


@NEEDED
@pytest.mark.slow
def test_a_place_that_does_not_answer_is_left(desk: Any, ssh_machine: sshd.SSHServer) -> None:
    """The client goes on here from what it has; the old place's work is never taken: an orphan once it answers."""
    desk.pretend(steps=4000, step_s=0.02, checkpoint_every=5)
    desk.tonnage("run", desk.spec("cut-off"), "--on", "box", "-d")
    desk.wait(lambda: (there(desk, "cut-off").state().checkpoint_step or 0) > 5)
    desk.tonnage("places", "collect", "cut-off")
    at = max(int(one.name.removeprefix("step-")) for one in desk.folder("cut-off").checkpoints.iterdir())
    ssh_machine.end()
    try:
        assert "--on PLACE" in desk.tonnage("resume", "cut-off", code=1)
        desk.pretend(steps=at + 20)
        desk.tonnage("resume", "cut-off", "--on", "local")
    finally:
        ssh_machine.start()
    assert desk.folder("cut-off").state().state.value == "succeeded"
    assert max(losses(desk.folder("cut-off"))) == at + 20
    assert "submitted again" in desk.tonnage("places", "orphans", "--end", "-o", "json")
    desk.wait(lambda: json.loads(desk.tonnage("places", "orphans", "-o", "json"))["orphans"] == [])
    assert desk.folder("cut-off").state().state.value == "succeeded"


@pytest.mark.heavy
def test_a_supervisor_that_is_superseded_writes_nothing_more(tmp_path: Path) -> None:
    """The token in place.json changes under it: its workers die, the journal has no line of it, its exit is quiet."""
    folder = RunFolder(tmp_path / "runs" / "one")
    folder.create(run_spec("one"))
    folder.job_file.write_text(json.dumps({"runner": "local", "argv": ["sleep", "600"]}))
    folder.place_file.write_text('{"token": "old"}')
    command = [sys.executable, "-m", "tonnage.supervisor", str(folder.path)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            while "started" not in (folder.journal_file.read_text() if folder.journal_file.exists() else ""):
                assert process.poll() is None
            below = psutil.Process(process.pid).children(recursive=True)
            before = folder.journal_file.read_bytes()
            folder.place_file.write_text('{"token": "new"}')
            said = process.communicate(timeout=30)[1]
        finally:
            process.kill()
    assert process.returncode == 0, said
    assert "submitted again" in said
    assert folder.journal_file.read_bytes() == before
    assert not any(one.is_running() and one.status() != psutil.STATUS_ZOMBIE for one in below)


def test_where_none_can_each_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every place's reason in one refusal, this machine's among them."""
    monkeypatch.setenv("TONNAGE_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tonnage.api.local_place.free_disk_gib", lambda _: 0.0)
    (tmp_path / "places.toml").write_text(
        '[places.a]\nkind = "ssh"\nhost = "127.0.0.1"\nport = 1\nfolder = "/t"\ncores = 1\nmemory_gib = 1\n'
    )
    with pytest.raises(PlanRefused, match=r"a: .*cannot be reached.*local: .*are free"):
        first_that_can(current_settings(), RunFolder(tmp_path / "runs" / "x"))
