"""Before the first step: would the longest samples fit? One whole step that leaves no trace."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any

from tonnage.recipes.batches import Feeder, longest_tokens
from tonnage.recipes.engine import StepEngine
from tonnage.recipes.out_of_memory import (
    RestartSmaller,
    does_not_fit,
    forget_peak,
    is_out_of_memory,
    peak_bytes,
    release_memory,
    state_does_not_fit,
)
from tonnage.recipes.randomness import same_randomness
from tonnage.runs.folder import RunFolder
from tonnage.runs.journal import EventKind
from tonnage.runs.spec import RunSpec
from tonnage.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Preflight:
    """Finds the largest micro-batch, from the one asked for by halves, that the longest samples fit with."""

    engine: StepEngine
    feeder: Feeder
    longest: tuple[int, ...]  # positions, longest first, at least one micro-batch of them
    spec: RunSpec
    folder: RunFolder

    def run(self, micro_batch: int) -> int:
        """The micro-batch to train with. DoesNotFit where one sample is too much, or what no batch changes."""
        with self._state() as updates:
            while True:
                tokens, fits = self._try(micro_batch, updates=updates)
                if self.engine.team.largest(int(not fits)) == 0:
                    self._record(EventKind.PREFLIGHT, micro_batch=micro_batch, **tokens)
                    return micro_batch
                micro_batch = halve(self.engine, self.folder, self.spec, micro_batch, step=None, **tokens)

    @contextmanager
    def _state(self) -> Iterator[bool]:
        """The optimizer's state, made for the trial; whether it was."""
        with ExitStack() as stack:
            try:
                updates = stack.enter_context(trial_updates(self.engine))
            except (MemoryError, RuntimeError) as error:
                if not is_out_of_memory(error):
                    raise
                raise state_does_not_fit(self.spec) from error
            yield updates

    def _record(self, kind: EventKind, **fields: Any) -> None:
        if self.engine.team.main:
            peak = peak_bytes(self.engine.on_gpu)
            self.folder.record(kind, who="rank0", peak_bytes=peak, device=self.engine.machine.device, **fields)

    def _try(self, micro_batch: int, *, updates: bool) -> tuple[dict[str, int], bool]:
        """Sizes of the batch, and whether it fits."""
        sizes = {"tokens": 0, "longest_tokens": 0}
        try:
            batch = self.feeder.collate([*self.longest[:micro_batch]])
            sizes["longest_tokens"] = longest_tokens(batch)
            sizes["tokens"] = sizes["longest_tokens"] * micro_batch
            with same_randomness(), same_buffers(self.engine.raw):
                self._pass(batch)
                if updates:
                    trial_update(self.engine, self.spec.training.clip_norm)
            fits = True
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
            fits = False
        self.engine.optimizer.zero_grad(set_to_none=True)
        if not fits and self.engine.machine.sharded:
            restart_smaller(self.engine, self.folder, self.spec, micro_batch, step=None, **sizes)
        return sizes, fits

    def _pass(self, batch: Mapping[str, Any]) -> None:
        """Forward and back, compiled where the run is. Nothing is exchanged: each process may run short by itself."""
        engine = self.engine
        accelerator, sharded = engine.machine.accelerator, engine.machine.sharded
        with nullcontext() if sharded or engine.team.world == 1 else accelerator.no_sync(engine.model):
            accelerator.backward(engine.model(**engine.place(batch)).loss)


@contextmanager
def same_buffers(model: Any) -> Iterator[None]:
    """What a pass changes without the optimizer, such as running means, is put back."""
    import torch

    kept = {name: buffer.detach().clone() for name, buffer in model.named_buffers()}
    try:
        yield
    finally:
        with torch.no_grad():
            for name, buffer in model.named_buffers():
                buffer.copy_(kept[name])


def halve(engine: StepEngine, folder: RunFolder, spec: RunSpec, micro_batch: int, **fields: Any) -> int:
    """Half the micro-batch, with its event. DoesNotFit where there is no half."""
    release_memory(engine.on_gpu)
    if engine.team.main:
        _record_shortage(engine, folder, spec, micro_batch, **fields)
    if micro_batch == 1:
        training = spec.training
        raise does_not_fit(fields.get("longest_tokens", 0), recompute=training.recompute, method=training.method)
    forget_peak(engine.on_gpu)
    return micro_batch // 2


def restart_smaller(engine: StepEngine, folder: RunFolder, spec: RunSpec, micro_batch: int, **fields: Any) -> None:
    """Journal the half and end this process: the others wait in an exchange that cannot be finished."""
    _record_shortage(engine, folder, spec, micro_batch, **fields)
    if micro_batch == 1:
        training = spec.training
        raise does_not_fit(fields.get("longest_tokens", 0), recompute=training.recompute, method=training.method)
    raise RestartSmaller(f"memory ran out at micro-batch {micro_batch}: all processes start again with half of it")


def _record_shortage(engine: StepEngine, folder: RunFolder, spec: RunSpec, micro_batch: int, **fields: Any) -> None:
    """The event, with all that a row of measured memory needs."""
    said = {name: value for name, value in fields.items() if value is not None}
    folder.record(
        EventKind.OUT_OF_MEMORY,
        who=f"rank{engine.team.rank}",
        micro_batch=micro_batch,
        next_micro_batch=micro_batch // 2,
        peak_bytes=peak_bytes(engine.on_gpu),
        capacity_bytes=capacity_bytes(engine.on_gpu),
        device=engine.machine.device,
        precision=engine.machine.precision,
        recompute=spec.training.recompute,
        processes=engine.team.world,
        **said,
    )


def capacity_bytes(on_gpu: bool) -> int:
    """Memory of the device that ran short."""
    if on_gpu:
        import torch

        return int(torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory)
    import psutil

    return int(psutil.virtual_memory().total)


@contextmanager
def trial_updates(engine: StepEngine) -> Iterator[bool]:
    """Inside, the optimizer holds its state, as it will from the second step on, and its learning rate is 0.

    False: it held state before, of a checkpoint; that must not move, so no trial update may be made. State that was
    made here is given up at the end, so that the first real step begins with none.
    """
    optimizer: Any = engine.optimizer.optimizer
    if optimizer.state:
        yield False
        return
    rates = [group["lr"] for group in optimizer.param_groups]
    try:
        for group in optimizer.param_groups:
            group["lr"] = 0.0
        _make_state(optimizer)
        yield True
    finally:
        optimizer.state.clear()
        optimizer.zero_grad(set_to_none=True)
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = rate


def _make_state(optimizer: Any) -> None:
    """Optimizers make their state in the first step: take it with gradients of zeros."""
    import torch

    for group in optimizer.param_groups:
        for parameter in group["params"]:
            parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


def trial_update(engine: StepEngine, clip_norm: float | None) -> None:
    """The end of a step: norm and update, with gradients of zeros so that an infinite one cannot touch a weight.

    Not through accelerate: its gradient scaler would count the step.
    """
    import torch

    parameters = [parameter for parameter in engine.raw.parameters() if parameter.grad is not None]
    if clip_norm:
        torch.nn.utils.clip_grad_norm_(parameters, clip_norm)
    for parameter in parameters:
        assert parameter.grad is not None
        parameter.grad.zero_()
    engine.optimizer.optimizer.step()
