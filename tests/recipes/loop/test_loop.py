"""The loop: what a step is, how it ends early, what it refuses."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tonnage.errors import InputError
from tonnage.recipes.checkpoints import CheckpointWriter
from tonnage.recipes.checkpoints.snapshot import Snapshot
from tonnage.recipes.preflight import Preflight
from tonnage.recipes.worker import CRASHED, crash_code
from tonnage.runs.journal import EventKind
from tonnage.runs.progress import ProgressWriter, read_progress
from tonnage.runs.spec import CheckpointSpec
from tonnage.runs.states import RunStatus, WorkerExit

MakeRun = Callable[..., Any]


def losses(run: Any) -> list[float]:
    return [loss for loss, *_ in run.curve().values()]


def test_a_run_learns_and_says_what_it_measured(make_run: MakeRun) -> None:
    """It ends with a model, its metrics beside the baseline, and figures of speed that agree with each other."""
    run = make_run(max_steps=60, learning_rate=3e-3, samples=64)
    assert run.work() == WorkerExit.DONE
    assert losses(run)[-1] < 0.6 * losses(run)[0]
    result = run.result()
    assert result["steps"] == 60
    assert result["samples"] == 960
    assert result["baseline"] == {"accuracy": 0.25}
    assert 0 < result["median_step_s"] <= result["p90_step_s"]
    assert result["tokens_per_s"] > result["samples_per_s"] > 0
    assert 0 <= result["data_wait_fraction"] < 1
    assert result["peak_host_rss_bytes"] > 10_000_000
    assert (run.folder.model / "model.pt").exists()
    assert run.folder.state().step == read_progress(run.folder.path).step == 60
    assert run.work() == WorkerExit.DONE  # a finished run is not trained again
    assert len(run.lines()) == 60


def test_micro_batches_give_the_loss_of_the_whole_batch(make_run: MakeRun) -> None:
    """Without dropout, a global batch cut in any way gives the same loss: a mean over samples, not over pieces."""
    whole = make_run("whole", dropout=0.0, max_steps=8)
    assert whole.work() == WorkerExit.DONE
    for micro_batch in (1, 3, 8, 64):
        pieces = make_run(f"cut-{micro_batch}", dropout=0.0, max_steps=8, micro_batch=micro_batch)
        assert pieces.work() == WorkerExit.DONE
        assert losses(pieces) == pytest.approx(losses(whole), abs=2e-6), micro_batch


def test_the_preflight_step_leaves_no_trace(make_run: MakeRun, monkeypatch: pytest.MonkeyPatch) -> None:
    """With dropout and a buffer that counts passes, the curve has the same bits with and without it."""
    checked, unchecked = make_run("checked", max_steps=5), make_run("unchecked", max_steps=5)
    assert checked.work() == WorkerExit.DONE
    monkeypatch.setattr(Preflight, "run", lambda _, micro_batch: micro_batch)
    assert unchecked.work() == WorkerExit.DONE
    assert checked.curve() == unchecked.curve()
    assert len(checked.events(EventKind.PREFLIGHT)) == 1


def test_lines_of_metrics_are_means_since_the_line_before(make_run: MakeRun) -> None:
    """Logged every 4 steps and at the end: the mean of the losses that a run logging each step has."""
    each, some = make_run("each", max_steps=10), make_run("some", max_steps=10, log_every_steps=4)
    assert each.work() == some.work() == WorkerExit.DONE
    every = losses(each)
    assert list(some.curve()) == [4, 8, 10]
    means = [sum(every[0:4]) / 4, sum(every[4:8]) / 4, sum(every[8:10]) / 2]
    assert losses(some) == pytest.approx(means, abs=1e-12)
    assert [(line["steps"], line["samples"]) for line in some.lines()] == [(4, 16), (4, 16), (2, 16)]
    tokens = sum(line["tokens"] * line["steps"] for line in some.lines())
    assert tokens == sum(line["tokens"] for line in each.lines())


def test_evaluation_on_the_way_changes_nothing(make_run: MakeRun) -> None:
    """Judged every 3 steps: events with figures, and the same bits in the curve."""
    plain, judged = make_run("plain", max_steps=10), make_run("judged", max_steps=10, evaluate_every_steps=3)
    assert plain.work() == judged.work() == WorkerExit.DONE
    assert plain.curve() == judged.curve()
    assert [event.fields["step"] for event in judged.events(EventKind.EVALUATED)] == [3, 6, 9, 10]


def test_a_stop_request_saves_and_ends(make_run: MakeRun) -> None:
    """The file `stop` ends the run with a checkpoint; without it, the next attempt goes on from there."""
    run = make_run(max_steps=10)
    run.folder.stop_request.touch()
    assert run.work() == WorkerExit.STOPPED
    run.folder.stop_request.unlink()
    assert run.work() == WorkerExit.DONE
    assert len(run.lines()) == 10


def test_a_notice_in_the_folder_is_as_good_as_a_signal(make_run: MakeRun, tiny: Any) -> None:
    """The file says how many seconds are left; what was done until then is on the disk."""
    run = make_run(max_steps=10)

    def warned(spec: Any) -> Any:
        def collate(items: Any) -> Any:
            (run.folder.path / "notice").write_text("5.0\n")
            return tiny.collate(items)

        return replace(tiny.prepare(spec), collate=collate)

    assert run.work(warned) == WorkerExit.PREEMPTED
    assert run.events(EventKind.INTERRUPTED)[0].fields["signal"] == "notice"
    (run.folder.path / "notice").unlink()
    assert run.work() == WorkerExit.DONE
    assert list(run.curve()) == list(range(1, 11))


@pytest.mark.parametrize("at", [0, 3])
def test_sigterm_saves_and_asks_to_be_started_again(
    make_run: MakeRun, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    """Sent in the middle of a step; what was done is on the disk, what follows has the same bits."""
    whole, run = make_run("whole", max_steps=10), make_run("run", max_steps=10)
    assert whole.work() == WorkerExit.DONE
    monkeypatch.setenv("TINY_SIGNAL_AT", str(at))
    assert run.work() == WorkerExit.PREEMPTED
    assert run.events(EventKind.INTERRUPTED)[0].fields["signal"] == "SIGTERM"
    monkeypatch.delenv("TINY_SIGNAL_AT")
    assert run.work() == WorkerExit.DONE
    assert run.curve() == whole.curve()
    assert sum(event.fields["lost_steps"] for event in run.events(EventKind.RESUMED)) == 0


def test_a_step_that_outlasts_the_notice_is_left_undone(make_run: MakeRun, monkeypatch: pytest.MonkeyPatch) -> None:
    """With no time left, the micro-batches already done are given up, and done again after the restart."""
    whole, run = make_run("whole", max_steps=6, micro_batch=4), make_run("run", max_steps=6, micro_batch=4)
    assert whole.work() == WorkerExit.DONE
    monkeypatch.setenv("TINY_SIGNAL_AT", "9")  # passes 8 to 11 are the third step
    monkeypatch.setenv("TONNAGE_NOTICE_S", "0")
    assert run.work() == WorkerExit.PREEMPTED
    assert run.folder.state().checkpoint_step == 2
    monkeypatch.delenv("TINY_SIGNAL_AT")
    assert run.work() == WorkerExit.DONE
    assert run.curve() == whole.curve()


def test_sigterm_cuts_an_evaluation_short(make_run: MakeRun, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the end of a run: the trained model is in a checkpoint, and the next attempt only judges and saves it."""
    run = make_run(max_steps=3)
    monkeypatch.setenv("TINY_SIGNAL_AT", "3")  # the first pass after three steps is the evaluation's
    assert run.work() == WorkerExit.PREEMPTED
    assert not run.folder.result_file.exists()
    monkeypatch.delenv("TINY_SIGNAL_AT")
    assert run.work() == WorkerExit.DONE
    assert len(run.lines()) == 3
    assert run.result()["steps"] == 3


def test_a_loss_that_is_no_number_ends_the_run(
    make_run: MakeRun, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Step and last good checkpoint are named, also one that a slow disk still writes; nothing is saved after."""
    run = make_run(max_steps=20)
    monkeypatch.setenv("TINY_NAN_AT", "7")
    write = CheckpointWriter._write

    def write_slowly(writer: CheckpointWriter, snapshot: Snapshot) -> None:
        time.sleep(0.3)  # longer than the steps from the checkpoint to the loss
        write(writer, snapshot)

    monkeypatch.setattr(CheckpointWriter, "_write", write_slowly)
    assert run.work() == WorkerExit.DIVERGED
    said = run.events(EventKind.STOPPING)[0].fields
    assert said["reason"] == "Diverged"
    assert said["message"] == "loss or gradients are no numbers at step 8; the last good checkpoint is step 5"
    assert said["message"] in capsys.readouterr().err
    assert [path.name for path in run.folder.checkpoints.iterdir()] == ["step-00000005"]
    assert max(run.curve()) == 7
    json.loads(run.folder.metrics_file.read_text().splitlines()[-1])


def test_bad_input_of_a_task_is_passed_on(make_run: MakeRun) -> None:
    """What the task says stands in the journal; the exit code says not to try again."""

    def program(_: Any) -> Any:
        raise InputError("rows.jsonl:3: no column 'text'", hint="name it under `columns`")

    run = make_run()
    assert run.work(program) == WorkerExit.BAD_INPUT
    fields = run.events(EventKind.STOPPING)[0].fields
    assert fields["message"] == "rows.jsonl:3: no column 'text'"
    assert fields["hint"] == "name it under `columns`"
    assert run.folder.state().state is RunStatus.STOPPING


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"optimizer": "adamw-8bit"}, "needs an NVIDIA GPU"),
        ({"precision": "fp16"}, "needs an NVIDIA GPU"),
        ({"precision": "tf32"}, "needs an NVIDIA GPU"),
        ({"precision": "fp8"}, "fp8"),
        ({"recompute": "full"}, "cannot recompute"),
        ({"samples": 0}, "no sample"),
    ],
)
def test_what_cannot_be_done_here_is_refused(make_run: MakeRun, said: dict[str, Any], message: str) -> None:
    """Exit code 2 before the first step, never something else done in silence."""
    run = make_run(**said)
    assert run.work() == WorkerExit.BAD_INPUT
    assert message in run.events(EventKind.STOPPING)[0].fields["message"]


def test_other_data_than_at_the_start_is_refused(make_run: MakeRun, tiny: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run whose data has grown would learn some samples twice and some never."""
    run = make_run(max_steps=10)
    monkeypatch.setenv("TINY_SIGNAL_AT", "3")
    assert run.work() == WorkerExit.PREEMPTED

    def grown(spec: Any) -> Any:
        prepared = tiny.prepare(spec)
        return replace(prepared, train=[*prepared.train, prepared.train[0]])

    assert run.work(grown) == WorkerExit.BAD_INPUT
    assert "belongs to 200 samples" in run.events(EventKind.STOPPING)[0].fields["message"]


@pytest.mark.parametrize("optimizer", ["adamw", "sgd", "adafactor"])
@pytest.mark.parametrize("precision", ["bf16", "bf16-true"])
def test_optimizers_go_on_where_they_were(
    make_run: MakeRun, monkeypatch: pytest.MonkeyPatch, optimizer: str, precision: str
) -> None:
    """The state of each optimizer, in each 16-bit arithmetic of a CPU, survives a restart bit for bit."""
    said = {"optimizer": optimizer, "precision": precision, "schedule": "cosine", "warmup_fraction": 0.3}
    whole, run = make_run("whole", max_steps=4, **said), make_run("run", max_steps=4, **said)
    assert whole.work() == WorkerExit.DONE
    monkeypatch.setenv("TINY_SIGNAL_AT", "2")
    assert run.work() == WorkerExit.PREEMPTED
    monkeypatch.delenv("TINY_SIGNAL_AT")
    assert run.work() == WorkerExit.DONE
    assert run.curve() == whole.curve()


def test_checkpoints_by_the_clock(make_run: MakeRun) -> None:
    """With an interval in seconds that each step exceeds, each step is saved; with a long one only the last."""
    often = make_run("often", max_steps=4, checkpoint=CheckpointSpec(every_s=0.0, keep=9, asynchronous=False))
    seldom = make_run("seldom", max_steps=4, checkpoint=CheckpointSpec(every_s=3600.0, keep=9))
    assert often.work() == seldom.work() == WorkerExit.DONE
    assert [event.fields["step"] for event in often.events(EventKind.CHECKPOINT)] == [1, 2, 3, 4]
    assert [event.fields["step"] for event in seldom.events(EventKind.CHECKPOINT)] == [4]


def test_the_same_exception_twice_before_a_step_is_final(make_run: MakeRun) -> None:
    """A start that fails as the one before it will fail again: the exception is the reason. After a step, or where the
    user has submitted it anew, it is tried again."""
    folder, broken = make_run().folder, ValueError("no such layer: 12\nand more of it")
    assert crash_code(folder, broken) == CRASHED
    assert crash_code(folder, ValueError("another")) == CRASHED
    assert crash_code(folder, broken) == CRASHED
    assert crash_code(folder, broken) == WorkerExit.START_FAILED
    said = [event.fields["message"] for event in folder.events() if event.kind is EventKind.CRASHED]
    assert said[-1] == "ValueError: no such layer: 12"
    folder.record(EventKind.SUBMITTED, who="cli")
    assert crash_code(folder, broken) == CRASHED
    marks = ProgressWriter(folder.path)
    marks.note(3)
    marks.close()
    assert crash_code(folder, broken) == CRASHED
