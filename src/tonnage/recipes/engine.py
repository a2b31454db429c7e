"""Model, optimizer and schedule on the devices at hand, wrapped by accelerate: what one training step works with."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Literal

from tonnage.errors import InputError, MissingExtra
from tonnage.recipes.dealing import Dealer
from tonnage.recipes.optimizers import build_optimizer, build_schedule
from tonnage.recipes.precision import MIXED, Precision, choose_device, choose_precision, set_matmul
from tonnage.recipes.sharding import check_sharding, shard
from tonnage.recipes.task import Prepared
from tonnage.recipes.team import ProcessTeam, gather_team
from tonnage.recipes.unused import must_look_for_unused
from tonnage.runs.spec import RunSpec
from tonnage.values import dataclass

if TYPE_CHECKING:
    from accelerate import Accelerator
    from torch import Tensor
    from torch.nn import Module

JOIN_TIMEOUT: Final = timedelta(minutes=10)  # for all processes to be there, and for one collective


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputePlace:
    """Where this process computes, before there is a model."""

    accelerator: Accelerator
    team: ProcessTeam
    device: Literal["cpu", "cuda"]
    precision: Precision
    sharded: bool  # FSDP
    joined: bool  # the process group was made here, not by who called (Ray does)

    def leave(self) -> None:
        """Part from the other processes at the end of the work."""
        if self.joined:
            import torch

            torch.distributed.destroy_process_group()


@dataclass(frozen=True, slots=True, kw_only=True)
class StepEngine:
    """Everything a step needs. `model` is `raw` as accelerate wrapped it: they share their parameters."""

    machine: ComputePlace
    raw: Module
    model: Module
    optimizer: Any
    schedule: Any

    @property
    def team(self) -> ProcessTeam:
        return self.machine.team

    def place(self, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """A batch on the device; from pinned memory without waiting."""
        device = self.machine.accelerator.device
        return {name: value.to(device, non_blocking=True) for name, value in batch.items()}

    @property
    def on_gpu(self) -> bool:
        return self.machine.device == "cuda"


def open_machine(spec: RunSpec) -> ComputePlace:
    """Join the other processes, settle device and precision. InputError for what cannot be done here."""
    try:
        import torch
        from accelerate import Accelerator
        from accelerate.utils import DistributedDataParallelKwargs, InitProcessGroupKwargs
    except ImportError as error:
        raise MissingExtra("training", "train") from error

    device = choose_device(spec.launch.device)
    precision = choose_precision(spec.training.precision, device)
    if spec.launch.threads:
        torch.set_num_threads(spec.launch.threads)
    set_matmul(precision)
    world = int(os.environ.get("WORLD_SIZE", "1"))
    sharded = spec.training.sharding != "ddp" and world > 1
    if sharded:
        check_sharding(spec, precision)
    before = torch.distributed.is_available() and torch.distributed.is_initialized()
    accelerator = Accelerator(
        mixed_precision=MIXED.get(precision, "no"),
        cpu=device == "cpu",
        dynamo_backend="inductor" if spec.training.compile else "no",
        kwargs_handlers=[
            InitProcessGroupKwargs(timeout=JOIN_TIMEOUT),
            DistributedDataParallelKwargs(broadcast_buffers=False),
        ],
    )
    team = gather_team(rank=accelerator.process_index, world=accelerator.num_processes)
    _check_cut(spec, team, sharded)
    joined = team.world > 1 and not before
    return ComputePlace(
        accelerator=accelerator, team=team, device=device, precision=precision, sharded=sharded, joined=joined
    )


def _check_cut(spec: RunSpec, team: ProcessTeam, sharded: bool) -> None:
    batch, world = spec.training.global_batch, team.world
    if batch < world or (sharded and batch % world):
        raise InputError(
            f"a global batch of {batch} cannot be shared by {world} processes"
            + (" evenly, as sharding needs" if sharded else ""),
            hint=f"set `global_batch` to a multiple of {world}, or use fewer processes",
        )


def build_engine(machine: ComputePlace, prepared: Prepared, spec: RunSpec, *, steps: int) -> StepEngine:
    """Model and optimizer placed, wrapped and scheduled."""
    import torch

    raw, training = prepared.model, spec.training
    set_recompute(raw, spec)
    if machine.precision == "bf16-true":
        raw = raw.to(torch.bfloat16)
    if machine.sharded:
        held = torch.bfloat16 if machine.precision == "bf16-true" else torch.float32
        dealer = Dealer(machine.team, machine.accelerator.device, held if training.method == "full" else None)
        shard(raw, stage=training.sharding, device=machine.device, world=machine.team.world, deal=dealer.deal)
    elif getattr(raw, "hf_device_map", None) is None:
        raw = raw.to(machine.accelerator.device)
    raw.train()
    optimizer = build_optimizer(raw, training, device=machine.device, fused=not machine.sharded)
    accelerator = machine.accelerator
    accelerator.ddp_handler.find_unused_parameters = (
        training.recompute == "none" and must_look_for_unused(raw, prepared, machine)  # recomputed ones cannot be found
    )
    model = accelerator.prepare_model(raw, device_placement=False, evaluation_mode=machine.sharded)  # True: no DDP
    wrapped = accelerator.prepare_optimizer(optimizer, device_placement=False)
    schedule = build_schedule(wrapped.optimizer, training, steps=steps)
    return StepEngine(machine=machine, raw=raw, model=model, optimizer=wrapped, schedule=schedule)


def set_recompute(model: Module, spec: RunSpec) -> None:
    """Gradient checkpointing as the specification asks; InputError where the model has none."""
    if spec.training.recompute == "none":
        return
    enable: Any = getattr(model, "gradient_checkpointing_enable", None)
    if enable is None or not getattr(model, "supports_gradient_checkpointing", False):
        raise InputError(
            f"{type(model).__name__} cannot recompute activations", hint="set `recompute: none` for this model"
        )
    kwargs: dict[str, Any] = {"use_reentrant": False}
    if spec.training.recompute == "selective":
        kwargs["context_fn"] = _keep_matmuls
    enable(gradient_checkpointing_kwargs=kwargs)
    config: Any = getattr(model, "config", None)
    if config is not None:
        config.use_cache = False


def _keep_matmuls() -> Any:
    """Selective recomputation: what linear layers put out is kept, attention and element-wise work is done again."""
    import torch
    from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

    kept = {torch.ops.aten.mm.default, torch.ops.aten.addmm.default}

    def policy(_: Any, operator: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:  # noqa: ARG001
        return CheckpointPolicy.MUST_SAVE if operator in kept else CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(policy)
