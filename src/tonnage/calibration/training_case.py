"""One training row as what the physics takes: jobs, layout, machine, trainer."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from tonnage.calibration.rows import TrainingRow
from tonnage.calibration.training_engine import NoEngine, RowProgram, engine_of, objective_of
from tonnage.calibration.training_shapes import RARE_WORDS, RELATIVE_WORDS, NoShape, row_shape
from tonnage.catalog.catalog import Catalog
from tonnage.catalog.hardware import Accelerator, Link
from tonnage.errors import TonnageError
from tonnage.sizing.assumptions import Assumptions
from tonnage.sizing.devices import Machine, channel_share, generation_of, usable_bytes
from tonnage.sizing.estimates import Array
from tonnage.sizing.layouts import Layouts, one_layout
from tonnage.sizing.program_profiles import program_class, recompute_kind, trainer_of
from tonnage.sizing.trainer_profile import TrainerProfile
from tonnage.sizing.training_memory import estimate_training_memory
from tonnage.values import dataclass
from tonnage.workload.jobs import Lengths, Sharding, TrainJob
from tonnage.workload.programs import Program
from tonnage.workload.shapes import ModelShape

# Network of a node, GB/s in one direction, where a row does not state it: the maker's own eight-GPU system of that
# generation (DGX-1: 4 x 100 Gbit/s, DGX A100: 8 x 200, DGX H100: 8 x 400); a PCIe host: one 100 Gbit/s port.
NETWORK_GB_PER_S = {"Volta": 50.0, "Ampere": 200.0, "Hopper": 400.0, "Blackwell": 400.0}
HOST_NETWORK_GB_PER_S = 12.5
SENTENCE_TOKENS = 28.0  # mean length of a WMT sentence in sub-words, where a batch is stated in tokens
LARGEST_MICRO_BATCH = 1024
# Kernels of a LAMB that steps tensors one by one, beside AdamW's: two norms of two kernels each, the trust ratio (You
# et al. 2019), the update, and clipping's norm and product; the rest is merged with them (NVIDIA's
# Transformer-XL, lamb.py, `lamb_kernel` under the script compiler).
LAMB_KERNELS = 8.0
LAMB_PASSES = 1.5  # traffic over AdamW's: LAMB reads its state twice (You et al. 2019, arXiv:1904.00962)
# A LAMB of primitives: moments 20 passes over 32-bit values, their quotient and decay 12, two norms 6, the update 5,
# clipping 3, gradients kept apart 2 (TensorFlow: NVIDIA's Transformer-XL, tf/lamb.py `_apply_dense`, tf/main.py), over
# the seven of AdamW.
PRIMITIVE_LAMB_PASSES = 48.0 / 7.0
# Width of ELECTRA's generator over the model's, by the model's width (Clark et al. 2020, arXiv:2003.10555, table 6).
GENERATOR_SHARE = {768: 1 / 3, 1024: 1 / 4}


class NoCase(Exception):
    """A row that the physics cannot take; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingCase:
    """A row, ready to be predicted. `samples` and `tokens` are of one step over all GPUs; `stated`: habits that the
    layout and the data set, not the program."""

    row: TrainingRow
    jobs: tuple[TrainJob, ...]
    layouts: Layouts
    machine: Machine
    stated: Mapping[str, Any]
    gpus: int
    samples: float
    tokens: float

    @property
    def trainer(self) -> TrainerProfile:
        """The habits of the program, by the rule that plans use, with what the row states of the rest."""
        return replace(trainer_of(self.jobs[0]), **self.stated)

    @property
    def program(self) -> Program:
        return self.jobs[0].program

    @property
    def program_class(self) -> str:
        """A coarse class, for «how far is this from what we have seen»; "" where none is stated."""
        return program_class(self.jobs[0])


def build_case(row: TrainingRow, catalog: Catalog, assumed: Assumptions | None = None) -> TrainingCase:
    """The case of a row; raises NoCase with the reason where it states too little. `assumed`: by which a micro-batch
    that is not stated is chosen."""
    device = _device(row, catalog)
    try:
        shape = row_shape(row)
    except NoShape as error:
        raise NoCase(str(error)) from error
    try:
        engine = engine_of(row, shape, device)
    except NoEngine as error:
        raise NoCase(str(error)) from error
    length = _length(row, shape)
    jobs = _jobs(row, shape, engine, length)
    stated = _stated(row)
    gpus, per_node = _gpus(row)
    machine = _machine(row, device, catalog, per_node)
    layouts = _layouts(row, jobs, stated, machine, gpus, assumed)
    samples = float((layouts.micro_batch * layouts.accumulation * layouts.data_parallel)[0])
    return TrainingCase(
        row=row, jobs=jobs, layouts=layouts, machine=machine, stated=stated, gpus=gpus,
        samples=samples, tokens=samples * length,
    )  # fmt: skip


def _device(row: TrainingRow, catalog: Catalog) -> Accelerator:
    if not row.gpu:
        raise NoCase("GPU not stated")
    try:
        return catalog.accelerator(row.gpu)
    except TonnageError as error:
        raise NoCase(f"GPU not in the catalog: {row.gpu}") from error


def _length(row: TrainingRow, shape: ModelShape) -> float:
    if shape.architecture in ("convolution", "vision-transformer"):
        return 1.0
    if row.seq_len is not None:
        return float(row.seq_len)
    if row.batch_tokens is not None:
        return SENTENCE_TOKENS
    raise NoCase("sequence length not stated")


def _jobs(row: TrainingRow, shape: ModelShape, engine: RowProgram, length: float) -> tuple[TrainJob, ...]:
    job = TrainJob(
        model=shape,
        samples=1,
        lengths=Lengths(mean=length, maximum=int(length)),
        epochs=1,
        global_batch=1,
        method=engine.adapters.method,
        precision=engine.precision,
        objective=objective_of(row, shape),
        optimizer=engine.optimizer,
        attention=engine.attention,
        compile=engine.compiled,
        lora=engine.lora,
        recompute=engine.recompute,
        sharding=_sharding(row, row.n_gpus or 64),
        program=engine.program,
    )
    if not _has_generator(row):
        return (job,)
    width = int(shape.hidden * GENERATOR_SHARE.get(shape.hidden, 1 / 3))
    heads = max(1, width // shape.head_dim)
    generator = replace(
        shape, name=f"{shape.name} generator", hidden=width, heads=heads, kv_heads=heads, ffn=4 * width,
        embedding_dim=shape.embedding_width,
    )  # fmt: skip
    return (replace(job, objective="classification"), replace(job, model=generator))


def _has_generator(row: TrainingRow) -> bool:
    """Whether a generator is trained beside the model: ELECTRA's pre-training, unless the row says otherwise."""
    if row.generator:
        return row.generator == "y"
    return row.model.lower().startswith("electra") and row.objective == "language-model"


def _stated(row: TrainingRow) -> dict[str, Any]:
    """Habits that a row's layout and data set. A Transformer-XL keeps a segment in memory unless its settings say
    otherwise (Dai et al. 2019, arXiv:1901.02860, section 3.2)."""
    segment = (row.seq_len or 0) if RELATIVE_WORDS.search(row.model) else 0
    return {
        "cached_tokens": segment if row.cached_tokens is None else row.cached_tokens,
        "target_tokens": row.target_tokens or 0,
        "document_tokens": row.document_tokens or 0,
        "rare_words": RARE_WORDS if row.softmax == "adaptive" else (),
        "exchanges": row.exchanges != "n",
        "interleave": _degree(row.sharding, "vp"),
        "optimizer_passes": _optimizer_passes(row),
        "optimizer_kernels": LAMB_KERNELS if row.optimizer.upper() == "LAMB" and row.optimizer_fused == "n" else 0.0,
    }


def _optimizer_passes(row: TrainingRow) -> float:
    """Traffic of the optimizer over AdamW's in one kernel."""
    if row.optimizer.upper() != "LAMB":
        return 1.0
    return PRIMITIVE_LAMB_PASSES if row.program == "tensorflow" and row.compile != "y" else LAMB_PASSES


def _gpus(row: TrainingRow) -> tuple[int, int]:
    """GPUs in all and in a node (eight where a run has more and does not say)."""
    gpus = row.n_gpus
    if gpus is None:
        if row.global_batch is None and row.micro_batch_per_gpu is None:
            return 64, 8  # a whole-run total without a layout: the rate of one GPU in a few full nodes
        raise NoCase("number of GPUs not stated")
    return gpus, min(row.gpus_per_node or 8, gpus)


def _machine(row: TrainingRow, device: Accelerator, catalog: Catalog, per_node: int) -> Machine:
    return Machine(
        accelerator=device,
        count=per_node,
        intra=_link(device, catalog, direct=row.peer_to_peer != "n"),
        network_gb_per_s=_network(row, device),
        network_latency_us=Assumptions().network_latency_us,
    )


def _link(device: Accelerator, catalog: Catalog, *, direct: bool) -> Link | None:
    """The link inside a node that the device's form has; bridges join pairs only, so larger groups meet over PCIe, as
    do those whose GPUs do not talk to each other directly."""
    text = device.interconnect
    switched = re.match(r"NVLink ?(\d)", text) if direct else None
    if switched and "bridge" not in text.lower():
        return catalog.link(f"nvlink{switched[1]}")
    if "xgmi" in text.lower() or "infinity" in text.lower():
        return catalog.link("xgmi3")
    return catalog.link(f"pcie{device.pcie_generation or 4}")


def _network(row: TrainingRow, device: Accelerator) -> float:
    """GB/s of a node, as stated for it or for each of its GPUs; else the usual one."""
    if row.network_gbit_per_s_per_gpu is not None:
        return row.network_gbit_per_s_per_gpu * _gpus(row)[1] / 8.0
    if row.network_gbit_per_s_per_node is not None:
        return row.network_gbit_per_s_per_node / 8.0
    if device.interconnect.startswith("PCIe"):
        return HOST_NETWORK_GB_PER_S
    return NETWORK_GB_PER_S.get(device.architecture.split(" ")[0], HOST_NETWORK_GB_PER_S)


def _layouts(
    row: TrainingRow, jobs: tuple[TrainJob, ...], stated: Mapping[str, Any], machine: Machine, gpus: int,
    assumed: Assumptions | None,
) -> Layouts:  # fmt: skip
    text = row.sharding
    tensor, pipeline, context = _degree(text, "tp"), _degree(text, "pp"), _degree(text, "cp")
    data = gpus // (tensor * pipeline * context)
    if data < 1:
        raise NoCase(f"sharding '{text}' needs more than {gpus} GPUs")
    layout = one_layout(
        micro_batch=1,
        data_parallel=data,
        tensor_parallel=tensor,
        pipeline_parallel=pipeline,
        context_parallel=context,
        sharding=_sharding(row, gpus),
        recompute=recompute_kind(jobs[0].recompute or "none", jobs[0].program),
        nodes=max(1, -(-gpus // machine.count)),
    )
    micro = _micro_batch(row, jobs, replace(trainer_of(jobs[0]), **stated), machine, layout, assumed)
    accumulation = _accumulation(row, micro, data)
    return replace(layout, micro_batch=np.array([micro]), accumulation=np.array([accumulation]))


def _degree(text: str, kind: str) -> int:
    found = re.search(rf"\b{kind}=(\d+)", text)
    return int(found[1]) if found else 1


def _sharding(row: TrainingRow, gpus: int) -> Sharding:
    text = row.sharding.lower()
    stage = re.search(r"zero[- ]?(?:stage )?([123])", text)
    if (stage and stage[1] == "3") or "fsdp" in text:
        return "zero3" if gpus > 1 else "ddp"
    if stage:
        return "zero2" if stage[1] == "2" else "zero1"
    if "sharded optimizer" in text or "distributed optimizer" in text:
        return "zero1"
    return "zero3" if not text and row.n_gpus is None else "ddp"


def _micro_batch(
    row: TrainingRow, jobs: tuple[TrainJob, ...], trainer: TrainerProfile, machine: Machine, layout: Layouts,
    assumed: Assumptions | None,
) -> float:  # fmt: skip
    """As stated (or from a batch in tokens); else the largest power of two that fits and divides the batch."""
    if row.micro_batch_per_gpu is not None:
        return float(row.micro_batch_per_gpu)
    if row.batch_tokens is not None:
        return row.batch_tokens / SENTENCE_TOKENS
    share = row.global_batch / float(layout.data_parallel[0]) if row.global_batch else LARGEST_MICRO_BATCH
    sizes: Array = np.asarray(2.0 ** np.arange(11.0), dtype=np.float64)
    sizes = sizes[sizes <= max(1.0, share)]
    if float(layout.pipeline_parallel[0]) > 1:
        return 1.0  # deep pipelines are run with the smallest bubble
    grid = replace(layout.take(np.zeros(len(sizes), dtype=np.intp)), micro_batch=sizes)
    outside = channel_share(machine), generation_of(machine.accelerator)
    needs = sum(estimate_training_memory(job, grid, assumed, trainer, *outside).total_bytes for job in jobs)
    fitting = sizes[needs <= usable_bytes(machine.accelerator)]
    return float(fitting[-1]) if len(fitting) else 1.0


def _accumulation(row: TrainingRow, micro: float, data: int) -> float:
    if row.grad_accum is not None:
        return float(row.grad_accum)
    if row.global_batch is not None:
        return max(1.0, round(row.global_batch / (micro * max(1, data))))
    return 1.0
