"""An optimizer step that takes the memory of a real one and changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tonnage.recipes.engine import StepEngine


@contextmanager
def trial_updates(engine: StepEngine) -> Iterator[bool]:
    """Inside, the optimizer holds its state, as it will from the second step on, and its learning rate is 0.

    False: it held state before, of a checkpoint; that must not move, so no trial update may be made. State that was
    made here is given up at the end, so that the first real step begins with none.
    """
    optimizer: Any = engine.optimizer.optimizer
    if optimizer.state:
        yield False
        return
    rates = [group["lr"] for group in optimizer.param_groups]
    try:
        for group in optimizer.param_groups:
            group["lr"] = 0.0
        _make_state(optimizer)
        yield True
    finally:
        optimizer.state.clear()
        optimizer.zero_grad(set_to_none=True)
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = rate


def _make_state(optimizer: Any) -> None:
    """Optimizers make their state in the first step: take it with gradients of zeros."""
    import torch

    for group in optimizer.param_groups:
        for parameter in group["params"]:
            parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


def trial_update(engine: StepEngine, clip_norm: float | None) -> None:
    """The end of a step: norm and update, with gradients of zeros so that an infinite one cannot touch a weight.

    Not through accelerate: its gradient scaler would count the step.
    """
    import torch

    parameters = [parameter for parameter in engine.raw.parameters() if parameter.grad is not None]
    if clip_norm:
        torch.nn.utils.clip_grad_norm_(parameters, clip_norm)
    for parameter in parameters:
        assert parameter.grad is not None
        parameter.grad.zero_()
    engine.optimizer.optimizer.step()
