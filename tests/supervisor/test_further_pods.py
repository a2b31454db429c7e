"""A further pod of a run as a process: what its workers print is in the run's folder and on stdout, without secrets."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tonnage.runs import EventKind, RunFolder, RunSpec
from tonnage.runs.job import Job, dump_job
from tonnage.runs.spec import DataSource, DataSpec
from tonnage.supervisor.pod import Repeater

PLANTED = "pl4nted-s3cret-value"
WORKER = "import os, sys; print('its key:', os.environ['ROWS_KEY']); sys.exit(3)"


def test_what_a_further_pod_prints_has_no_secret(tmp_path: Path) -> None:
    """Variables that the job names as secrets are masked, whatever their names."""
    folder, sent = RunFolder(tmp_path / "run"), tmp_path / "sent"
    folder.create(RunSpec(name="run", task="mlp", data=DataSpec(train=DataSource(location="/r.csv", format="csv"))))
    folder.record(EventKind.SUBMITTED, who="pod", name="run", place="p")
    folder.record(EventKind.STARTED, who="supervisor", attempt=1)
    sent.mkdir()
    job = Job(runner="torchrun", argv=(sys.executable, "-c", WORKER), secrets=("ROWS_KEY",))
    (sent / "job.json").write_text(dump_job(job))
    for path in (folder.place_file, sent / "place.json"):
        path.write_text(json.dumps({"token": "t", "number": 1, "place": "p"}))
    words = [sys.executable, "-m", "tonnage.supervisor.pod", "--run", str(folder.path), "--sent", str(sent),
             "--nodes", "2", "--host", "127.0.0.1", "--port", "1", "--token", "t"]  # fmt: skip
    env = {**os.environ, "JOB_COMPLETION_INDEX": "1", "ROWS_KEY": PLANTED}
    pod = subprocess.run(words, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert pod.returncode == 75, pod.stderr  # the run goes on without it
    assert (folder.path / "log-machine-2.txt").read_text() == "its key: ***\n"
    assert pod.stdout == "log-machine-2.txt@0 its key: ***\n"


def test_a_journal_of_any_length_does_not_call_for_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    """It is repeated after other bytes on stdout, once: one longer than these would be repeated forever."""
    monkeypatch.setattr("tonnage.supervisor.pod.JOURNAL_EVERY_BYTES", 100)
    folder = RunFolder(tmp_path)
    folder.journal_file.write_bytes(b'{"kind": "training"}\n' * 10)
    repeater = Repeater(folder, beats=False)

    def said() -> int:
        repeater.flush()
        return capfdbinary.readouterr().out.count(b"journal.jsonl@0 ")

    assert [said() for _ in range(4)] == [2, 0, 0, 0]  # as it comes; behind its own first bytes
    folder.log_file.write_bytes(b"x" * 200 + b"\n")
    assert [said() for _ in range(3)] == [1, 0, 0]
