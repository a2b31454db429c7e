"""Optimizer and learning-rate schedule as a specification names them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from tonnage.errors import InputError
from tonnage.runs.spec import LearningRateSchedule, TrainingSpec

if TYPE_CHECKING:
    from torch.nn import Module
    from torch.optim import Optimizer
    from torch.optim.lr_scheduler import LRScheduler


def parameter_groups(model: Module, weight_decay: float) -> list[dict[str, Any]]:
    """Trained parameters in two groups: matrices decay; biases and norms, which are vectors, do not."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    groups = [
        {"params": [p for p in trained if p.ndim >= 2], "weight_decay": weight_decay},
        {"params": [p for p in trained if p.ndim < 2], "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]


def build_optimizer(model: Module, training: TrainingSpec, *, device: str, fused: bool) -> Optimizer:
    """The optimizer over a model's trained parameters."""
    import torch

    groups, rate = parameter_groups(model, training.weight_decay), training.learning_rate
    if not groups:
        raise InputError("the model has no parameter to train", hint="use `method: full`, or name adapters (lora)")
    match training.optimizer:
        case "adamw":
            return torch.optim.AdamW(groups, lr=rate, fused=fused)
        case "sgd":
            return torch.optim.SGD(groups, lr=rate, momentum=0.9)
        case "adafactor":
            from transformers.optimization import Adafactor

            factored: Optimizer = Adafactor(groups, lr=rate, scale_parameter=False, relative_step=False)
            return factored
        case "adamw-8bit":
            return _eight_bit(groups, rate, device)


def _eight_bit(groups: list[dict[str, Any]], rate: float, device: str) -> Optimizer:
    if device != "cuda":
        raise InputError("optimizer adamw-8bit needs an NVIDIA GPU", hint="set `optimizer: adamw` on this machine")
    try:
        from bitsandbytes.optim import AdamW8bit
    except ImportError as error:
        raise InputError(
            f"optimizer adamw-8bit needs bitsandbytes: {error}",
            hint="pip install bitsandbytes, or set `optimizer: adamw`",
        ) from error
    optimizer: Optimizer = AdamW8bit(groups, lr=rate)
    return optimizer


def rate_factor(step: int, *, schedule: LearningRateSchedule, warmup: int, steps: int) -> float:
    """Share of the learning rate after `step` of `steps` optimizer steps: warm-up, then the schedule's curve.

    The curves of transformers' `get_scheduler`, whose import takes seconds, and whose `constant` knows no warm-up.

    >>> [rate_factor(step, schedule="linear", warmup=2, steps=6) for step in (0, 1, 2, 4, 6)]
    [0.0, 0.5, 1.0, 0.5, 0.0]
    """
    if step < warmup:
        return step / warmup
    left = max(0.0, (steps - step) / max(1, steps - warmup))
    if schedule == "linear":
        return left
    return (1.0 + math.cos(math.pi * (1.0 - left))) / 2 if schedule == "cosine" else 1.0


def build_schedule(optimizer: Optimizer, training: TrainingSpec, *, steps: int) -> LRScheduler:
    """Learning rate over `steps` optimizer steps, warmed up over the first of them."""
    from torch.optim.lr_scheduler import LambdaLR

    warmup = round(training.warmup_fraction * steps)
    return LambdaLR(optimizer, lambda step: rate_factor(step, schedule=training.schedule, warmup=warmup, steps=steps))
