"""kill -9 of the client at thirty random points of submit, follow, collect and teardown, at each kind of place."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tonnage.places.contract import home_mark
from tonnage.runs import EventKind, RunFolder
from tonnage.testing import slurm, sshd

pytestmark = pytest.mark.slow
POINTS = {"submit": 12, "follow": 6, "collect": 6, "teardown": 6}
SLURM = """[places.cluster]
kind = "slurm"
cores = 1
memory_gib = 1
time_limit_minutes = 10
grace_s = 15
"""
# Kills itself before the n-th thing that changes anything: a file opened to write, a rename, a program started.
KILLER = """
import os, signal, sys
at, seen = int(os.environ.pop("KILL_AT")), 0
WORDS = {"os.rename", "os.mkdir", "os.remove", "os.truncate", "os.posix_spawn", "subprocess.Popen", "shutil.rmtree"}
def count(event, given):
    global seen
    writes = event == "open" and isinstance(given[2], int) and given[2] & (os.O_WRONLY | os.O_RDWR)
    if event in WORDS or writes:
        seen += 1
        if seen == at:
            os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(count)
from tonnage.cli import main
try:
    main()
finally:
    if not at:
        with open(os.environ["COUNTED"], "w") as file:
            file.write(str(seen))
"""


class Client:
    """A user at one kind of place, whose `tonnage` may be killed."""

    def __init__(self, desk: Any, place: str | None) -> None:
        self.desk, self.place = desk, place

    def run(self, name: str, *words: str, at: int | None = None) -> int:
        """`tonnage run`, killed at a point; its exit code."""
        on = [] if self.place is None else ["--on", self.place]
        return self.call("run", self.desk.spec(name), *on, "-d", *words, at=at)

    def call(self, *words: str, at: int | None = None) -> int:
        """One command, with a point to be killed at; 0: counted."""
        start = ["-m", "tonnage"] if at is None else ["-c", KILLER]
        counted = str(self.desk.home / "counted")
        env = self.desk.environ | {"KILL_AT": str(at or 0), "COUNTED": counted}
        done = subprocess.run([sys.executable, *start, *words], env=env, capture_output=True, check=False)
        assert done.returncode in {0, 1, 2, 4, 130, -signal.SIGKILL}, done.stderr
        return done.returncode

    def points(self, *words: str) -> int:
        """How many points a command has."""
        assert self.call(*words, at=0) == 0
        return int((self.desk.home / "counted").read_text())

    def killed_in(self, seconds: float, *words: str) -> None:
        """One command, killed after a time."""
        process = subprocess.Popen(
            [sys.executable, "-m", "tonnage", *words], env=self.desk.environ, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def carried_out(self, name: str) -> RunFolder:
        """What a user does who finds a run as it was left: `ps`, `resume` where it is lost, or `run`."""
        folder = self.desk.folder(name)
        until = time.monotonic() + 90
        while not (folder.spec_file.exists() and folder.state().state.value == "succeeded"):
            assert time.monotonic() < until, folder.state()
            if not folder.path.exists():
                assert self.run(name) == 0
            listed = json.loads(self.desk.tonnage("ps", "--all", "-o", "json"))["runs"]
            [mine] = [one for one in listed if one["name"] == name]
            if mine["state"] in {"lost", "failed"} and self.call("resume", name, "-d"):
                self.desk.tonnage("places", "orphans", "--end")
            time.sleep(0.2)
        return folder


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[slurm.SlurmCluster]:
    with slurm.slurm_cluster(tmp_path_factory.mktemp("slurm")) as found:
        yield found


@pytest.fixture(
    params=[
        "local",
        pytest.param("ssh", marks=pytest.mark.skipif(bool(sshd.missing_binaries()), reason="no openssh-server")),
        pytest.param("slurm", marks=pytest.mark.skipif(bool(slurm.missing_binaries()), reason="no slurm-wlm")),
    ]
)
def client(
    request: pytest.FixtureRequest, tmp_path: Path, box: Callable[..., str], desk_at: Callable[..., Any]
) -> Client:
    if request.param == "local":
        return Client(desk_at(tmp_path / "here", ""), None)
    if request.param == "ssh":
        return Client(desk_at(tmp_path / "here", box(tmp_path / "there")), "box")
    return Client(desk_at(tmp_path / "here", SLURM, request.getfixturevalue("cluster").environ), "cluster")


def starts_of(client: Client, folder: RunFolder) -> int:
    """How often a worker of the run was started, counted where it runs."""
    there = folder.path
    if client.place == "box":
        there = client.desk.home.parent / "there" / "runs" / home_mark(folder.path.parent) / folder.path.name
    return int((there / "fake-starts-0").read_text())


def test_killed_at_thirty_points(client: Client) -> None:
    """No second job, no orphan that `orphans` does not end, and what was left is gone on with."""
    chance, killed = random.Random(16), 0
    client.desk.pretend(steps=20, step_s=0.01)
    on = ["--on", client.place] if client.place else []
    for name in ("first", "counted"):  # what only a first run writes is not counted
        counted = client.points("run", client.desk.spec(name), *on, "-d")
        client.carried_out(name)
    more = {"collect": ["places", "collect"], "teardown": ["places", "collect", "--teardown"]}
    limits = {verb: client.points(*words[:2], "counted", *words[2:]) for verb, words in more.items()}
    for at in sorted(chance.sample(range(1, counted + 1), min(POINTS["submit"], counted))):
        killed += client.run(f"submit-{at}", at=at) == -signal.SIGKILL
        folder = client.carried_out(f"submit-{at}")
        begun = sum(event.kind is EventKind.STARTED for event in folder.events())
        assert (starts_of(client, folder), begun) == (1, 1), at
    assert killed >= POINTS["submit"] - 1  # the last point may come too late
    for number in range(POINTS["follow"]):
        name = f"follow-{number}"
        client.desk.pretend(steps=60, step_s=0.02)
        assert client.run(name) == 0
        client.killed_in(chance.uniform(0.2, 2.0), "logs", "-f", name)
        client.killed_in(chance.uniform(0.2, 2.0), "logs", "-f", name)
        assert client.call("logs", "-f", name) == 0
        steps = [line for line in client.desk.folder(name).log_file.read_text().splitlines() if line[:5] == "step "]
        assert steps == [f"step {step}" for step in range(1, 61)]
        assert starts_of(client, client.desk.folder(name)) == 1
    for verb, words in more.items():
        for number in range(POINTS[verb]):
            name = f"{verb}-{number}"
            client.desk.pretend(steps=10, step_s=0.01)
            assert client.run(name) == 0
            folder = client.carried_out(name)
            client.call(*words[:2], name, *words[2:], at=chance.randint(1, limits[verb] + 3))
            assert client.call("places", "collect", name) == 0
            assert json.loads(folder.result_file.read_text())["steps"] == 10
            assert client.call(*words[:2], name, *words[2:]) == 0
            assert (folder.checkpoints / "step-00000010" / "weights").read_text() == "10"
    client.desk.tonnage("places", "orphans", "--end")
    client.desk.wait(lambda: json.loads(client.desk.tonnage("places", "orphans", "-o", "json"))["orphans"] == [])
