"""The end of a run: the model judged and saved, the figures of the run written down."""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tonnage.files import make_private, write_whole
from tonnage.recipes.checkpoints import DiskFull
from tonnage.recipes.checkpoints.writing import is_full
from tonnage.recipes.engine import StepEngine
from tonnage.recipes.environment import device_name, versions
from tonnage.recipes.evaluating import evaluate
from tonnage.recipes.interrupts import Interrupted, Interrupts
from tonnage.recipes.loop import Loop
from tonnage.recipes.out_of_memory import peak_bytes
from tonnage.recipes.task import Evaluation, Prepared
from tonnage.runs.folder import RunFolder
from tonnage.runs.journal import EventKind
from tonnage.runs.states import WorkerExit
from tonnage.workload.run_terms import OWN_TASK

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module


def finish(loop: Loop, prepared: Prepared, folder: RunFolder, interrupts: Interrupts) -> int:
    """Judge, save, write `result.json`. A signal cuts it short: nothing is lost, the next attempt does it again."""
    engine, interrupted = loop.engine, False
    fault: DiskFull | None = None
    split = prepared.validation if prepared.test is None else prepared.test
    try:
        judged = evaluate(engine, prepared, split, interrupts, loop.position)
        fault = _save(loop, prepared, folder, interrupts, judged)
    except Interrupted:
        interrupted = True
    if fault := engine.team.gather(fault)[0]:
        raise fault
    if engine.team.largest(int(interrupted)):
        if engine.team.main:
            folder.record(EventKind.INTERRUPTED, who="rank0", signal=interrupts.source, step=loop.position.step)
        return WorkerExit.PREEMPTED
    return WorkerExit.DONE


def _save(
    loop: Loop, prepared: Prepared, folder: RunFolder, interrupts: Interrupts, judged: Evaluation | None
) -> DiskFull | None:
    """Save the model and what it came to, on rank 0. Returns what kept it from that where the disk is full, so that all
    processes can end with it."""
    try:
        with whole_on_rank_0(loop, folder):
            if judged is not None and loop.engine.team.main:
                with interrupts.interruptible():
                    _write_down(loop, prepared, folder, judged)
    except Exception as error:
        if not is_full(error):
            raise
        return DiskFull(
            f"the finished model does not fit: {error}",
            hint="make room, then `tonnage resume`: its newest checkpoint is whole",
        )
    return None


@contextmanager
def whole_on_rank_0(loop: Loop, folder: RunFolder) -> Iterator[None]:
    """Within it rank 0 can save a model that was shared out; all processes take part. Of a model with adapters, those
    are whole and their base is left where it is: it is not saved."""
    engine, spec = loop.engine, loop.spec
    if not engine.machine.sharded:
        yield
        return
    scratch = _tensors_of(folder.model) if engine.team.main else None
    try:
        only_trained = spec.training.method != "full" and spec.task != OWN_TASK  # who knows what that one saves
        gather_onto_disk(engine.raw, scratch, only_trained=only_trained)
        yield
    finally:
        if scratch is not None:
            shutil.rmtree(scratch, ignore_errors=True)


def _write_down(loop: Loop, prepared: Prepared, folder: RunFolder, judged: Evaluation) -> None:
    baseline = prepared.baseline() if prepared.baseline is not None else None
    save_model(loop.engine, prepared, folder.model)
    split = "validation" if prepared.test is None else "test"
    folder.record(
        EventKind.EVALUATED, who="rank0", step=loop.model_step, split=split, finished=True, metrics=dict(judged.metrics)
    )
    result = result_of(loop, judged, baseline) | setting_of(prepared)
    write_whole(folder.result_file, json.dumps(result, indent=2, allow_nan=False) + "\n")


def _tensors_of(model: Path) -> Path:
    """Where this process keeps the tensors of a shared-out model until it is saved."""
    return model.with_name(f".{model.name}.tensors.{os.getpid()}")


def save_model(engine: StepEngine, prepared: Prepared, path: Path) -> None:
    """The finished model, in place by rename."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    for left in path.parent.glob(f".{path.name}.*"):  # by an attempt that was killed here
        if left != _tensors_of(path):
            shutil.rmtree(left)
    beside.mkdir(mode=0o700)
    model = engine.machine.accelerator.unwrap_model(engine.raw, keep_fp32_wrapper=False, keep_torch_compile=False)
    prepared.save(model, beside)
    make_private(beside)
    if path.exists():
        shutil.rmtree(path)
    os.rename(beside, path)


def result_of(loop: Loop, judged: Evaluation, baseline: Evaluation | None) -> dict[str, Any]:
    """What the run came to: how good the model is, how fast and with how much memory it was trained."""
    engine, times = loop.engine, loop.measuring.times
    memory = loop.measuring.memory()
    return {
        "metrics": dict(judged.metrics),
        "evaluated_samples": judged.samples,
        "baseline": dict(baseline.metrics) if baseline is not None else None,
        "steps": loop.position.step,
        "model_step": loop.model_step,
        "samples": loop.position.step * loop.order.global_batch,
        "epochs": loop.order.epoch(loop.position.step),
        "micro_batch": loop.position.micro_batch,
        "processes": engine.team.world,
        **times.figures(),
        "peak_allocated_bytes": memory.get("peak_allocated_bytes"),
        "peak_reserved_bytes": memory.get("peak_reserved_bytes"),
        "peak_host_rss_bytes": peak_bytes(on_gpu=False),
        "device": device_name(on_gpu=engine.on_gpu),
        "precision": engine.machine.precision,
        "versions": versions(),
    }


def setting_of(prepared: Prepared) -> dict[str, Any]:
    """What measured rows say of the model and the process beside the figures."""
    import torch

    return {"shape": dict(prepared.shape or {}), "threads": torch.get_num_threads()}


# Each tensor is gathered, written to a file of its own, and given back to the model as a mapping of that file. Rank 0's
# host never holds more than one whole tensor in memory of its own; what it reads while it saves are pages of files,
# which the system drops where memory is short.
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
