"""A model that FSDP shared out becomes whole on rank 0's disk, one tensor at a time, so that it can be saved.

Each tensor is gathered, written to a file of its own, and given back to the model as a mapping of that file. Rank 0's
host never holds more than one whole tensor in memory of its own; what it reads while it saves are pages of files, which
the system drops where memory is short.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module


def gather_onto_disk(model: Module, scratch: Path | None, *, only_trained: bool) -> None:
    """Replace shared-out parameters by whole ones; all processes take part. The model can be saved afterwards, not
    trained.

    `scratch`: a folder for the tensors, made here, to be kept until the model is saved; None: this process keeps none.
    `only_trained`: frozen parameters become shapes without content. OSError where the disk cannot take a tensor: only
    on the process that met it, and only after the last tensor, so that no other process waits for this one.
    """
    from torch.distributed.fsdp import FSDPModule

    fault: OSError | None = None

    for module in model.modules():  # a group whose last use was a pass forward still holds its gathered parameters,
        if isinstance(module, FSDPModule):  # which would be taken for ones that were never shared out
            module.reshard()
    if scratch is not None:
        scratch.mkdir(mode=0o700)
    whole: dict[int, tuple[Any, Any]] = {}  # by id, with the parameter itself, so that no other takes its id
    for module in list(model.modules()):
        for name, parameter in list(module.named_parameters(recurse=False)):
            if id(parameter) not in whole and hasattr(parameter, "full_tensor"):
                place = None if scratch is None or fault is not None else scratch / str(len(whole))
                full = _whole(parameter, only_trained=only_trained)
                try:
                    whole[id(parameter)] = (parameter, None if place is None else _kept(full, place))
                except OSError as error:
                    fault, whole[id(parameter)] = error, (parameter, None)
                del full
            if scratch is not None and fault is None and id(parameter) in whole:
                setattr(module, name, whole[id(parameter)][1])
    if fault is not None:
        raise fault


def _whole(parameter: Any, *, only_trained: bool) -> Tensor:
    """The whole of a parameter, gathered by all processes; a shape without content where it is frozen and not saved."""
    import torch

    if only_trained and not parameter.requires_grad:
        return torch.empty(parameter.shape, dtype=parameter.dtype, device="meta")
    with torch.no_grad():
        full: Tensor = parameter.full_tensor()
    return full


def _kept(full: Tensor, place: Path) -> Any:
    """A parameter whose content is in a file."""
    import torch

    return torch.nn.Parameter(full if full.is_meta else _on_disk(full, place), requires_grad=False)


def _on_disk(tensor: Tensor, place: Path) -> Tensor:
    """A tensor's content in a file, and the tensor that reads it from there."""
    import torch

    if tensor.numel() == 0:
        return tensor.cpu()
    held = tensor.cpu().contiguous().view(-1)
    with place.open("wb") as file:
        file.write(held.view(torch.uint8).numpy().data)
    found = torch.from_file(str(place), shared=True, size=math.prod(tensor.shape), dtype=tensor.dtype)
    return found.view(tensor.shape)
