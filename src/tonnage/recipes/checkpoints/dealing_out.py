"""The checkpoint of a whole model, as a run of one process or over `ddp` leaves it, into a model that is shared out.

Rank 0 alone reads it and scatters it tensor by tensor: no other host holds more than its own part and one tensor.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tonnage.recipes.checkpoints.reading import Checkpoint, CheckpointInvalid
from tonnage.recipes.engine import StepEngine
from tonnage.recipes.team import ProcessTeam

if TYPE_CHECKING:
    from torch import Tensor


def deal_checkpoint(engine: StepEngine, checkpoint: Checkpoint, kept: Mapping[str, Tensor]) -> Mapping[str, Any]:
    """Set the parameters and buffers `kept`, by name, and the optimizer. All processes take part; all get the rest of
    the training state. CheckpointInvalid where it holds other parameters."""
    import torch

    team = engine.team
    weights = checkpoint.weights() if team.main else {}
    if odd := team.gather(sorted(kept.keys() ^ weights.keys()))[0]:
        raise CheckpointInvalid(
            checkpoint.path,
            f"holds other parameters than this model: {', '.join(odd[:3])}",
            hint="the code or the weights changed since it was written: start the run anew under another name",
        )
    with torch.no_grad():
        for name, tensor in kept.items():
            tensor.copy_(_scattered(team, weights.pop(name, None), tensor))
    training = checkpoint.training() if team.main else {}
    _deal_optimizer(engine, training.pop("optimizer", None))
    rest: Mapping[str, Any] = team.gather(training)[0]
    return rest


def _deal_optimizer(engine: StepEngine, saved: Any) -> None:
    """`saved`: its `state_dict()`, on rank 0. Moments have the shape of their parameter and are scattered; what has
    another shape, as the number of steps, is the same for all."""
    team, optimizer = engine.team, engine.optimizer.optimizer
    groups = team.gather(saved["param_groups"] if team.main else None)[0]
    for said, own in zip(groups, optimizer.param_groups, strict=True):
        own.update({name: value for name, value in said.items() if name != "params"})
        for number, parameter in zip(said["params"], own["params"], strict=True):
            state = saved["state"].get(number, {}) if team.main else {}
            shared = team.gather({name: None if _is_like(one, parameter) else one for name, one in state.items()})[0]
            for name, value in shared.items():
                like = parameter.detach()
                optimizer.state[parameter][name] = _scattered(team, state.get(name), like) if value is None else value


def _is_like(value: Any, parameter: Any) -> bool:
    return bool(getattr(value, "shape", None) == parameter.shape)


def _scattered(team: ProcessTeam, whole: Tensor | None, like: Any) -> Any:
    """Rank 0's tensor (None elsewhere) with the shape and over the devices of `like`."""
    import torch
    from torch.distributed.tensor import DTensor, distribute_tensor

    kind = team.gather(None if whole is None else whole.dtype)[0]
    device = like.to_local().device if isinstance(like, DTensor) else like.device
    held = torch.empty(like.shape, dtype=kind, device=device) if whole is None else whole.to(device)
    if isinstance(like, DTensor):
        return distribute_tensor(held, like.device_mesh, like.placements)
    torch.distributed.broadcast(held, 0)
    return held
