"""Ask the task how good its model is, without the training noticing."""

from __future__ import annotations

from contextlib import nullcontext

from tonnage.recipes.engine import StepEngine
from tonnage.recipes.interrupts import Interrupts
from tonnage.recipes.out_of_memory import is_out_of_memory, release_memory
from tonnage.recipes.position import Position
from tonnage.recipes.randomness import same_randomness
from tonnage.recipes.task import Evaluation, Items, Prepared


def evaluate(
    engine: StepEngine, prepared: Prepared, split: Items, interrupts: Interrupts, position: Position
) -> Evaluation | None:
    """Figures of a split. Rank 0 works for all, unless the model is shared out: then all do, on the same samples.

    Interrupted where a signal comes, unless all work together. Where memory runs out, the batch is halved.
    """
    if not engine.team.main and not engine.machine.sharded:
        return None
    import torch

    module = engine.model if engine.machine.sharded else engine.raw
    batch = position.micro_batch
    module.eval()
    try:
        may_leave = nullcontext() if engine.machine.sharded else interrupts.interruptible()
        with same_randomness(), torch.no_grad(), may_leave:
            while (found := _try(prepared, module, split, batch)) is None:
                release_memory(engine.on_gpu)
                batch //= 2
            return found
    finally:
        module.train()


def _try(prepared: Prepared, module: object, split: Items, batch: int) -> Evaluation | None:
    """None where memory ran out and a smaller batch may do."""
    try:
        return prepared.evaluate(module, split, batch)  # type: ignore[arg-type]
    except (MemoryError, RuntimeError) as error:
        if batch == 1 or not is_out_of_memory(error):
            raise
        return None
