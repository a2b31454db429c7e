"""Whether DDP must look, in every step, for trained parameters that no pass has used.

The search walks the whole graph before each backward pass, and few models need it. One sample tells: a parameter that
its pass leaves without a gradient is one that DDP would wait for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tonnage.recipes.out_of_memory import is_out_of_memory, release_memory
from tonnage.recipes.randomness import same_randomness
from tonnage.recipes.task import Prepared

if TYPE_CHECKING:
    from torch.nn import Module

    from tonnage.recipes.engine import ComputePlace

# Of transformers' configs: which experts answer, and which layers are dropped, differs from step to step.
_CHANGING: Final = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts", "layerdrop",
                    "encoder_layerdrop", "decoder_layerdrop")  # fmt: skip


def must_look_for_unused(model: Module, prepared: Prepared, machine: ComputePlace) -> bool:
    """The answer, the same on all ranks; the model, its buffers and randomness are as they were."""
    config: Any = getattr(model, "config", None)
    if machine.team.world == 1 or machine.sharded or config is None:
        return False
    if any(getattr(config, name, None) for name in _CHANGING):
        return True
    return bool(machine.team.largest(int(_leaves_one_out(model, prepared, machine))))


def _leaves_one_out(model: Module, prepared: Prepared, machine: ComputePlace) -> bool:
    from tonnage.recipes.preflight import same_buffers  # which needs an engine, and an engine needs this

    device = machine.accelerator.device
    try:
        batch = {name: value.to(device) for name, value in prepared.collate([prepared.train[0]]).items()}
        with same_randomness(), same_buffers(model):
            with machine.accelerator.autocast():
                loss = model(**batch).loss
            loss.backward()  # before the buffers are put back: it may need what the pass made of them
        return any(one.requires_grad and one.grad is None for one in model.parameters())
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
    finally:
        model.zero_grad(set_to_none=True)
    release_memory(machine.device == "cuda")
    return False  # the preflight step tells what does not fit
