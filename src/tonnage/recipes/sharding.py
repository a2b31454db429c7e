"""A model shared out over the processes (FSDP2).

torch's own `fully_shard`, not accelerate's wrapping of it: that one leaves out CPUs without a word, and what runs on
GPUs should be what tests run.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from tonnage.errors import InputError
from tonnage.runs.spec import RunSpec

if TYPE_CHECKING:
    from torch.nn import Module


def check_sharding(spec: RunSpec, precision: str) -> None:
    """InputError for what cannot be shared out."""
    if spec.training.sharding == "zero1":
        raise InputError("sharding zero1 is not among what FSDP does", hint="set `sharding: zero2` or `zero3`")
    if precision == "fp16":
        raise InputError("sharding and fp16 do not go together here", hint="set `precision: bf16` or `sharding: ddp`")
    if spec.training.method == "qlora" or spec.launch.device_map is not None:
        what = "a quantised model" if spec.training.method == "qlora" else "a model with a device_map"
        raise InputError(f"{what} cannot be shared out by FSDP", hint="set `sharding: ddp`")


def shard(model: Module, *, stage: str, device: str, world: int, deal: Callable[[Module], None]) -> None:
    """Share out parameters, gradients and optimizer state, in place. zero3 frees gathered weights after each layer's
    forward pass, zero2 keeps them until the backward pass is over. `deal` puts the weights of a block on the device."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(device, (world,))
    model.register_forward_hook(_as_tuple)  # before FSDP's own hook, which looks into what it is given
    for layer in layers_of(model):
        deal(layer)
        fully_shard(layer, mesh=mesh, reshard_after_forward=stage == "zero3")
    deal(model)
    fully_shard(model, mesh=mesh, reshard_after_forward=False)  # its backward pass comes next: keep what is gathered


def _as_tuple(_model: Module, _arguments: Any, output: Any) -> Any:
    """What a model puts out as a tuple with names: FSDP finds no tensors in a namespace, and then exchanges nothing."""
    if not isinstance(output, SimpleNamespace):
        return output
    return namedtuple("Output", vars(output))(**vars(output))


def layers_of(model: Module) -> list[Module]:
    """The blocks that are gathered one at a time: those transformers names, else the members of module lists."""
    from torch.nn import ModuleList

    named = set(getattr(model, "_no_split_modules", None) or ())
    found = [module for module in model.modules() if type(module).__name__ in named]
    return found or [layer for module in model.modules() if isinstance(module, ModuleList) for layer in module]
