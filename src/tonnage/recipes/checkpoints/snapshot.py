"""All that a run needs to go on, copied to host memory in one go, and put back; the state of a shared-out model, which
all processes write and read, each its own part, so that no host holds the whole.

Of a shared-out model these are torch's distributed checkpoints (`torch.distributed.checkpoint`): what was written by so
many processes is read by any other number of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tonnage.recipes.checkpoints.reading import Checkpoint, CheckpointInvalid
from tonnage.recipes.engine import StepEngine
from tonnage.recipes.randomness import put_randomness, seed_all, take_randomness
from tonnage.recipes.team import ProcessTeam
from tonnage.values import dataclass

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module
    from torch.optim import Optimizer
SHARDS: Final = "shards"  # folder inside a checkpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A moment of a run between two steps. Nothing in it changes when training goes on."""

    step: int
    weights: Mapping[str, Tensor] | None  # None: they are written apart, by all processes
    training: Mapping[str, Any]
    position: Mapping[str, Any]

    @property
    def tensor_bytes(self) -> int:
        return sum(tensor.nbytes for tensor in (*(self.weights or {}).values(), *_tensors(self.training)))


def kept_tensors(model: Module, *, trained_only: bool) -> dict[str, Tensor]:
    """Parameters and lasting buffers by name, tied ones once; for adapters only what is trained."""
    state = model.state_dict(keep_vars=True)
    parameters = {name: p for name, p in model.named_parameters() if p.requires_grad or not trained_only}
    buffers = {} if trained_only else {name: b for name, b in model.named_buffers() if name in state}
    return {**parameters, **buffers}


def take_snapshot(engine: StepEngine, position: Mapping[str, Any], *, trained_only: bool) -> Snapshot | None:
    """Copy everything to the host, but for the weights and optimizer of a shared-out model. All processes take part;
    the others than rank 0 get None."""
    randomness = engine.team.gather(take_randomness())
    if not engine.team.main:
        return None
    sharded = engine.machine.sharded
    weights, optimizer = (None, None) if sharded else _own_state(engine, trained_only)
    scaler = engine.machine.accelerator.scaler
    training = {
        "optimizer": _on_host(optimizer),
        "schedule": _on_host(engine.schedule.state_dict()),
        "scaler": scaler.state_dict() if scaler is not None else None,
        "randomness": randomness,
    }
    held = None if weights is None else _on_host(weights)
    return Snapshot(step=int(position["step"]), weights=held, training=training, position=dict(position))


def _own_state(engine: StepEngine, trained_only: bool) -> tuple[dict[str, Tensor], Any]:
    return kept_tensors(engine.raw, trained_only=trained_only), engine.optimizer.optimizer.state_dict()


def put_state(engine: StepEngine, checkpoint: Checkpoint, *, trained_only: bool) -> None:
    """Set model, optimizer, schedule, scaler and randomness to what a checkpoint holds."""
    if (checkpoint.path / SHARDS).is_dir():
        read_shards(engine, checkpoint.path)
        training: Mapping[str, Any] = checkpoint.training()
    elif engine.machine.sharded:
        training = deal_checkpoint(engine, checkpoint, kept_tensors(engine.raw, trained_only=trained_only))
    else:
        weights, training = checkpoint.weights(), checkpoint.training()
        _put_own(engine, checkpoint, weights, trained_only)
        put_optimizer(engine.optimizer.optimizer, training["optimizer"])
    engine.schedule.load_state_dict(training["schedule"])
    if engine.machine.accelerator.scaler is not None and training["scaler"] is not None:
        engine.machine.accelerator.scaler.load_state_dict(training["scaler"])
    if len(training["randomness"]) == engine.team.world:
        put_randomness(training["randomness"][engine.team.rank])
    else:  # other processes than those that saved: none of their states would be right for all
        seed_all(int(checkpoint.position["seed"]), engine.team.rank, checkpoint.step)


def _put_own(engine: StepEngine, checkpoint: Checkpoint, weights: Mapping[str, Tensor], trained_only: bool) -> None:
    import torch

    kept = kept_tensors(engine.raw, trained_only=trained_only)
    _refuse_others(checkpoint, sorted(kept.keys() ^ weights.keys()))
    with torch.no_grad():
        for name, tensor in kept.items():
            tensor.copy_(weights[name])


def _refuse_others(checkpoint: Checkpoint, odd: Sequence[str]) -> None:
    """CheckpointInvalid where `odd` parameters are in the checkpoint or in the model alone."""
    if odd:
        raise CheckpointInvalid(
            checkpoint.path,
            f"holds other parameters than this model: {', '.join(odd[:3])}",
            hint="the code or the weights changed since it was written: start a new run under another name",
        )


def put_optimizer(optimizer: Optimizer, state: Mapping[str, Any]) -> None:
    """As `load_state_dict`, which also rounds state to its parameter's type: here it keeps the type it had."""
    optimizer.load_state_dict(dict(state))
    groups = zip(state["param_groups"], optimizer.param_groups, strict=True)
    for number, parameter in (
        pair for saved, own in groups for pair in zip(saved["params"], own["params"], strict=True)
    ):
        own_state = optimizer.state[parameter]
        for name, value in state["state"].get(number, {}).items():
            if getattr(value, "dtype", None) != getattr(own_state[name], "dtype", None):
                own_state[name] = value.to(own_state[name].device)


def _on_host(value: Any) -> Any:
    """The same structure, each tensor copied to host memory."""
    import torch

    if isinstance(value, torch.Tensor):
        return value.detach().to("cpu", copy=True).contiguous()
    if isinstance(value, Mapping):
        return {key: _on_host(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_on_host(part) for part in value]
    return value


def _tensors(value: Any) -> list[Any]:
    import torch

    if isinstance(value, torch.Tensor):
        return [value]
    parts = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    return [tensor for part in parts for tensor in _tensors(part)]


# Rank 0 alone reads it and scatters it tensor by tensor: no other host holds more than its own part and one tensor.
def deal_checkpoint(engine: StepEngine, checkpoint: Checkpoint, kept: Mapping[str, Tensor]) -> Mapping[str, Any]:
    """Set the parameters and buffers `kept`, by name, and the optimizer. All processes take part; all get the rest of
    the training state. CheckpointInvalid where it holds other parameters."""
    import torch

    team = engine.team
    weights = checkpoint.weights() if team.main else {}
    _refuse_others(checkpoint, team.gather(sorted(kept.keys() ^ weights.keys()))[0])
    with torch.no_grad():
        for name, tensor in kept.items():
            tensor.copy_(_scattered(team, weights.pop(name, None), tensor))
    training = checkpoint.training() if team.main else {}
    _deal_optimizer(engine, training.pop("optimizer", None))
    rest: Mapping[str, Any] = team.gather(training)[0]
    return rest


def shard_bytes(engine: StepEngine) -> int:
    """Bytes of this process's part of weights and optimizer."""
    import torch
    from torch.utils._pytree import tree_leaves

    parts = [getattr(leaf, "_local_tensor", leaf) for leaf in tree_leaves(_state(engine))]
    return sum(part.nbytes for part in parts if isinstance(part, torch.Tensor))


def write_shards(engine: StepEngine, folder: Path, group: Any) -> None:
    """All processes together; the files are there once it returns."""
    from torch.distributed.checkpoint.state_dict_saver import save

    save(_state(engine), checkpoint_id=str(folder / SHARDS), process_group=group)


def start_shards(engine: StepEngine, folder: Path, group: Any) -> Future[Any]:
    """Copy this process's part to its host's memory and write it beside the training; done once all have written.

    `group`: processes over gloo for these writes alone, since what they agree on comes between the steps' own.
    """
    from torch.distributed.checkpoint.state_dict_saver import async_save

    started: Any = async_save(_state(engine), checkpoint_id=str(folder / SHARDS), process_group=group)
    found: Future[Any] = getattr(started, "upload_completion", started)
    return found


def read_shards(engine: StepEngine, folder: Path) -> None:
    """Weights and optimizer as they were written; all processes together, or one alone."""
    from torch.distributed.checkpoint.state_dict import set_state_dict
    from torch.distributed.checkpoint.state_dict_loader import load

    state = _state(engine)
    load(state, checkpoint_id=str(folder / SHARDS), process_group=engine.team.group, no_dist=engine.team.world == 1)
    set_state_dict(
        engine.model,
        engine.optimizer.optimizer,
        model_state_dict=state["model"],
        optim_state_dict=state["optimizer"],
    )


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


def _state(engine: StepEngine) -> dict[str, Any]:
    """Parameters and optimizer state by parameter's name, each process's own part of them; nothing is copied."""
    from torch.distributed.checkpoint.state_dict import get_state_dict

    model, optimizer = get_state_dict(engine.model, engine.optimizer.optimizer)
    return {"model": model, "optimizer": optimizer}
