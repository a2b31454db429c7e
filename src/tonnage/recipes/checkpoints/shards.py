"""The state of a shared-out model, written and read by all processes, each its own part: no host holds the whole.

torch's distributed checkpoints (`torch.distributed.checkpoint`): what was written by so many processes is read by any
other number of them.
"""

from __future__ import annotations

from concurrent.futures import Future
from pathlib import Path
from typing import Any, Final

from tonnage.recipes.engine import StepEngine

SHARDS: Final = "shards"  # folder inside a checkpoint


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


def _state(engine: StepEngine) -> dict[str, Any]:
    """Parameters and optimizer state by parameter's name, each process's own part of them; nothing is copied."""
    from torch.distributed.checkpoint.state_dict import get_state_dict

    model, optimizer = get_state_dict(engine.model, engine.optimizer.optimizer)
    return {"model": model, "optimizer": optimizer}
