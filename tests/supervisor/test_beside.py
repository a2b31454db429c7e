"""Two machines of one run as processes that share a bucket alone: logs of the second, and its end by SIGTERM."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tonnage.places.bucket.grown import follow
from tonnage.places.bucket.layout import Keys, artifact_names
from tonnage.places.bucket.objects import FolderObjects
from tonnage.places.ssh.mirror import Mirror, read_mirror, write_mirror
from tonnage.runs import RunFolder, RunSpec
from tonnage.runs.job import Job, dump_job
from tonnage.runs.journal import EventKind
from tonnage.runs.spec import DataSource, DataSpec

KEYS = Keys(base="home/run", number=1)
LONGEST_S = 60.0
PLANTED = "pl4nted-s3cret-value"
WORKER = """
import os, sys, time
if os.environ["PET_NODE_RANK"] == "0":
    from pathlib import Path
    from tonnage.runs.folder import RunFolder
    from tonnage.testing.worker import run_worker
    sys.exit(run_worker(RunFolder(Path(sys.argv[1]))))
print("its key:", os.environ["ROWS_KEY"], "at https://u:pl4nted-of-a-url@rows.example/a.csv", flush=True)
for number in range(100_000):
    print("the second works:", number, flush=True)
    time.sleep(0.1)
"""
MACHINE = """
import sys
from tonnage.supervisor import beside, bucket
beside.END_S = 1.0
sys.exit(bucket.main(sys.argv[1:]))
"""


def sent(tmp_path: Path, *, steps: int) -> tuple[FolderObjects, RunFolder]:
    """A run that was sent, and its folder at the client."""
    store, folder = FolderObjects(tmp_path / "bucket"), RunFolder(tmp_path / "client")
    folder.create(RunSpec(name="run", task="mlp", data=DataSpec(train=DataSource(location="/r.csv", format="csv"))))
    folder.record(EventKind.SUBMITTED, who="cli", name="run", place="p")
    pretence = {"steps": steps, "step_s": 0.05, "checkpoint_every": 10}
    argv = (sys.executable, "-c", WORKER, str(tmp_path / "machine"))
    job = Job(runner="torchrun", argv=argv, env=(("TONNAGE_FAKE", json.dumps(pretence)),), signal_to="nobody",
              secrets=("ROWS_KEY",))  # fmt: skip
    length = folder.journal_file.stat().st_size
    write_mirror(folder, Mirror(token="t", there={"journal.jsonl": length}, here={"journal.jsonl": length}))
    texts = {
        "spec.json": folder.spec_file.read_text(), "job.json": dump_job(job), "inputs.json": "{}",
        "place.json": '{"token": "t", "number": 1}', "journal.jsonl": folder.journal_file.read_text(),
    }  # fmt: skip
    for name, text in texts.items():
        store.write(KEYS.sent(name), text.encode())
    store.write(KEYS.lease, b'{"token": "t", "number": 1}')
    return store, folder


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Callable[[FolderObjects], subprocess.Popen[bytes]]]:
    """Starts one machine of two; what is left of them ends with the test."""
    started: list[subprocess.Popen[bytes]] = []

    def start(store: FolderObjects) -> subprocess.Popen[bytes]:
        words = [sys.executable, "-c", MACHINE, "--store", store.url, "--base", KEYS.base, "--number", "1", "--token",
                 "t", "--every-s", "0.2", "--notice-s", "2", "--machines", "2", "--run",
                 str(tmp_path / "machine")]  # fmt: skip
        with (tmp_path / f"console-{len(started)}").open("wb") as console:
            env = {**os.environ, "MLFLOW_TRACKING_URI": "none", "ROWS_KEY": PLANTED}
            started.append(subprocess.Popen(words, stdout=console, stderr=console, env=env, start_new_session=True))
        until = time.monotonic() + LONGEST_S
        while not store.sizes(KEYS.member(len(started) - 1)):
            assert time.monotonic() < until, "it does not join"
            time.sleep(0.05)
        return started[-1]

    yield start
    for one in started:
        if one.poll() is None:
            for below in psutil.Process(one.pid).children(recursive=True):
                below.kill()
            one.kill()
            one.wait()


def wait(true: Callable[[], bool]) -> None:
    until = time.monotonic() + LONGEST_S
    while not true():
        assert time.monotonic() < until, "it did not come so far in time"
        time.sleep(0.1)


@pytest.mark.slow
def test_what_a_further_machine_prints_comes_to_the_client(
    tmp_path: Path, machine: Callable[[FolderObjects], subprocess.Popen[bytes]]
) -> None:
    """While it works, in a file of its own, without secrets; no checkpoint or model is made of it."""
    store, folder = sent(tmp_path, steps=30)
    both = [machine(store) for _ in range(2)]
    log = folder.path / "log-machine-2.txt"

    def told() -> bool:
        follow(store, KEYS, folder, "t")
        return log.exists() and "the second works: 3" in log.read_text()

    wait(told)
    assert both[1].poll() is None
    assert [one.wait(LONGEST_S) for one in both] == [0, 0], (tmp_path / "console-1").read_text()
    follow(store, KEYS, folder, "t")
    first, *lines = log.read_text().splitlines()
    assert first == "its key: *** at https://u:***@rows.example/a.csv"
    assert lines == [f"the second works: {number}" for number in range(len(lines))]
    assert "the second works" not in folder.log_file.read_text()
    assert folder.state().state.value == "succeeded"
    assert log.name not in artifact_names(folder)
    revealed = [path for path in tmp_path.rglob("*") if path.is_file() and b"pl4nted-" in path.read_bytes()]
    assert {path.name for path in revealed} <= {"job.json"}  # which has the worker's own program


def test_a_newer_start_adds_to_the_log_that_is_here(tmp_path: Path) -> None:
    """Each start of a submission writes a log of its own: none is laid over an older one's."""
    store, folder = sent(tmp_path, steps=1)
    log = folder.path / "log-machine-2.txt"
    store.write(KEYS.grown(log.name, 0), b"first start\n")
    follow(store, KEYS, folder, "t")
    later = Keys(base=KEYS.base, number=1, epoch=1)
    store.write(later.grown(log.name, 0), b"second start\n")
    follow(store, later, folder, "t")
    follow(store, later, folder, "t")
    assert log.read_text() == "first start\nsecond start\n"
    mirror = read_mirror(folder)
    assert mirror is not None
    assert mirror.epoch == 1


@pytest.mark.slow
def test_a_further_machine_ends_by_sigterm_though_the_bucket_hangs(
    tmp_path: Path, machine: Callable[[FolderObjects], subprocess.Popen[bytes]]
) -> None:
    """Its workers too, and soon after the notice is over: a call that does not come back holds nothing."""
    store, _ = sent(tmp_path, steps=4000)
    _, second = (machine(store) for _ in range(2))
    wait(lambda: bool(store.sizes(f"{KEYS.part}/grown/log-machine-2.txt/")))
    below = psutil.Process(second.pid).children(recursive=True)
    assert below
    lease = tmp_path / "bucket" / KEYS.lease
    lease.rename(lease.with_suffix(".away"))
    os.mkfifo(lease)  # whoever reads it waits forever
    began = time.monotonic()
    second.send_signal(signal.SIGTERM)
    assert second.wait(LONGEST_S) == 75
    assert 2.0 < time.monotonic() - began < 30.0
    _, alive = psutil.wait_procs(below, timeout=5)
    assert alive == []
    console = (tmp_path / "console-1").read_text()
    assert "the machine's time is over" in console
