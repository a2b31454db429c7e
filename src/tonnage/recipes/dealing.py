"""Weights of a shared-out model, read once: rank 0 has them on its host, the others know their shapes alone.

Each rank reading a whole model takes its host `ranks` times the model: 8 x 280 GB for 70 billion parameters in 32 bits.
Here rank 0 reads them in the precision they are stored in and deals them out block by block, just before FSDP cuts the
block up: a device never holds more whole weights than those of one block, another rank's host none.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from tonnage.errors import TonnageError
from tonnage.recipes.team import ProcessTeam
from tonnage.runs.spec import RunSpec

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module


def is_dealt(spec: RunSpec) -> bool:
    """Whether the model of this run is shared out over several processes."""
    return spec.training.sharding != "ddp" and int(os.environ.get("WORLD_SIZE", "1")) > 1


def reads_weights(spec: RunSpec) -> bool:
    """Whether this process reads the weights: every one, but where rank 0 deals them out."""
    return not is_dealt(spec) or os.environ.get("RANK", "0") == "0"


def where_built(spec: RunSpec) -> AbstractContextManager[Any]:
    """Where this process builds its model: without memory for the weights, if rank 0 deals them out."""
    if reads_weights(spec):
        return nullcontext()
    import torch

    return torch.device("meta")


class Dealer:
    """Gives each rank's device the weights and buffers that rank 0 has. All ranks take part, in the same order.

    `kind`: what weights are held in (torch's dtype; None: as rank 0 has them).
    """

    def __init__(self, team: ProcessTeam, device: Any, kind: Any) -> None:
        self._team, self._device, self._kind = team, device, kind
        self._before: list[Tensor] = []  # emptied, but kept: their ids must stay their own
        self._dealt: set[int] = set()

    def deal(self, module: Module) -> None:
        """All tensors of a module that are not dealt yet. Tied weights stay tied."""
        places = [place for place in _places(module) if id(place[2]) not in self._dealt]
        tensors = list({id(tensor): tensor for _, _, tensor in places}.values())
        known = self._team.gather([(tuple(one.shape), one.dtype) for one in tensors])[0]
        if [shape for shape, _ in known] != [tuple(one.shape) for one in tensors]:
            raise TonnageError(f"{type(module).__name__} is built otherwise on rank 0 than on rank {self._team.rank}")
        given = {id(one): self._give(one, kind) for one, (_, kind) in zip(tensors, known, strict=True)}
        self._before += tensors
        for holder, name, tensor in places:
            holder[name] = given[id(tensor)]

    def _give(self, tensor: Tensor, kind: Any) -> Any:
        import torch

        is_weight = isinstance(tensor, torch.nn.Parameter)
        kind = self._kind if self._kind is not None and is_weight and kind.is_floating_point else kind
        if self._team.main:
            whole = tensor.detach().to(self._device, kind)
            whole = whole.clone() if whole.data_ptr() == tensor.data_ptr() else whole
            tensor.data = tensor.data.new_empty(0)  # the host's copy is done with
        else:
            whole = torch.empty(tensor.shape, dtype=kind, device=self._device)
        torch.distributed.broadcast(whole, 0)
        found = torch.nn.Parameter(whole, requires_grad=tensor.requires_grad) if is_weight else whole
        self._dealt.add(id(found))
        return found


def _places(module: Module) -> Iterator[tuple[Any, str, Any]]:
    """(where it is kept, name, tensor) of all weights and buffers; those that FSDP has cut up already are left out."""
    for part in module.modules():
        for holder in (part._parameters, part._buffers):
            for name, tensor in list(holder.items()):
                if tensor is not None and not hasattr(tensor, "full_tensor"):
                    yield holder, name, tensor
