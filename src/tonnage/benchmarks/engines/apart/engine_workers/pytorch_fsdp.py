"""PyTorch's fully sharded data parallelism (FSDP2): each rank holds its share of weights, gradients, optimizer state.

Layers are gathered one at a time. `zero3` frees a layer's gathered weights after its forward pass and gathers them
again for the backward pass, `zero2` keeps them until that is over (Rajbhandari et al. 2020, arXiv:1910.02054).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from . import pytorch_net
from .step_parts import TimedStep


class PyTorchFSDPEngine(pytorch_net.PyTorchEngine):
    def _together(self) -> Any:
        """The model in shares; one process alone holds all of it."""
        if self._world == 1:
            return self._model
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh(self._device.type, (self._world,))
        for layer in self._model:
            if isinstance(layer, self._torch.nn.Linear):
                fully_shard(layer, mesh=mesh, reshard_after_forward=self.job["sharding"] == "zero3")
        return fully_shard(self._model, mesh=mesh, reshard_after_forward=False)

    def settle(self) -> None:
        """The shares of each epoch become whole on every rank."""
        if self._world > 1:
            self._states = [{name: value.full_tensor() for name, value in state.items()} for state in self._states]

    def _step_parts(self) -> TimedStep:
        """A step without exchange is one of a copy that is not shared out: the same products, the whole optimizer."""
        if self._world == 1:
            return self._parts
        alone = self._network().to(self._device)
        return replace(self._parts, apart=(alone, self._optimizer(alone)))
