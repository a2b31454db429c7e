"""fp16: what becomes of an update that the gradient scaler leaves out, and of a model it leaves nothing of."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("accelerate")

import torch
from accelerate import Accelerator
from accelerate.optimizer import AcceleratedOptimizer

from tonnage.recipes.batches import StepBatches
from tonnage.recipes.health import MOST_LEFT_OUT, Health
from tonnage.recipes.precision import set_matmul
from tonnage.recipes.stepping import StepOutcome, StepResult, take_step
from tonnage.recipes.team import ProcessTeam


class Line(torch.nn.Module):  # type: ignore[misc, name-defined]
    """y = w·x, whose loss is y itself: a huge x has a gradient that is no number once it is scaled."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(2))

    def forward(self, x: Any) -> Any:
        found = (self.weight * x).sum()
        return SimpleNamespace(loss=found, logits=found)


def engine_of(*, fused: bool) -> Any:
    """What a step needs of an engine, with a scaler that works on a processor as on a GPU."""
    Accelerator(cpu=True)  # accelerate's optimizer asks for its state
    model, scaler = Line(), torch.amp.GradScaler("cpu", init_scale=2.0**16)
    optimizer = AcceleratedOptimizer(
        torch.optim.AdamW(model.parameters(), lr=0.1, fused=fused), device_placement=False, scaler=scaler
    )
    steps: list[int] = []

    def clip(parameters: Any, most: float) -> Any:
        scaler.unscale_(optimizer.optimizer)
        return torch.nn.utils.clip_grad_norm_(parameters, most)

    accelerator = SimpleNamespace(
        scaler=scaler, backward=lambda loss: scaler.scale(loss).backward(), clip_grad_norm_=clip,
        optimizer_step_was_skipped=False,
    )  # fmt: skip
    machine = SimpleNamespace(accelerator=accelerator, sharded=False)
    schedule = SimpleNamespace(step=lambda: steps.append(1), steps=steps)
    return SimpleNamespace(
        machine=machine, model=model, optimizer=optimizer, schedule=schedule, team=ProcessTeam(),
        place=lambda batch: batch,
    )  # fmt: skip


def step(engine: Any, x: float, *, clip_norm: float | None = 1.0) -> StepResult:
    batch = StepBatches(micro=({"x": torch.full((2,), x)},), weights=(1.0,), samples=1, tokens=0)
    return take_step(engine, batch, weight=1.0, clip_norm=clip_norm, leave=lambda: False)


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("clip_norm", [1.0, None])
def test_an_update_that_overflows_is_left_out(fused: bool, clip_norm: float | None) -> None:
    """Weights and schedule stay, the scale is halved, and the run is not taken for a diverged one; a fused optimizer,
    which is called in any case, is no other."""
    engine = engine_of(fused=fused)
    result = step(engine, 3e38, clip_norm=clip_norm)
    assert result.outcome is StepOutcome.DONE
    assert result.skipped
    assert engine.model.weight.tolist() == [1.0, 1.0]
    assert engine.schedule.steps == []
    assert engine.machine.accelerator.scaler.get_scale() == 2.0**15
    health = Health(torch.device("cpu"))
    health.note(1, StepResult(outcome=result.outcome, loss=torch.tensor(1.0), gradient_norm=result.gradient_norm,
                              skipped=result.skipped))  # fmt: skip
    assert health.first_bad_step() is None
    result = step(engine, 1.0, clip_norm=clip_norm)
    assert not result.skipped
    assert engine.model.weight.tolist() != [1.0, 1.0]
    assert engine.schedule.steps == [1]


def test_updates_left_out_without_end_are_a_model_that_diverged() -> None:
    """The scale goes to nothing and no weight moves any more: said after so many in a row, and by no fewer."""
    health, infinite = Health(torch.device("cpu")), torch.tensor(float("inf"))
    left_out = StepResult(outcome=StepOutcome.DONE, loss=torch.tensor(1.0), gradient_norm=infinite, skipped=True)
    fine = StepResult(outcome=StepOutcome.DONE, loss=torch.tensor(1.0), gradient_norm=torch.tensor(1.0))
    for at in range(MOST_LEFT_OUT - 1):
        health.note(at, left_out)
    health.note(MOST_LEFT_OUT, fine)
    assert health.first_bad_step() is None
    for at in range(MOST_LEFT_OUT):
        health.note(100 + at, left_out)
    assert health.first_bad_step() == 100 + MOST_LEFT_OUT - 1


def test_tf32_is_taken_where_it_was_asked_for_alone() -> None:
    """By products and by convolutions, which cuDNN would compute in it by default."""
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    try:
        set_matmul("fp32")
        assert (torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32) == ("highest", False)
        set_matmul("tf32")
        assert (torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32) == ("high", True)
    finally:
        torch.set_float32_matmul_precision(before[0])
        torch.backends.cudnn.allow_tf32 = before[1]
