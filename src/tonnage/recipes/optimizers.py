"""Optimizer and learning-rate schedule as a specification names them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tonnage.errors import InputError
from tonnage.runs.spec import TrainingSpec

if TYPE_CHECKING:
    from torch.nn import Module
    from torch.optim import Optimizer


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


def build_schedule(optimizer: Optimizer, training: TrainingSpec, *, steps: int) -> Any:
    """Learning rate over `steps` optimizer steps, warmed up over the first of them."""
    from transformers.optimization import get_scheduler

    warmup = round(training.warmup_fraction * steps)
    return get_scheduler(training.schedule, optimizer, num_warmup_steps=warmup, num_training_steps=steps)
