"""Runs on a machine behind a real SSH server: cuts, lost servers, full disks, changed keys, wrong clocks."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tonnage.places.contract import home_mark
from tonnage.places.file import SSHPlace
from tonnage.places.ssh.executor import SSHMachine
from tonnage.runs import RunFolder
from tonnage.testing.places import PlaceTrial
from tonnage.testing.sshd import SSHServer, missing_binaries

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(missing_binaries()), reason="apt-get install --no-install-recommends openssh-server"),
]


@pytest.fixture(autouse=True)
def reachable(ssh_machine: SSHServer) -> Iterator[None]:
    """The server as it was, whatever a test did to it."""
    yield
    ssh_machine.trust()
    if ssh_machine.process is None:
        ssh_machine.start()


@pytest.fixture
def desk(tmp_path: Path, box: Callable[..., str], desk_at: Callable[..., Any]) -> Iterator[Any]:
    found = desk_at(tmp_path / "here", box(tmp_path / "there"))
    yield found
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if str(tmp_path) in " ".join(process.cmdline()):
                process.kill()


def there(desk: Any, name: str) -> RunFolder:
    """The run's folder on the machine."""
    return RunFolder(desk.home.parent / "there" / "runs" / home_mark(desk.home / "runs") / name)


def steps_printed(folder: RunFolder) -> list[str]:
    return [line for line in folder.log_file.read_text().splitlines() if line.startswith("step ")]


def test_the_connection_breaks_while_a_run_is_followed(desk: Any, ssh_machine: SSHServer) -> None:
    """ConnectionCut five times, and the client's own ssh killed: the run does not notice, and every line comes once."""
    desk.pretend(steps=300, step_s=0.03)
    following = desk.begin("run", desk.spec("followed"), "--on", "box")
    desk.wait(lambda: there(desk, "followed").log_file.exists())
    for turn in range(5):
        time.sleep(0.7)
        if turn % 2:
            ssh_machine.cut()
        else:
            subprocess.run(["pkill", "-9", "-P", str(following.pid), "-x", "ssh"], check=False)
    _, said = following.communicate(timeout=90)
    assert following.returncode == 0, said
    assert steps_printed(desk.folder("followed")) == [f"step {step}" for step in range(1, 301)]
    assert desk.folder("followed").state().attempt == 1
    assert said.count("step 300\n") == 1


def test_the_server_is_gone_for_a_while(desk: Any, ssh_machine: SSHServer) -> None:
    """The run goes on without it; `ps` says that the place does not answer; later everything is there."""
    desk.pretend(steps=120, step_s=0.03)
    desk.tonnage("run", desk.spec("alone"), "--on", "box", "-d")
    desk.wait(lambda: there(desk, "alone").state().step > 3)
    ssh_machine.end()
    told = subprocess.run(
        [sys.executable, "-m", "tonnage", "ps"], env=desk.environ, capture_output=True, text=True, check=True
    )
    assert "cannot be reached" in told.stderr
    assert not desk.folder("alone").state().state.ended
    desk.wait(lambda: there(desk, "alone").state().state.ended)
    ssh_machine.start()
    desk.tonnage("logs", "-f", "alone")
    assert desk.folder("alone").state().state.value == "succeeded"
    assert json.loads(desk.folder("alone").result_file.read_text())["steps"] == 120


def test_an_upload_that_is_cut_goes_on(tmp_path: Path, ssh_machine: SSHServer) -> None:
    """150 MB of rows, cut three times on their way: no byte is sent again that has arrived, and the hash is right."""
    place = SSHPlace(
        kind="ssh", host="127.0.0.1", port=ssh_machine.port, key=str(ssh_machine.key),
        known_hosts=str(ssh_machine.known_hosts), folder=str(tmp_path / "there"), python=sys.executable, cores=1,
        memory_gib=1, share=True,
    )  # fmt: skip
    trial = PlaceTrial(executor=SSHMachine(name="box", place=place), home=tmp_path / "here")
    folder = trial.write("large")
    rows = Path(folder.spec().data.train.location)
    rows.write_bytes(os.urandom(150 << 20))
    sizes: list[int] = []
    done = threading.Event()

    def cut() -> None:
        cuts = 0
        while not done.is_set():
            parts = list((tmp_path / "there" / "objects").glob("*.part"))
            sizes.extend(part.stat().st_size for part in parts[:1] if part.exists())
            if cuts < 3 and sizes and sizes[-1] > (cuts + 1) * (30 << 20):
                ssh_machine.cut()
                cuts += 1
            time.sleep(0.002)

    thread = threading.Thread(target=cut)
    thread.start()
    try:
        trial.start(folder, steps=2)
    finally:
        done.set()
        thread.join()
    assert max(sizes) > 90 << 20
    large = [size for size in sizes if size > 8 << 20]
    assert large == sorted(large)  # it never began anew
    copy = there_of(trial, folder) / "inputs" / str(rows).lstrip("/")
    assert copy.read_bytes() == rows.read_bytes()
    trial.executor.teardown(folder)


def there_of(trial: PlaceTrial, folder: RunFolder) -> Path:
    return trial.executor.folder_there(folder).path


def test_the_machine_loses_the_supervisor(desk: Any) -> None:
    """Killed with all it started: the run is lost, `resume` goes on from its checkpoint, with every loss in place."""
    desk.pretend(steps=150, step_s=0.03, checkpoint_every=5)
    desk.tonnage("run", desk.spec("struck"), "--on", "box", "-d")
    desk.wait(lambda: (there(desk, "struck").state().checkpoint_step or 0) > 10)
    pid = int(there(desk, "struck").pid_file.read_text())
    family = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
    for one in family:
        with contextlib.suppress(psutil.Error):
            one.send_signal(signal.SIGKILL)
    assert "lost" in desk.tonnage("ps")
    desk.tonnage("resume", "struck")
    folder = desk.folder("struck")
    assert (folder.state().state.value, folder.state().attempt) == ("succeeded", 2)
    newest = {line["step"]: line["loss"] for line in map(json.loads, folder.metrics_file.read_text().splitlines())}
    assert newest == {step: 1 / step for step in range(1, 151)}


def test_stop_resume_collect_teardown(desk: Any) -> None:
    """By the commands a user has; at the end nothing of the run is on the machine."""
    desk.pretend(steps=4000, step_s=0.02)
    desk.tonnage("run", desk.spec("whole"), "--on", "box", "-d")
    desk.wait(lambda: (there(desk, "whole").state().checkpoint_step or 0) > 0)
    assert desk.tonnage("places", "exec", "whole", "cat", "place.json") == there(desk, "whole").place_file.read_text()
    desk.tonnage("stop", "whole")
    assert desk.folder("whole").state().state.value == "stopped"
    desk.pretend(steps=(desk.folder("whole").state().step or 0) + 5)
    desk.tonnage("resume", "whole")
    assert desk.folder("whole").state().state.value == "succeeded"
    assert any(desk.folder("whole").checkpoints.iterdir())
    desk.tonnage("places", "collect", "whole", "--teardown")
    assert not there(desk, "whole").path.exists()
    assert json.loads(desk.tonnage("places", "orphans", "-o", "json"))["orphans"] == []


def test_two_clients_start_one_run_once(desk: Any) -> None:
    """Two clients that do not see each other's locks send one submission at the same moment: one supervisor."""
    desk.pretend(steps=60, step_s=0.02)
    name = "twice"
    trial = (
        "import sys, contextlib\n"
        "from tonnage.places.ssh import executor\n"
        "executor.submitting = lambda folder: contextlib.nullcontext()\n"
        "from tonnage.settings import current_settings\n"
        "from tonnage.api.placing import executor_at\n"
        "from tonnage.runs.folder import RunFolder\n"
        "from tonnage.runners import make_runner\n"
        "folder = RunFolder(current_settings().home / 'runs' / 'twice')\n"
        "place = executor_at(current_settings(), 'box')\n"
        "import os\n"
        "runner = make_runner('local', cores=1, worker='tonnage.testing.worker', python=place.place.python)\n"
        "job = runner.render(folder.spec(), place.folder_there(folder))\n"
        "print(place.submit(place.render(folder.spec(), job, folder, number=1), folder))\n"
    )
    from tonnage.runs.spec import load_spec

    spec = load_spec(Path(desk.spec(name)).read_text(), where="spec")
    desk.folder(name).create(spec)
    from tonnage.runs.journal import EventKind

    desk.folder(name).record(EventKind.SUBMITTED, who="cli", name=name, place="box")
    clients = [
        subprocess.Popen([sys.executable, "-c", trial], env=desk.environ, stdout=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    said = {client.communicate(timeout=60)[0].strip() for client in clients}
    assert [client.returncode for client in clients] == [0, 0, 0, 0]
    assert len(said) == 1
    desk.wait(lambda: there(desk, name).state().state.ended)
    assert there(desk, name).state().attempt == 1


@pytest.mark.parametrize("what", ["unreachable", "refused", "unknown", "changed", "no python", "clock"])
def test_check_says_what_stands_against_it(
    what: str, desk: Any, box: Callable[..., str], tmp_path: Path, ssh_machine: SSHServer
) -> None:
    """Exit code 4, the reason, the command that mends it; nothing is written or started."""
    changed: dict[str, Any] = {}
    said = {
        "unreachable": "cannot be reached", "refused": "refuses our key", "unknown": "is not known here",
            "changed": "has changed", "no python": "there is no /nowhere/python", "clock": "ahead of ours"
    }[what]  # fmt: skip
    if what == "unreachable":
        ssh_machine.end()
    if what == "refused":
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / "other")], check=True)
        changed["key"] = str(tmp_path / "other")
    if what == "unknown":
        ssh_machine.known_hosts.write_text("")
    if what == "changed":
        ssh_machine.end()
        ssh_machine.new_host_key()
        ssh_machine.start()
    if what == "no python":
        changed["python"] = "/nowhere/python"
    if what == "clock":
        (tmp_path / "ahead").mkdir()
        (tmp_path / "ahead" / "sitecustomize.py").write_text(
            "import time\n_now = time.time\ntime.time = lambda: _now() + 4000\n"
        )
        wrapped = tmp_path / "python"
        wrapped.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path}/ahead exec {sys.executable} "$@"\n')
        wrapped.chmod(0o755)
        changed["python"] = str(wrapped)
    (desk.home / "places.toml").write_text(box(tmp_path / "there", **changed))
    answer = desk.tonnage("places", "check", "box", code=4)
    assert said in answer
    assert "hint: " in answer
    desk.tonnage("run", desk.spec("refused"), "--on", "box", "-d", code=4)
    assert not desk.folder("refused").path.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="a small file system is mounted by root")
def test_a_full_disk(desk: Any, box: Callable[..., str], tmp_path: Path) -> None:
    """Found by `check`; where it fills up during submit, nothing is started, and with room `resume` starts it."""
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(small)], check=True)
    try:
        (desk.home / "places.toml").write_text(box(small / "there", free_gib=1))
        assert "0.00 GiB are free" in desk.tonnage("places", "check", "box", code=4)
        (desk.home / "places.toml").write_text(box(small / "there", free_gib=0))
        desk.pretend(steps=5)
        assert "No space left" in desk.tonnage("run", desk.spec("full"), "--on", "box", "-d", code=1)
        assert "lost" in desk.tonnage("ps")
        subprocess.run(["mount", "-o", "remount,size=200m", str(small)], check=True)
        desk.tonnage("resume", "full")
        assert desk.folder("full").state().state.value == "succeeded"
        assert desk.folder("full").state().attempt == 1
        desk.tonnage("places", "collect", "full", "--teardown")
    finally:
        subprocess.run(["umount", "-l", str(small)], check=True)
