"""One optimizer step: micro-batches forward and backward, one update. It leaves no trace where it is not finished."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from enum import IntEnum
from typing import TYPE_CHECKING, Any

from tonnage.recipes.batches import StepBatches
from tonnage.recipes.engine import StepEngine
from tonnage.recipes.out_of_memory import is_out_of_memory
from tonnage.values import dataclass

if TYPE_CHECKING:
    from torch import Tensor


class StepOutcome(IntEnum):
    """How a step ended; where processes differ, the largest holds for all."""

    DONE = 0
    ABANDONED = 1  # its machine is taken before it could end
    OUT_OF_MEMORY = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """`loss` is this process's share of the mean over the global batch, still on the device."""

    outcome: StepOutcome
    loss: Tensor | None = None
    gradient_norm: Tensor | None = None
    skipped: bool = False  # fp16: the scaler left the update out
    late: bool = False  # memory ran out where others already wait, or in the update: only a restart helps


def take_step(
    engine: StepEngine, batches: StepBatches, *, weight: float, clip_norm: float | None, leave: Callable[[], bool]
) -> StepResult:
    """Forward, backward and update. `weight`: labels of the whole global batch; `leave`: give the step up now?"""
    loss, outcome, late = _gradients(engine, batches, weight, leave)
    if outcome is not StepOutcome.DONE:
        engine.optimizer.zero_grad(set_to_none=True)
        return StepResult(outcome=outcome, late=late)
    try:
        norm, skipped = _update(engine, clip_norm)
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        # Some weights may be updated and others not: only the newest checkpoint is a state to go on from.
        return StepResult(outcome=StepOutcome.OUT_OF_MEMORY, late=True)
    engine.optimizer.zero_grad(set_to_none=True)
    return StepResult(outcome=StepOutcome.DONE, loss=loss, gradient_norm=norm, skipped=skipped)


def _update(engine: StepEngine, clip_norm: float | None) -> tuple[Any, bool]:
    """Norm of the gradients (None: not asked for), and whether the scaler left the update out."""
    accelerator = engine.machine.accelerator
    norm: Any = accelerator.clip_grad_norm_(engine.model.parameters(), clip_norm) if clip_norm else None
    if norm is not None and engine.machine.sharded:
        norm = norm.full_tensor()
    skipped = _stepped_not(engine)
    if not skipped:
        engine.schedule.step()
    return norm, skipped


def _stepped_not(engine: StepEngine) -> bool:
    """Step the optimizer; whether the fp16 scaler left the update out.

    The scaler lowers its scale then and only then. accelerate's own answer is taken from whether the optimizer was
    called, and a fused one is called in any case: it looks for infinite gradients by itself, on the device.
    """
    scaler = engine.machine.accelerator.scaler
    before = None if scaler is None else scaler.get_scale()
    engine.optimizer.step()
    return before is not None and scaler.get_scale() < before


def _gradients(
    engine: StepEngine, batches: StepBatches, weight: float, leave: Callable[[], bool]
) -> tuple[Any, StepOutcome, bool]:
    """Gradients of the mean over the global batch, and this process's share of that mean.

    Processes agree once, before the backward pass that exchanges gradients: until then each can still turn back.
    """
    total: Any = 0.0
    own, agreed = StepOutcome.DONE, engine.team.world == 1
    accelerator, count = engine.machine.accelerator, len(batches.micro)
    for index, (batch, part) in enumerate(zip(batches.micro, batches.weights, strict=True)):
        last = index == count - 1
        if not engine.machine.sharded and leave():
            own = StepOutcome.ABANDONED
        if own is StepOutcome.DONE:
            try:
                with nullcontext() if last or engine.machine.sharded else accelerator.no_sync(engine.model):
                    share = _share(engine, batch, part, weight)
                    if last and not agreed and not engine.machine.sharded:
                        agreed, own = True, _agree(engine, own)
                    if own is StepOutcome.DONE:
                        accelerator.backward(share * engine.team.world)
                        total = total + share.detach()
            except (MemoryError, RuntimeError) as error:
                if not is_out_of_memory(error):
                    raise
                own = StepOutcome.OUT_OF_MEMORY
                if engine.team.world > 1 and (engine.machine.sharded or agreed):
                    return None, own, True
    if not agreed and not engine.machine.sharded:
        own = _agree(engine, own)
    return total, own, False


def _share(engine: StepEngine, batch: Any, part: float, weight: float) -> Tensor:
    """A micro-batch's part of the mean loss; a batch without a label counts nothing, where its own mean is 0/0."""
    out = engine.model(**engine.place(batch))
    loss: Tensor = out.loss if part else out.logits.sum() * 0
    return loss * (part / weight)


def _agree(engine: StepEngine, own: StepOutcome) -> StepOutcome:
    return StepOutcome(engine.team.largest(int(own)))
