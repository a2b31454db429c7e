"""Model, optimizer and schedule on the devices at hand, wrapped by accelerate: what one training step works with."""

from __future__ import annotations

import os
from collections import namedtuple
from collections.abc import Callable, Mapping
from datetime import timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, Literal

from tonnage.errors import InputError, MissingExtra
from tonnage.recipes.dealing import Dealer
from tonnage.recipes.optimizers import build_optimizer, build_schedule
from tonnage.recipes.out_of_memory import is_out_of_memory, release_memory
from tonnage.recipes.precision import MIXED, Precision, choose_device, choose_precision, set_matmul
from tonnage.recipes.randomness import same_randomness
from tonnage.recipes.task import Prepared
from tonnage.recipes.team import ProcessTeam, gather_team
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


# torch's own `fully_shard`, not accelerate's wrapping of it: that one leaves out CPUs without a word, and what runs on
# GPUs should be what tests run.
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


# The search walks the whole graph before each backward pass, and few models need it. One sample tells: a parameter that
# its pass leaves without a gradient is one that DDP would wait for.
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
