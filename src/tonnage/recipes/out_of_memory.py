"""What is an out-of-memory error, and what to do after one: half the micro-batch, the same global batch."""

from __future__ import annotations

import gc
import resource
import sys

from tonnage.errors import TonnageError
from tonnage.runs.folder import RunFolder
from tonnage.runs.journal import EventKind
from tonnage.runs.spec import RunSpec

_SAID = (
    "out of memory",  # CUDA, HIP, XPU
    "can't allocate memory",  # torch's CPU allocator
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
    "std::bad_alloc",
)


class DoesNotFit(TonnageError):
    """Not even one sample at a time fits into memory."""


class RestartSmaller(TonnageError):
    """Memory ran out where the other processes cannot follow: all must start again; the journal says how small."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory, of the host or a device, ran out."""
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and any(said in str(error) for said in _SAID)
    )


def release_memory(on_gpu: bool) -> None:
    """Give back what the failed step held. Call it outside the `except` block, whose error holds the tensors."""
    gc.collect()
    if on_gpu:
        import torch

        torch.cuda.empty_cache()


def forget_peak(on_gpu: bool) -> None:
    """Count a device's peaks from now on: those of an attempt that did not fit say nothing of the next one."""
    if on_gpu:
        import torch

        torch.cuda.reset_peak_memory_stats()


def peak_bytes(on_gpu: bool) -> int:
    """Most memory used so far: allocated on the device, or resident on the host where the host computes."""
    if on_gpu:
        import torch

        return int(torch.cuda.max_memory_allocated())
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def journalled_micro_batch(folder: RunFolder) -> int | None:
    """The micro-batch an earlier attempt came down to or was asked to take, or None where there was neither."""
    kinds = (EventKind.OUT_OF_MEMORY, EventKind.MICRO_BATCH)
    found = [event.fields["next_micro_batch"] for event in folder.events() if event.kind in kinds]
    smaller = [int(size) for size in found if size]
    return min(smaller) if smaller else None


def does_not_fit(tokens: int, *, recompute: str, method: str) -> DoesNotFit:
    """The last word when one sample is too much, with what would help."""
    helps = [
        *(["gradient checkpointing (`recompute: full`)"] if recompute == "none" else []),
        *(["a smaller `max` of `data.seq_len`"] if tokens else []),
        *(["`method: lora`"] if method == "full" else []),
        "a device with more memory",
    ]
    size = f" of {tokens} tokens" if tokens else ""
    return DoesNotFit(f"one sample{size} at a time does not fit into memory", hint="try " + ", ".join(helps))


def state_does_not_fit(spec: RunSpec) -> DoesNotFit:
    """The last word where weights, gradients and optimizer state alone are too much."""
    training = spec.training
    helps = [
        *(["`method: lora`"] if training.method == "full" else []),
        *(["`optimizer: adamw-8bit` (on an NVIDIA GPU) or `adafactor`"] if training.optimizer == "adamw" else []),
        *(["`sharding: zero3` over several processes"] if training.sharding == "ddp" else []),
        "a device with more memory",
    ]
    message = "weights, gradients and the optimizer's state do not fit into memory, whatever the batch"
    return DoesNotFit(message, hint="try " + ", ".join(helps))
