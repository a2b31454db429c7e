"""Memory that runs out costs a step, not the run."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch

from tonnage.recipes.out_of_memory import is_out_of_memory
from tonnage.recipes.preflight import Preflight
from tonnage.recipes.worker import CRASHED
from tonnage.runs.journal import EventKind
from tonnage.runs.states import WorkerExit

MakeRun = Callable[..., Any]
LONGEST = 24  # tokens of the tiny task's longest sentences


def losses(run: Any) -> list[float]:
    return [loss for loss, *_ in run.curve().values()]


def test_the_preflight_step_finds_the_micro_batch_that_fits(make_run: MakeRun, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory for five of the longest sentences: 16 and 8 fail, 4 is taken, and the losses are those of 16."""
    ample, scarce = (make_run(name, dropout=0.0, max_steps=6) for name in ("ample", "scarce"))
    assert ample.work() == WorkerExit.DONE
    monkeypatch.setenv("TINY_TOKEN_LIMIT", str(5 * LONGEST))
    assert scarce.work() == WorkerExit.DONE
    shortages = [event.fields for event in scarce.events(EventKind.OUT_OF_MEMORY)]
    assert [(said["micro_batch"], said["next_micro_batch"]) for said in shortages] == [(16, 8), (8, 4)]
    assert {said["longest_tokens"] for said in shortages} == {LONGEST}
    assert all(said["peak_bytes"] > 0 and said["capacity_bytes"] > 0 for said in shortages)
    assert scarce.events(EventKind.PREFLIGHT)[0].fields["micro_batch"] == 4
    assert scarce.result()["micro_batch"] == 4
    assert losses(scarce) == pytest.approx(losses(ample), abs=2e-6)


def test_a_step_that_runs_out_of_memory_is_done_again_smaller(
    make_run: MakeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the middle of a run: no step is lost or seen twice, the global batch stays what it was."""
    ample, scarce = (make_run(name, dropout=0.0, max_steps=8) for name in ("ample", "scarce"))
    assert ample.work() == WorkerExit.DONE
    monkeypatch.setenv("TINY_TOKEN_LIMIT", "200")
    monkeypatch.setenv("TINY_LIMIT_FROM", "3")
    assert scarce.work() == WorkerExit.DONE
    first = scarce.events(EventKind.OUT_OF_MEMORY)[0].fields
    assert first["step"] == 3
    assert (first["micro_batch"], first["next_micro_batch"]) == (16, 8)
    assert losses(scarce) == pytest.approx(losses(ample), abs=2e-6)
    assert len(scarce.lines()) == 8


def test_an_update_that_runs_out_of_memory_is_told_before_the_first_step(
    make_run: MakeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The preflight takes a whole step: half the micro-batch, and no other trace."""
    ample, scarce = (make_run(name, dropout=0.0, max_steps=6) for name in ("ample", "scarce"))
    assert ample.work() == WorkerExit.DONE
    monkeypatch.setenv("TINY_UPDATE_LIMIT", "8")
    assert scarce.work() == WorkerExit.DONE
    shortages = [event.fields for event in scarce.events(EventKind.OUT_OF_MEMORY)]
    assert [(said["micro_batch"], said.get("step")) for said in shortages] == [(16, None)]
    assert losses(scarce) == pytest.approx(losses(ample), abs=2e-6)


def test_an_update_that_runs_out_of_memory_later(make_run: MakeRun, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some weights may be updated, others not: the next start goes on from a checkpoint, with half the micro-batch."""
    ample, scarce = (make_run(name, dropout=0.0, max_steps=10) for name in ("ample", "scarce"))
    assert ample.work() == WorkerExit.DONE
    monkeypatch.setenv("TINY_UPDATE_LIMIT", "8")
    monkeypatch.setenv("TINY_UPDATE_FROM", "9")  # two of them are the preflight's
    assert scarce.work() == CRASHED
    shortage = scarce.events(EventKind.OUT_OF_MEMORY)[0].fields
    assert (shortage["step"], shortage["micro_batch"], shortage["next_micro_batch"]) == (6, 16, 8)
    assert scarce.work() == WorkerExit.DONE
    assert scarce.events(EventKind.RESUMED)[0].fields["step"] == 5
    newest = {line["step"]: line["loss"] for line in scarce.lines()}
    assert list(newest.values()) == pytest.approx(losses(ample), abs=2e-6)


def test_state_that_does_not_fit_ends_the_run(make_run: MakeRun, monkeypatch: pytest.MonkeyPatch) -> None:
    """No smaller micro-batch helps: said at once, with what would."""
    run = make_run(max_steps=6)
    monkeypatch.setenv("TINY_UPDATE_LIMIT", "-1")
    assert run.work() == WorkerExit.OUT_OF_MEMORY
    said = run.events(EventKind.STOPPING)[0].fields
    assert "whatever the batch" in said["message"]
    assert "`method: lora`" in said["hint"]
    assert not run.events(EventKind.OUT_OF_MEMORY)


@pytest.mark.parametrize("optimizer", ["adamw", "sgd", "adafactor"])
def test_the_preflight_step_leaves_no_trace(make_run: MakeRun, optimizer: str) -> None:
    """Weights, state and randomness are as they were: the losses are those of a run without a preflight."""
    with_it, without = (make_run(name, max_steps=4, optimizer=optimizer) for name in ("with", "without"))
    assert with_it.work() == WorkerExit.DONE
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Preflight, "run", lambda _, micro_batch: micro_batch)
        assert without.work() == WorkerExit.DONE
    assert with_it.curve() == without.curve()


def test_the_preflight_step_is_compiled_where_the_run_is(make_run: MakeRun, monkeypatch: pytest.MonkeyPatch) -> None:
    """It goes through the model that the steps go through: one pass more than there are steps."""
    passes = []

    class Compiled(torch.nn.Module):
        def __init__(self, model: torch.nn.Module) -> None:
            super().__init__()
            self.inner = model

        def forward(self, **batch: torch.Tensor) -> Any:
            passes.append(len(batch["labels"]))
            return self.inner(**batch)

    monkeypatch.setattr(torch, "compile", lambda model, **_: Compiled(model))
    run = make_run(max_steps=3, compile=True)
    assert run.work() == WorkerExit.DONE
    assert passes == [16, 16, 16, 16]


def test_a_restart_begins_with_the_micro_batch_that_fitted(make_run: MakeRun, monkeypatch: pytest.MonkeyPatch) -> None:
    """The journal remembers, also where no checkpoint was written since."""
    run = make_run(max_steps=6)
    monkeypatch.setenv("TINY_TOKEN_LIMIT", str(5 * LONGEST))
    monkeypatch.setenv("TINY_SIGNAL_AT", "0")
    assert run.work() == WorkerExit.PREEMPTED
    shortages = len(run.events(EventKind.OUT_OF_MEMORY))
    monkeypatch.delenv("TINY_SIGNAL_AT")
    assert run.work() == WorkerExit.DONE
    assert len(run.events(EventKind.OUT_OF_MEMORY)) == shortages
    assert run.events(EventKind.TRAINING)[-1].fields["micro_batch"] == 4


def test_where_one_sample_is_too_much_the_run_ends(
    make_run: MakeRun, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With an exit code of its own, the length that does not fit, and what would help."""
    run = make_run(micro_batch=2)
    monkeypatch.setenv("TINY_TOKEN_LIMIT", str(LONGEST - 1))
    assert run.work() == WorkerExit.OUT_OF_MEMORY
    said = run.events(EventKind.STOPPING)[0].fields
    assert said["reason"] == "OutOfMemory"
    assert said["message"] == "one sample of 24 tokens at a time does not fit into memory"
    assert said["hint"] == (
        "try gradient checkpointing (`recompute: full`), a smaller `max` of `data.seq_len`, `method: lora`, "
        "a device with more memory"
    )
    assert "error: one sample" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the limit on address space is Linux's")
def test_memory_that_the_system_refuses(make_run: MakeRun) -> None:
    """No injected error but a real limit: 900 MB, where a pass over 16 sentences wants 1.3 GB and its way back more."""
    run = make_run(max_steps=2)
    ended = run.start(TINY_MORE_BYTES="900000000", TINY_WIDE="850000")
    assert ended.returncode == WorkerExit.DONE, ended.stderr
    assert run.events(EventKind.OUT_OF_MEMORY)
    assert run.result()["micro_batch"] < 16


@pytest.mark.parametrize(
    ("error", "is_one"),
    [
        (MemoryError(), True),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB"), True),
        (RuntimeError("[enforce fail at alloc_cpu.cpp:127] . DefaultCPUAllocator: can't allocate memory"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), True),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), False),
        (ValueError("out of memory"), False),
    ],
)
def test_what_counts_as_out_of_memory(error: Exception, is_one: bool) -> None:
    """Messages as the host, torch and CUDA write them; any other error is passed on."""
    assert is_out_of_memory(error) is is_one


def test_torch_says_so_in_words_that_are_known() -> None:
    """The real message of this version of torch for an allocation no machine can give."""
    with pytest.raises(RuntimeError) as caught:
        torch.empty(1 << 60, dtype=torch.uint8)
    assert is_out_of_memory(caught.value)
