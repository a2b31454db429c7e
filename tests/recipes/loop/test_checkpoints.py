"""Checkpoints are whole or not there, and the newest whole one is gone on from."""

from __future__ import annotations

import errno
import json
import os
import shutil
import stat
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tonnage.pricing.interruptions import daly_interval_s
from tonnage.recipes import measuring, saving
from tonnage.recipes.checkpoints import (
    CheckpointInvalid,
    CheckpointWriter,
    DiskFull,
    Snapshot,
    interval,
    read_checkpoint,
    writing,
)
from tonnage.recipes.checkpoints.interval import CheckpointClock
from tonnage.recipes.preflight import Preflight
from tonnage.runs import folder as folders
from tonnage.runs.journal import EventKind
from tonnage.runs.spec import CheckpointSpec
from tonnage.runs.states import WorkerExit

MakeRun = Callable[..., Any]


def snapshot(step: int, *, size: int = 1000) -> Snapshot:
    weights = {"a": torch.full((size,), float(step)), "b": torch.arange(3)}
    training = {"optimizer": {"state": {0: {"exp_avg": torch.ones(size)}}}, "randomness": []}
    return Snapshot(step=step, weights=weights, training=training, position={"step": step})


def writer(folder: Path, *, keep: int = 3, asynchronous: bool = False, landed: Any = None) -> CheckpointWriter:
    return CheckpointWriter(folder, keep=keep, asynchronous=asynchronous, landed=landed or (lambda *_: None))


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_what_is_written_reads_back(tmp_path: Path) -> None:
    """Weights, training state and position come back as they were."""
    writer(tmp_path / "c").save(snapshot(7))
    found = read_checkpoint(tmp_path / "c" / "step-00000007")
    assert found.step == 7
    assert found.position == {"step": 7}
    assert torch.equal(found.weights()["a"], torch.full((1000,), 7.0))
    assert torch.equal(found.training()["optimizer"]["state"][0]["exp_avg"], torch.ones(1000))


def _flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "a flipped bit": (lambda path: _flip(path / "weights.safetensors"), "sha256 differs"),
    "a file cut short": (lambda path: (path / "training.pt").write_bytes(b"x"), "1 bytes, its manifest says"),
    "a missing file": (lambda path: (path / "position.json").unlink(), "position.json is missing"),
    "no manifest": (lambda path: (path / "manifest.json").unlink(), "manifest.json is missing"),
    "half a manifest": (lambda path: (path / "manifest.json").write_text('{"schema": "to'), "cannot be read"),
    "another format": (
        lambda path: (path / "manifest.json").write_text('{"schema": "tonnage/checkpoint@9"}'), "tonnage/checkpoint@9",
    ),
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_checkpoint_is_refused(tmp_path: Path, damage: str) -> None:
    """Each kind of damage is found, and the message names the file."""
    writer(tmp_path).save(snapshot(1))
    break_it, message = DAMAGE[damage]
    break_it(tmp_path / "step-00000001")
    with pytest.raises(CheckpointInvalid, match=message):
        read_checkpoint(tmp_path / "step-00000001")


def test_a_run_falls_back_to_the_one_before(make_run: MakeRun, monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest is damaged: the journal says which and why, and the curve has the same bits."""
    whole, run = make_run("whole", max_steps=20), make_run("run", max_steps=20)
    assert whole.work() == WorkerExit.DONE
    monkeypatch.setenv("TINY_SIGNAL_AT", "12")
    assert run.work() == WorkerExit.PREEMPTED
    monkeypatch.delenv("TINY_SIGNAL_AT")
    newest = max(run.folder.checkpoints.iterdir())
    assert newest.name == "step-00000013"
    _flip(newest / "weights.safetensors")
    assert run.work() == WorkerExit.DONE
    assert run.curve() == whole.curve()
    invalid = run.events(EventKind.CHECKPOINT_INVALID)
    assert [event.fields["path"] for event in invalid] == [str(newest)]
    assert "sha256 differs" in invalid[0].fields["message"]
    resumed = run.events(EventKind.RESUMED)[0].fields
    assert (resumed["step"], resumed["lost_steps"]) == (10, 3)


def test_old_ones_go_and_damaged_ones_do_not_count(tmp_path: Path) -> None:
    """Two are kept; one that is not whole is no reason to delete an older one that is, and goes once two are."""
    keeper = writer(tmp_path, keep=2)
    for step in (1, 2, 3):
        keeper.save(snapshot(step))
    assert names(tmp_path) == ["step-00000002", "step-00000003"]
    (tmp_path / "step-00000003" / "training.pt").unlink()
    keeper.save(snapshot(4))
    assert names(tmp_path) == ["step-00000002", "step-00000004"]


@pytest.mark.parametrize("keep", [1, 3])
def test_rotten_ones_of_higher_steps_do_not_eat_new_ones(tmp_path: Path, keep: int) -> None:
    """Content changed, sizes kept: a run that begins again keeps what it writes, and the rotten ones go in the end."""
    for step in (30, 40, 50):
        writer(tmp_path, keep=3).save(snapshot(step))
    for path in tmp_path.iterdir():
        _flip(path / "weights.safetensors")
    keeper = writer(tmp_path, keep=keep)
    for step in (5, 10, 15, 20):
        keeper.save(snapshot(step))
        assert read_checkpoint(tmp_path / f"step-{step:08}").step == step
    assert names(tmp_path) == [f"step-{step:08}" for step in (10, 15, 20)[-keep:]]


def test_one_that_rots_between_two_saves_does_not_count(tmp_path: Path) -> None:
    """It verified once; changed since, it is no reason to delete another one."""
    keeper = writer(tmp_path, keep=2)
    for step in (1, 2):
        keeper.save(snapshot(step))
    _flip(tmp_path / "step-00000002" / "training.pt")
    keeper.save(snapshot(3))
    assert names(tmp_path) == ["step-00000001", "step-00000003"]


def test_beginning_again_is_said_aloud(make_run: MakeRun, capsys: pytest.CaptureFixture[str]) -> None:
    """No checkpoint verifies: the log and the journal say that the run begins at step 0, and how much is lost."""
    run = make_run(max_steps=12)
    assert run.work() == WorkerExit.DONE
    run.folder.result_file.unlink()
    for path in run.folder.checkpoints.iterdir():
        _flip(path / "weights.safetensors")
    assert run.work() == WorkerExit.DONE
    resumed = run.events(EventKind.RESUMED)[0].fields
    assert (resumed["step"], resumed["path"], resumed["lost_steps"]) == (0, None, 12)
    said = "none of 3 checkpoints verifies: the run begins again at step 0, 12 steps are done again"
    assert resumed["message"] == said
    assert said in capsys.readouterr().err


def test_what_a_kill_left_is_cleared_away(tmp_path: Path) -> None:
    """A half-written folder has a name of its own, is never read, and goes when the next writer comes."""
    (tmp_path / ".unfinished-9-123").mkdir()
    (tmp_path / ".unfinished-9-123" / "weights.safetensors").write_bytes(b"half")
    writer(tmp_path).save(snapshot(1))
    assert names(tmp_path) == ["step-00000001"]


def test_a_step_written_again_replaces_the_damaged_one(tmp_path: Path) -> None:
    """After a fall back the run comes by the same step again."""
    keeper = writer(tmp_path)
    keeper.save(snapshot(1))
    _flip(tmp_path / "step-00000001" / "weights.safetensors")
    keeper.save(snapshot(1))
    assert read_checkpoint(tmp_path / "step-00000001").step == 1
    assert names(tmp_path) == ["step-00000001"]


def test_writing_goes_on_beside_and_one_at_a_time(tmp_path: Path) -> None:
    """`save` returns while the write is under way; a second one waits for the first."""
    go, landed = threading.Event(), []

    def on_landing(step: int, *_: Any) -> None:
        go.wait(30)
        landed.append(step)

    keeper = writer(tmp_path, asynchronous=True, landed=on_landing)
    keeper.save(snapshot(1))
    assert landed == []
    second = threading.Thread(target=keeper.save, args=(snapshot(2),))
    second.start()
    assert not (tmp_path / "step-00000002").exists()
    go.set()
    second.join(30)
    keeper.wait()
    keeper.close()
    assert landed == [1, 2]


def test_a_full_disk_is_found_before_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Need and room are named; what was there before is whole."""
    keeper = writer(tmp_path)
    keeper.save(snapshot(1))
    usage = shutil.disk_usage(tmp_path)._replace(free=5000)
    monkeypatch.setattr(writing.shutil, "disk_usage", lambda _: usage)
    with pytest.raises(DiskFull, match=r"step 2 needs 8024 bytes, .* can take 5000"):
        keeper.save(snapshot(2))
    assert read_checkpoint(tmp_path / "step-00000001").step == 1
    assert names(tmp_path) == ["step-00000001"]


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        RuntimeError("Error while serializing: I/O error: No space left on device (os error 28)"),
    ],
)
def test_a_disk_that_fills_up_while_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """However the library words it: DiskFull at the next look, no half folder, the one before is whole."""
    keeper = writer(tmp_path, asynchronous=True)
    keeper.save(snapshot(1))
    keeper.wait()

    def fail(*_: Any) -> None:
        raise error

    monkeypatch.setattr(writing, "_write_json", fail)
    keeper.save(snapshot(2))
    with pytest.raises(DiskFull):
        keeper.wait()
    keeper.close()
    assert names(tmp_path) == ["step-00000001"]
    assert read_checkpoint(tmp_path / "step-00000001").step == 1


def test_a_disk_too_full_for_a_line_of_metrics_ends_the_run(
    make_run: MakeRun, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not even the journal takes a word any more: the exit code and the log say it all the same."""
    run = make_run(max_steps=12)

    def fail(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(measuring, "append_values", fail)
    monkeypatch.setattr(folders, "append_line", fail)
    monkeypatch.setattr(Preflight, "run", lambda _, micro_batch: micro_batch)
    assert run.work() == WorkerExit.DISK_FULL
    said = capsys.readouterr().err
    assert "error: " in said
    assert "the journal cannot be written" in said


@pytest.mark.slow
def test_a_real_limit_on_files_ends_the_run(make_run: MakeRun) -> None:
    """The system refuses files over 200 kB, the weights have 450: exit code, message, reason."""
    run = make_run(max_steps=12, checkpoint=CheckpointSpec(every_steps=5))
    ended = run.start(TINY_FILE_BYTES="200000")
    assert ended.returncode == WorkerExit.DISK_FULL, ended.stderr
    assert "error: the checkpoint of step" in ended.stderr
    assert run.events(EventKind.STOPPING)[0].fields["reason"] == "DiskFull"
    assert list(run.folder.checkpoints.iterdir()) == []


def test_adapters_are_saved_without_what_they_adapt(make_run: MakeRun, tiny: Any) -> None:
    """With `method: lora` a checkpoint holds trained parameters only, and is enough to go on."""

    def program(spec: Any) -> Any:
        prepared = tiny.prepare(spec)
        for name, parameter in prepared.model.named_parameters():
            parameter.requires_grad_(name.startswith("head"))
        return prepared

    run = make_run(max_steps=4, method="lora")
    assert run.work(program) == WorkerExit.DONE
    found = read_checkpoint(run.folder.checkpoints / "step-00000004")
    assert sorted(found.weights()) == ["head.bias", "head.weight"]
    run.folder.result_file.unlink()
    assert run.work(program) == WorkerExit.DONE


def test_the_manifest_is_what_the_documentation_says(make_run: MakeRun) -> None:
    """Other programs may read it: schema, step, size and hash of each file."""
    run = make_run(max_steps=2)
    assert run.work() == WorkerExit.DONE
    manifest = json.loads((run.folder.checkpoints / "step-00000002" / "manifest.json").read_text())
    assert manifest["schema"] == "tonnage/checkpoint@1"
    assert manifest["step"] == 2
    assert sorted(manifest["files"]) == ["position.json", "training.pt", "weights.safetensors"]
    assert all(len(said["sha256"]) == 64 and said["bytes"] > 0 for said in manifest["files"].values())


def test_all_that_a_run_leaves_is_the_users_alone(make_run: MakeRun) -> None:
    """Under the usual umask: the folder, checkpoints and model with all that libraries write there."""
    before = os.umask(0o022)
    try:
        run = make_run("deep/er/tiny", max_steps=6)
        assert run.work() == WorkerExit.DONE
    finally:
        os.umask(before)
    paths = [run.folder.path.parent, run.folder.path.parent.parent, run.folder.path, *run.folder.path.rglob("*")]
    assert {path.name for path in paths} >= {"er", "deep", "model.pt", "weights.safetensors", "step-00000006", "model"}
    odd = {path: oct(path.stat().st_mode) for path in paths if stat.S_IMODE(path.stat().st_mode) & 0o077}
    assert not odd


def test_nobody_says_when(make_run: MakeRun, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without `checkpoint:` one is saved early, which measures what a save takes; a kill later loses no whole run."""
    monkeypatch.setattr(interval, "FIRST_S", 0.0)
    run = make_run(max_steps=6, checkpoint=CheckpointSpec())
    assert run.work() == WorkerExit.DONE
    steps = [event.fields["step"] for event in run.events(EventKind.CHECKPOINT)]
    assert steps == [1, 6]


def test_the_interval_follows_from_what_a_save_takes() -> None:
    """Early once; then Daly's time for the save just measured, longer for a longer one, shorter on a spot machine."""
    clock = [0.0]
    steady, spot = (CheckpointClock(CheckpointSpec(ends_per_hour=rate), clock=lambda: clock[0]) for rate in (None, 1.0))
    assert not steady.due(5)
    clock[0] = 10.0
    assert steady.due(5)
    for one in (steady, spot):
        one.saved()
        one.measured(2.0)
    assert steady.seconds == pytest.approx(daly_interval_s(2.0, 24 * 3600))
    assert spot.seconds == pytest.approx(daly_interval_s(2.0, 3600))
    clock[0] += 500.0
    assert not steady.due(5000)
    assert spot.due(5000)
    before = steady.seconds
    steady.measured(8.0)
    assert steady.seconds == pytest.approx(2 * before, rel=0.01)


def test_what_the_file_says_holds() -> None:
    """Steps or seconds asked for are not overruled."""
    clock = [0.0]
    by_steps = CheckpointClock(CheckpointSpec(every_steps=50), clock=lambda: clock[0])
    by_time = CheckpointClock(CheckpointSpec(every_s=900.0), clock=lambda: clock[0])
    clock[0] = 899.0
    assert [by_steps.due(step) for step in (49, 50, 51)] == [False, True, False]
    assert not by_time.due(50)
    clock[0] = 900.0
    assert by_time.due(50)


def test_the_host_holds_one_copy_at_a_time(make_run: MakeRun, monkeypatch: pytest.MonkeyPatch) -> None:
    """A save that is due before the one before has been written waits for it, and copies the state then."""
    copies: list[bool] = []
    writing_now = threading.Event()
    write, take = CheckpointWriter._write, saving.take_snapshot

    def slowly(self: CheckpointWriter, taken: Snapshot) -> None:
        writing_now.set()
        time.sleep(0.2)
        write(self, taken)
        writing_now.clear()

    def copied(*given: Any, **named: Any) -> Any:
        copies.append(writing_now.is_set())
        return take(*given, **named)

    monkeypatch.setattr(CheckpointWriter, "_write", slowly)
    monkeypatch.setattr(saving, "take_snapshot", copied)
    run = make_run("often", max_steps=4, checkpoint=CheckpointSpec(every_steps=1, keep=9))
    assert run.work() == WorkerExit.DONE
    assert copies == [False] * 4
