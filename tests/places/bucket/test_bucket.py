"""Client and machine meet in a bucket: what is whole, what is newest, who may write."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from tonnage.errors import TonnageError
from tonnage.places.bucket.grown import Writer, follow, restore
from tonnage.places.bucket.layout import SEGMENT_BYTES, Keys, artifact_names, artifact_of
from tonnage.places.bucket.objects import FolderObjects, StoredObject
from tonnage.places.bucket.saving import Saver, bring, newest_checkpoint, newest_of_each, saved_artifacts
from tonnage.places.ssh.mirror import Mirror, read_mirror, write_mirror
from tonnage.runs import RunFolder, RunSpec
from tonnage.runs.job import Job, dump_job
from tonnage.runs.journal import EventKind
from tonnage.runs.log_parts import KEPT_LOG_BYTES, end_of
from tonnage.runs.spec import DataSource, DataSpec
from tonnage.supervisor.bucket import BucketExchange, lay
from tonnage.supervisor.shim import LogKeeper

KEYS = Keys(base="home/run", number=1)


@pytest.fixture
def store(tmp_path: Path) -> FolderObjects:
    return FolderObjects(tmp_path / "bucket")


def machine(tmp_path: Path, name: str = "machine") -> RunFolder:
    folder = RunFolder(tmp_path / name)
    folder.checkpoints.mkdir(parents=True)
    return folder


def checkpoint(folder: RunFolder, step: int, text: str = "weights") -> Path:
    path = folder.checkpoints / f"step-{step:06d}"
    path.mkdir()
    (path / "model.bin").write_text(f"{text} {step}")
    return path


def test_a_checkpoint_counts_when_it_is_whole(store: FolderObjects, tmp_path: Path) -> None:
    """Its files come first and its word last; what the run drops goes; a copy is verified."""
    folder = machine(tmp_path)
    saver = Saver(store, KEYS, folder)
    old = checkpoint(folder, 5)
    saver.save(steps_only=True, ours=lambda: True)
    checkpoint(folder, 10)
    (old / "model.bin").unlink()
    old.rmdir()
    saver.save(steps_only=True, ours=lambda: True)
    [found] = saved_artifacts(store, KEYS.base)
    assert (found.step, found.number) == (10, 1)
    assert len(store.sizes(f"{KEYS.part}/data/")) == 1
    other = machine(tmp_path, "other")
    bring(store, KEYS.base, found, other)
    assert (other.checkpoints / "step-000010" / "model.bin").read_text() == "weights 10"
    store.write(KEYS.data(found.files["checkpoints/step-000010/model.bin"][1]), b"damaged")
    with pytest.raises(TonnageError, match="is not what was saved"):
        bring(store, KEYS.base, found, machine(tmp_path, "third"))
    assert list((tmp_path / "third" / "checkpoints").iterdir()) == []


def test_a_checkpoint_whose_files_are_there_and_whose_word_is_not(store: FolderObjects, tmp_path: Path) -> None:
    """A machine that dies while it saves leaves nothing that a later one takes."""
    folder = machine(tmp_path)
    checkpoint(folder, 5)
    whole, store_write = Saver(store, KEYS, folder), store.write

    def dies(key: str, content: bytes) -> None:
        raise TonnageError(f"the machine dies before {len(content)} bytes of {key}", hint="")

    store.write = dies  # type: ignore[method-assign]
    with pytest.raises(TonnageError):
        whole.save(steps_only=True, ours=lambda: True)
    store.write = store_write  # type: ignore[method-assign]
    assert store.sizes(f"{KEYS.part}/data/")
    assert saved_artifacts(store, KEYS.base) == []


def test_losses_up_to_a_checkpoint_are_there_before_it_counts(
    store: FolderObjects, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine that dies at once after it loses no step: a later one goes on behind the checkpoint."""
    folder = machine(tmp_path)
    store.write(KEYS.lease, b'{"token": "t", "epoch": 0}')
    exchange = BucketExchange(store, KEYS, folder, token="t", every_s=0)
    seen, write = list[str](), store.write

    def watched(key: str, content: bytes) -> Any:
        if "/made/" in key:
            seen.extend(one.content.decode() for one in map(store.read, store.sizes(f"{KEYS.part}/grown/")) if one)
        return write(key, content)

    monkeypatch.setattr(store, "write", watched)
    checkpoint(folder, 5)
    folder.metrics_file.write_text('{"step": 5}\n')
    exchange._save_steps()  # as its thread does, after an exchange that saw neither
    assert seen == ['{"step": 5}\n']
    assert [one.step for one in saved_artifacts(store, KEYS.base)] == [5]


def test_an_older_submission_touches_nothing_of_a_newer_one(store: FolderObjects, tmp_path: Path) -> None:
    """What it still writes lies under its own number, and is not where the newer one goes on."""
    first, second = machine(tmp_path, "first"), machine(tmp_path, "second")
    newer = Keys(base=KEYS.base, number=2)
    checkpoint(second, 15, "new")
    Saver(store, newer, second).save(steps_only=True, ours=lambda: True)
    checkpoint(first, 20, "stale")
    Saver(store, KEYS, first).save(steps_only=True, ours=lambda: True)
    found = newest_checkpoint(saved_artifacts(store, KEYS.base), number=2)
    assert found is not None
    assert (found.number, found.step) == (2, 15)
    assert set(newest_of_each(saved_artifacts(store, KEYS.base))) == {"checkpoints/step-000015"}
    again = newest_checkpoint(saved_artifacts(store, KEYS.base), number=1)
    assert again is not None
    assert again.step == 20


def test_files_outside_the_run_are_refused() -> None:
    for name in ("../passwd", "/etc/passwd"):
        with pytest.raises(TonnageError, match="outside"):
            artifact_of("b/000001/made/model.json", {"files": {name: [1, "a"]}})


def here(tmp_path: Path) -> RunFolder:
    """A client's folder with a run that was sent."""
    folder = RunFolder(tmp_path / "client" / "run")
    folder.create(RunSpec(name="run", task="mlp", data=DataSpec(train=DataSource(location="/r.csv", format="csv"))))
    folder.journal_file.write_text('{"sent": 1}\n')
    write_mirror(folder, Mirror(token="t", there={"journal.jsonl": 12}, here={"journal.jsonl": 12}))
    return folder


def test_what_grows_comes_byte_by_byte_over_segments(store: FolderObjects, tmp_path: Path) -> None:
    """Across ends of segments, and after a client that died between the bytes and their note."""
    client, folder = here(tmp_path), machine(tmp_path)
    folder.journal_file.write_text('{"sent": 1}\n{"began": 2}\n')
    log = b"".join(b"line %07d\n" % number for number in range(2 * SEGMENT_BYTES // 13 + 20))
    writer = Writer(store, KEYS, folder)
    for end in (10, 1000, SEGMENT_BYTES - 1, SEGMENT_BYTES, SEGMENT_BYTES + 7, len(log)):
        folder.log_file.write_bytes(log[:end])
        writer.write("log.txt")
        writer.write("journal.jsonl")
        before = read_mirror(client)
        follow(store, KEYS, client, "t")
        if end == 1000 and before is not None:
            write_mirror(client, before)
            follow(store, KEYS, client, "t")
        assert client.log_file.read_bytes() == log[:end]
    assert client.journal_file.read_text() == folder.journal_file.read_text()
    again = machine(tmp_path, "again")
    assert restore(store, KEYS, again)
    assert again.log_file.read_bytes() == log[2 * SEGMENT_BYTES :]  # its beginning stays in the bucket
    assert end_of(str(again.log_file)) == len(log)
    again.log_file.write_bytes(again.log_file.read_bytes() + b"goes on\n")
    Writer(store, KEYS, again).write("log.txt")
    follow(store, KEYS, client, "t")
    assert client.log_file.read_bytes() == log + b"goes on\n"
    assert max(store.sizes(f"{KEYS.part}/grown/").values()) <= SEGMENT_BYTES


@pytest.mark.parametrize("name", ["log.txt", "log-machine-2.txt"])
def test_of_a_log_far_ahead_its_end_comes(
    store: FolderObjects, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """And a line that says how much stayed there, and where; a further machine's log is one like the first's."""
    monkeypatch.setattr("tonnage.runs.log_parts.MOST_LOG_BYTES", 2 * SEGMENT_BYTES)
    client, folder = here(tmp_path), machine(tmp_path)
    (folder.path / name).write_bytes(b"".join(b"line %07d\n" % number for number in range(400_000)) + b"the end\n")
    size = (folder.path / name).stat().st_size
    writer = Writer(store, KEYS, folder)
    writer.write(name)
    follow(store, KEYS, client, "t")
    text = (client.path / name).read_text()
    said, first, *_ = text.splitlines()
    left = int(said.split()[1].replace(",", ""))
    assert said == f"tonnage: {left:,} bytes of the log stay there: {store.url}/{KEYS.part}/grown/{name}"
    assert len(text) - len(said) - 1 == size - left <= KEPT_LOG_BYTES
    assert first.startswith("line ")
    assert text.endswith("the end\n")
    with (folder.path / name).open("ab") as file:
        file.write(b"more\n")
    writer.write(name)
    follow(store, KEYS, client, "t")
    assert (client.path / name).read_text() == text + "more\n"


def test_a_log_that_begins_anew_on_its_machine_goes_on_here(store: FolderObjects, tmp_path: Path) -> None:
    """The machine keeps four parts of it; the bucket and the client have every byte in its order."""
    client, folder = here(tmp_path), machine(tmp_path)
    keeper = LogKeeper(folder.log_file, largest_bytes=300_000)
    writer, said = Writer(store, KEYS, folder), b""
    for number in range(40):
        block = b"".join(b"block %03d line %04d\n" % (number, line) for line in range(3000))
        keeper.write(block)
        said += block
        if number % 5 == 4:
            writer.write("log.txt")
        if number % 7 == 6:
            follow(store, KEYS, client, "t")
    writer.write("log.txt")
    follow(store, KEYS, client, "t")
    assert folder.log_file.stat().st_size < 400_000 < len(said)
    assert client.log_file.read_bytes() == said
    assert "log.1.txt" not in artifact_names(folder)


def test_a_journal_longer_than_an_object_comes_whole(store: FolderObjects, tmp_path: Path) -> None:
    """A line that goes on in the next object is one line."""
    client, folder = here(tmp_path), machine(tmp_path)
    told = '{"sent": 1}\n' + "".join(f'{{"number": {number}, "text": "{"x" * 997}"}}\n' for number in range(3000))
    folder.journal_file.write_text(told)
    Writer(store, KEYS, folder).write("journal.jsonl")
    follow(store, KEYS, client, "t")
    assert client.journal_file.read_text() == told


def test_conditions_of_a_folder(store: FolderObjects) -> None:
    assert store.write_if("lease", b"1", None)
    assert not store.write_if("lease", b"2", None)
    found = store.read("lease")
    assert isinstance(found, StoredObject)
    assert store.write_if("lease", b"2", found.version)
    assert not store.write_if("lease", b"3", found.version)


class Broken:
    """A store that fails as often as it is told."""

    def __init__(self, inside: Any, failures: int) -> None:
        self.inside, self.failures = inside, failures

    def __getattr__(self, name: str) -> Any:
        verb = getattr(self.inside, name)

        def tried(*words: Any, **named: Any) -> Any:
            if self.failures:
                self.failures -= 1
                raise TonnageError("the store fails", hint="")
            return verb(*words, **named)

        return tried if callable(verb) else verb


def test_a_store_that_fails_ends_no_run(
    store: FolderObjects, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is said once, asked again, and nothing is lost."""
    folder = machine(tmp_path)
    folder.place_file.write_text('{"token": "t"}')
    store.write(KEYS.lease, b'{"token": "t"}')
    folder.log_file.write_text("one\n")
    exchange = BucketExchange(Broken(store, 3), KEYS, folder, token="t", every_s=0)
    for _ in range(3):
        exchange.flush()
    assert capsys.readouterr().err.count("the store fails") == 1
    exchange.flush()
    found = store.read(KEYS.grown("log.txt", 0))
    assert found is not None
    assert found.content == b"one\n"


def test_a_newer_submission_ends_the_older(store: FolderObjects, tmp_path: Path) -> None:
    """The supervisor finds the newer token in place.json, and nothing more is written for the older."""
    folder = machine(tmp_path)
    folder.place_file.write_text('{"token": "old"}')
    store.write(KEYS.lease, b'{"token": "new", "number": 2}')
    folder.log_file.write_text("stale\n")
    checkpoint(folder, 5)
    exchange = BucketExchange(store, KEYS, folder, token="old", every_s=0)
    exchange.flush()
    exchange.finish()
    assert json.loads(folder.place_file.read_text())["token"] == "new"
    assert saved_artifacts(store, KEYS.base) == []
    assert not lay(store, KEYS, machine(tmp_path, "late"), "old")


@pytest.mark.slow
def test_a_machine_that_dies_at_once_is_gone_on_with(
    tmp_path: Path, store: FolderObjects, trial_of_a_folder: Callable[..., tuple[RunFolder, list[str]]]
) -> None:
    """kill -9 of everything on it: another machine goes on from what lies in the bucket, with the same losses."""
    folder, words = trial_of_a_folder(store)
    first = subprocess.Popen(words, start_new_session=True)
    until = time.monotonic() + 60
    while not [one for one in saved_artifacts(store, KEYS.base) if (one.step or 0) >= 20]:
        assert time.monotonic() < until
        time.sleep(0.05)
    for child in psutil.Process(first.pid).children(recursive=True):
        child.kill()
    first.kill()
    assert first.wait() == -signal.SIGKILL
    shutil.rmtree(tmp_path / "machine")
    assert subprocess.run(words, check=False, timeout=60).returncode == 0
    follow(store, KEYS, folder, "t")
    for artifact in newest_of_each(saved_artifacts(store, KEYS.base)).values():
        bring(store, KEYS.base, artifact, folder)
    lines = [json.loads(line) for line in folder.metrics_file.read_text().splitlines()]
    assert {one["step"]: one["loss"] for one in lines} == {step: 1 / step for step in range(1, 121)}
    assert json.loads(folder.result_file.read_text())["steps"] == 120


@pytest.mark.heavy
def test_what_a_machine_reads_by_reference_comes_back_in_nothing(
    tmp_path: Path, store: FolderObjects, trial_of_a_folder: Callable[..., tuple[RunFolder, list[str]]]
) -> None:
    """The worker has the variables, says one in its log and its journal; the bucket holds *** in its place."""
    planted, other = "pl4nted-s3cret-value", "pl4nted-of-another-name"
    (tmp_path / "keys.json").write_text(json.dumps({"HF_TOKEN": planted, "ROWS_KEY": other}))
    _, words = trial_of_a_folder(store, steps=2, step_s=0.001, says=f"token {planted} {other}")
    environ = {name: value for name, value in os.environ.items() if name != "HF_TOKEN"}
    words += ["--machines", "0", "--secret", f"file:{tmp_path}/keys.json"]  # fewer than two machines: it works alone
    done = subprocess.run(words, env=environ, check=False, timeout=60, capture_output=True)
    assert done.returncode == 0, done.stderr
    assert planted.encode() not in done.stdout + done.stderr
    kept = [path.read_bytes() for path in Path(store.url.removeprefix("file://")).rglob("*") if path.is_file()]
    kept += [path.read_bytes() for path in (tmp_path / "machine").rglob("*") if path.is_file()]
    assert sum(b"token *** ***" in one for one in kept) >= 4  # log and journal, there and in the bucket
    told = b"".join(one for one in kept if b"TONNAGE_FAKE" not in one)  # the job itself says what is to be said
    assert planted.encode() not in told
    assert other.encode() not in told


@pytest.fixture
def trial_of_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[RunFolder, list[str]]]:
    """A run that was sent, and the command that a machine starts."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "none")

    def sent(store: FolderObjects, **given: Any) -> tuple[RunFolder, list[str]]:
        folder = here(tmp_path)
        run, pretence = tmp_path / "machine", {"steps": 120, "step_s": 0.03, "checkpoint_every": 10, **given}
        argv = (sys.executable, "-m", "tonnage.testing.worker", str(run))
        job = Job(runner="local", argv=argv, env=(("TONNAGE_FAKE", json.dumps(pretence)),))
        folder.journal_file.unlink()
        folder.record(EventKind.SUBMITTED, who="cli", name="run", place="p")
        length = folder.journal_file.stat().st_size
        write_mirror(folder, Mirror(token="t", there={"journal.jsonl": length}, here={"journal.jsonl": length}))
        sent = {
            "spec.json": folder.spec_file.read_text(), "job.json": dump_job(job), "inputs.json": "{}",
            "place.json": '{"token": "t", "number": 1}', "journal.jsonl": folder.journal_file.read_text(),
        }  # fmt: skip
        for name, text in sent.items():
            store.write(KEYS.sent(name), text.encode())
        store.write(KEYS.lease, b'{"token": "t", "number": 1}')
        words = [sys.executable, "-m", "tonnage.supervisor.bucket", "--store", store.url, "--base", KEYS.base,
                 "--number", "1", "--token", "t", "--every-s", "0.2", "--run", str(run)]  # fmt: skip
        return folder, words

    return sent
