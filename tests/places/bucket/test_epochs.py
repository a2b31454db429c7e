"""A submission that its place starts again while the first machine may be alive: one of them writes what counts."""

from __future__ import annotations

import json
import os
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tonnage.errors import TonnageError
from tonnage.places.bucket.grown import Writer, follow, write_beat
from tonnage.places.bucket.layout import Keys
from tonnage.places.bucket.objects import FolderObjects
from tonnage.places.bucket.saving import Saver, newest_checkpoint, newest_of_each, saved_artifacts
from tonnage.places.ssh.mirror import Mirror, write_mirror
from tonnage.runs import RunFolder, RunSpec
from tonnage.runs.job import Job, dump_job
from tonnage.runs.spec import DataSource, DataSpec, dump_spec
from tonnage.supervisor.bucket import BucketExchange, lay, take_epoch, wait_for_last_words
from tonnage.supervisor.fence import Fence

FIRST = Keys(base="home/run", number=1, epoch=1)
SECOND = replace(FIRST, epoch=2)
JOURNAL = '{"sent": 1}\n'


@pytest.fixture
def store(tmp_path: Path) -> FolderObjects:
    """A bucket with a submission that was sent."""
    found = FolderObjects(tmp_path / "bucket")
    spec = RunSpec(name="run", task="mlp", data=DataSpec(train=DataSource(location="/r.csv", format="csv")))
    for name, text in {
        "spec.json": dump_spec(spec), "job.json": dump_job(Job(runner="local", argv=("true",))), "inputs.json": "{}",
        "place.json": '{"token": "t", "number": 1}', "journal.jsonl": JOURNAL,
    }.items():  # fmt: skip
        found.write(FIRST.sent(name), text.encode())
    found.write(FIRST.lease, b'{"token": "t", "number": 1}')
    return found


@pytest.fixture
def client(tmp_path: Path) -> RunFolder:
    """Where the run was sent from: it has lines of an earlier submission."""
    folder = RunFolder(tmp_path / "client")
    folder.path.mkdir()
    folder.journal_file.write_text(JOURNAL)
    folder.metrics_file.write_text('{"step": 0}\n')
    base = {"journal.jsonl": len(JOURNAL), "metrics.jsonl": len('{"step": 0}\n')}
    write_mirror(folder, Mirror(token="t", there={"journal.jsonl": len(JOURNAL)}, here=base, base=base))
    return folder


def machine(tmp_path: Path, name: str) -> RunFolder:
    return RunFolder(tmp_path / name)


def step(store: FolderObjects, keys: Keys, folder: RunFolder, number: int) -> None:
    """A line of the journal, a figure and a checkpoint, brought to the bucket."""
    for file, line in ((folder.journal_file, {"at": number}), (folder.metrics_file, {"step": number})):
        with file.open("a") as text:
            text.write(json.dumps({**line, "by": keys.epoch}) + "\n")
        Writer(store, keys, folder).write(file.name)
    saved = folder.checkpoints / f"step-{number:06d}"
    saved.mkdir(parents=True)
    (saved / "model.bin").write_text(f"{keys.epoch} {number}")
    Saver(store, keys, folder).send(f"checkpoints/{saved.name}")


def test_a_newer_start_goes_on_and_the_older_one_counts_no_more(
    store: FolderObjects, client: RunFolder, tmp_path: Path
) -> None:
    """Figures, journal and checkpoints of the older machine up to the hand-over; nothing of what it wrote after it."""
    old, new = machine(tmp_path, "old"), machine(tmp_path, "new")
    assert lay(store, FIRST, old, "t")
    step(store, FIRST, old, 5)
    follow(store, FIRST, client, "t")
    assert lay(store, SECOND, new, "t")
    assert (new.checkpoints / "step-000005" / "model.bin").read_text() == "1 5"
    assert new.metrics_file.read_text() == old.metrics_file.read_text()
    step(store, FIRST, old, 10)  # in flight when the lease changed hands
    step(store, SECOND, new, 6)
    follow(store, SECOND, client, "t")
    assert client.metrics_file.read_text() == '{"step": 0}\n{"step": 5, "by": 1}\n{"step": 6, "by": 2}\n'
    assert client.journal_file.read_text() == '{"sent": 1}\n{"at": 5, "by": 1}\n{"at": 6, "by": 2}\n'
    newest = newest_checkpoint(saved_artifacts(store, FIRST.base), number=1)
    assert newest is not None
    assert (newest.writer, newest.step) == ((1, 2), 6)
    assert set(newest_of_each(saved_artifacts(store, FIRST.base))) == {"checkpoints/step-000006"}


def test_a_client_that_read_too_far_reads_again(store: FolderObjects, client: RunFolder, tmp_path: Path) -> None:
    """What it had of an older start and the newer one has not is replaced."""
    old, new = machine(tmp_path, "old"), machine(tmp_path, "new")
    lay(store, FIRST, old, "t")
    step(store, FIRST, old, 5)
    lay(store, SECOND, new, "t")
    step(store, FIRST, old, 10)
    follow(store, FIRST, client, "t")  # the lease was read before it changed hands
    step(store, SECOND, new, 6)
    follow(store, SECOND, client, "t")
    steps = [json.loads(line)["step"] for line in client.metrics_file.read_text().splitlines()]
    assert steps == [0, 5, 6]


def test_the_older_start_ends_itself(store: FolderObjects, tmp_path: Path) -> None:
    """Its exchange writes the newer start's words into place.json, which breaks its supervisor's fence."""
    old = machine(tmp_path, "old")
    lay(store, FIRST, old, "t")
    fence = Fence(old)
    exchange = BucketExchange(store, FIRST, old, token="t", every_s=0)
    exchange.flush()
    assert not fence.broken()
    assert take_epoch(store, SECOND, "t") == 1
    step(store, FIRST, old, 5)
    before = store.sizes(FIRST.part)
    (old.checkpoints / "step-000006").mkdir()
    exchange.flush()
    assert fence.broken()
    assert store.sizes(FIRST.part) == before


def test_a_start_that_comes_late_does_nothing(store: FolderObjects, tmp_path: Path) -> None:
    assert lay(store, SECOND, machine(tmp_path, "new"), "t")
    late = machine(tmp_path, "late")
    assert not lay(store, FIRST, late, "t")
    assert not late.path.exists()
    assert take_epoch(store, SECOND, "of another submission") is None


def test_two_starts_in_one_instant(store: FolderObjects) -> None:
    """The one that loses reads the lease again."""

    class Beaten(FolderObjects):
        def write_if(self, key: str, content: bytes, version: str | None) -> bool:
            take_epoch(store, SECOND, "t")
            return super().write_if(key, content, version)

    beaten = Beaten(Path(store.url.removeprefix("file://")))
    with pytest.raises(TonnageError, match="has just changed"):
        take_epoch(beaten, FIRST, "t")
    assert take_epoch(beaten, FIRST, "t") is None


def test_a_machine_keeps_what_it_has_and_drops_what_is_old(store: FolderObjects, tmp_path: Path) -> None:
    """The machine that had the lease last keeps its folder; one that had it before that takes the newer work over."""
    one, other = machine(tmp_path, "one"), machine(tmp_path, "other")
    lay(store, FIRST, one, "t")
    (one.path / "cache").touch()
    assert lay(store, SECOND, one, "t")
    assert (one.path / "cache").exists()
    third, fourth = replace(FIRST, epoch=3), replace(FIRST, epoch=4)
    lay(store, third, other, "t")
    step(store, third, other, 7)
    assert lay(store, fourth, one, "t")
    assert not (one.path / "cache").exists()
    assert (one.checkpoints / "step-000007" / "model.bin").read_text() == "3 7"


@pytest.mark.parametrize(("supervised", "age_s", "waits"), [(False, 0.0, False), (True, 5.0, False), (True, 0.0, True)])
def test_the_start_before_may_save_first(store: FolderObjects, supervised: bool, age_s: float, waits: bool) -> None:
    """One that has ended, or was silent for long, is not waited for; one that works is, until it says its end."""
    told = json.dumps({"beat": {}, "progress": "", "supervised": supervised}).encode()
    store.write(FIRST.beat, told)
    if age_s:
        path = Path(store.url.removeprefix("file://")) / FIRST.beat
        os.utime(path, (time.time() - age_s, time.time() - age_s))
    done: list[float] = []
    began = time.monotonic()

    def wait() -> None:
        wait_for_last_words(store, replace(FIRST, epoch=3), quiet_s=2.0, longest_s=20.0)
        done.append(time.monotonic() - began)

    waiting = threading.Thread(target=wait, daemon=True)
    waiting.start()
    waiting.join(0.5 if waits else 30)
    assert waiting.is_alive() is waits
    store.write(FIRST.beat, told.replace(b"true", b"false"))
    waiting.join(30)
    assert done


def test_one_that_never_ends_is_waited_for_only_so_long(store: FolderObjects) -> None:
    store.write(FIRST.beat, b'{"beat": {}, "progress": "", "supervised": true}')
    began = time.monotonic()
    wait_for_last_words(store, SECOND, quiet_s=60.0, longest_s=0.3)
    assert 0.3 <= time.monotonic() - began < 30


def test_a_beat_says_who_has_ended(store: FolderObjects, tmp_path: Path) -> None:
    """The last exchange of a start leaves a beat that nobody waits for."""
    old = machine(tmp_path, "old")
    lay(store, FIRST, old, "t")
    write_beat(store, FIRST, old, supervised=True)
    BucketExchange(store, FIRST, old, token="t", every_s=0).finish()
    found: Any = store.read(FIRST.beat)
    assert json.loads(found.content)["supervised"] is False
