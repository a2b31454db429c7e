"""One training row as what the physics takes: jobs, layout, machine, practice."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import numpy as np

from tonnage.calibration.rows import TrainingRow
from tonnage.calibration.training_engine import (
    GENERATOR_SHARE,
    Engine,
    engine_of,
    has_generator,
    has_vocabulary,
    is_native,
)
from tonnage.calibration.training_shapes import NoShape, row_shape
from tonnage.catalog.catalog import Catalog
from tonnage.catalog.hardware import Accelerator, Link
from tonnage.errors import TonnageError
from tonnage.sizing.assumptions import Assumptions
from tonnage.sizing.devices import Machine, usable_bytes
from tonnage.sizing.estimates import Array
from tonnage.sizing.layouts import Layouts, one_layout
from tonnage.sizing.training_memory import estimate_training_memory
from tonnage.sizing.training_practice import Practice
from tonnage.workload.jobs import Lengths, Lora, TrainJob
from tonnage.workload.shapes import ModelShape

# Network of a node, GB/s in one direction, where a row does not state it: the maker's own eight-GPU system of that
# generation (DGX-1: 4 x 100 Gbit/s, DGX A100: 8 x 200, DGX H100: 8 x 400); a PCIe host: one 100 Gbit/s port.
NETWORK_GB_PER_S = {"Volta": 50.0, "Ampere": 200.0, "Hopper": 400.0, "Blackwell": 400.0}
HOST_NETWORK_GB_PER_S = 12.5
OMNI_PATH_GB_PER_S = 50.0  # four 100 Gbit/s ports an eight-GPU node
SENTENCE_TOKENS = 28.0  # mean length of a WMT sentence in sub-words, where a batch is stated in tokens
STATED_NETWORK = re.compile(r"(\d+)\s*Gb(?:ps|/s|it/s)")
TOKEN_BATCH = re.compile(r"batch is (\d+) tokens", re.IGNORECASE)
LARGEST_MICRO_BATCH = 1024


class NoCase(Exception):
    """A row that the physics cannot take; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A row, ready to be predicted. `samples` and `tokens` are of one step over all GPUs."""

    row: TrainingRow
    jobs: tuple[TrainJob, ...]
    layouts: Layouts
    machine: Machine
    engine: Engine
    gpus: int
    samples: float
    tokens: float

    @property
    def practice(self) -> Practice:
        return self.engine.practice


def build_case(row: TrainingRow, catalog: Catalog) -> Case:
    """The case of a row; raises NoCase with the reason where it states too little."""
    device = _device(row, catalog)
    try:
        shape = row_shape(row)
    except NoShape as error:
        raise NoCase(str(error)) from error
    engine = engine_of(row, shape, device)
    if engine is None:
        raise NoCase(f"precision '{row.precision}' is none we size")
    length = _length(row, shape)
    jobs = _jobs(row, shape, engine, length)
    gpus, per_node = _gpus(row)
    machine = _machine(row, device, catalog, per_node)
    layouts = _layouts(row, jobs, engine, device, gpus, per_node)
    samples = float((layouts.micro_batch * layouts.accumulation * layouts.data_parallel)[0])
    return Case(
        row=row, jobs=jobs, layouts=layouts, machine=machine, engine=engine, gpus=gpus,
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
    if TOKEN_BATCH.search(row.note):
        return SENTENCE_TOKENS
    raise NoCase("sequence length not stated")


def _jobs(row: TrainingRow, shape: ModelShape, engine: Engine, length: float) -> tuple[TrainJob, ...]:
    rank = re.search(r"r=(\d+)", row.method)
    job = TrainJob(
        model=shape,
        samples=1,
        lengths=Lengths(mean=length, maximum=int(length)),
        epochs=1,
        global_batch=1,
        method=engine.method,
        precision=engine.precision,
        objective="language-model" if has_vocabulary(row, shape) else "classification",
        optimizer=engine.optimizer,
        attention=engine.attention,
        compile=engine.compiled,
        lora=Lora(rank=int(rank[1]) if rank else 8),
    )
    if not has_generator(row):
        return (job,)
    width = int(shape.hidden * GENERATOR_SHARE.get(shape.hidden, 1 / 3))
    heads = max(1, width // shape.head_dim)
    generator = replace(
        shape, name=f"{shape.name} generator", hidden=width, heads=heads, kv_heads=heads, ffn=4 * width,
        embedding_dim=shape.embedding_width,
    )  # fmt: skip
    return (replace(job, objective="classification"), replace(job, model=generator))


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
        intra=_link(device, catalog),
        network_gb_per_s=_network(row, device),
        network_latency_us=Assumptions().network_latency_us,
    )


def _link(device: Accelerator, catalog: Catalog) -> Link | None:
    """The link inside a node that the device's form has; bridges join pairs only, so larger groups meet over PCIe."""
    text = device.interconnect
    switched = re.match(r"NVLink ?(\d)", text)
    if switched and "bridge" not in text.lower():
        return catalog.link(f"nvlink{switched[1]}")
    if "xgmi" in text.lower() or "infinity" in text.lower():
        return catalog.link("xgmi3")
    return catalog.link(f"pcie{device.pcie_generation or 4}")


def _network(row: TrainingRow, device: Accelerator) -> float:
    stated = STATED_NETWORK.search(row.note)
    if stated:
        return float(stated[1]) / 8.0
    if re.search(r"\bOPA\b|omni-?path", row.note, re.IGNORECASE):
        return OMNI_PATH_GB_PER_S
    if device.interconnect.startswith("PCIe"):
        return HOST_NETWORK_GB_PER_S
    return NETWORK_GB_PER_S.get(device.architecture.split(" ")[0], HOST_NETWORK_GB_PER_S)


def _layouts(
    row: TrainingRow, jobs: tuple[TrainJob, ...], engine: Engine, device: Accelerator, gpus: int, per_node: int
) -> Layouts:
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
        recompute=_recompute(row),
        nodes=max(1, -(-gpus // per_node)),
    )
    micro = _micro_batch(row, jobs, engine, device, layout)
    accumulation = _accumulation(row, micro, data)
    return replace(layout, micro_batch=np.array([micro]), accumulation=np.array([accumulation]))


def _degree(text: str, kind: str) -> int:
    found = re.search(rf"\b{kind}=(\d+)", text)
    return int(found[1]) if found else 1


def _sharding(row: TrainingRow, gpus: int) -> str:
    text = row.sharding.lower()
    if "zero3" in text or "fsdp" in text:
        return "zero3" if gpus > 1 else "ddp"
    if "zero2" in text:
        return "zero2"
    if "zero1" in text or "sharded optimizer" in text or "distributed optimizer" in text:
        return "zero1"
    return "zero3" if not text and row.n_gpus is None else "ddp"


def _recompute(row: TrainingRow) -> str:
    text = row.activation_checkpointing.lower()
    if not text and (is_native(row) or "qlora" in row.method):
        return "full"  # the default of those recipes, and of preparing a 4-bit model in transformers / peft
    if text.startswith("full") or re.search(r"factor incl\. recompute", row.note):
        return "full"
    return "selective" if text.startswith("selective") else "none"


def _micro_batch(
    row: TrainingRow, jobs: tuple[TrainJob, ...], engine: Engine, device: Accelerator, layout: Layouts
) -> float:
    """As stated (or from a batch in tokens); else the largest power of two that fits and divides the batch."""
    if row.micro_batch_per_gpu is not None:
        return float(row.micro_batch_per_gpu)
    tokens = TOKEN_BATCH.search(row.note)
    if tokens:
        return float(tokens[1]) / SENTENCE_TOKENS
    share = row.global_batch / float(layout.data_parallel[0]) if row.global_batch else LARGEST_MICRO_BATCH
    sizes: Array = np.asarray(2.0 ** np.arange(11.0), dtype=np.float64)
    sizes = sizes[sizes <= max(1.0, share)]
    if float(layout.pipeline_parallel[0]) > 1:
        return 1.0  # deep pipelines are run with the smallest bubble
    grid = replace(layout.take(np.zeros(len(sizes), dtype=np.intp)), micro_batch=sizes)
    needs = sum(estimate_training_memory(job, grid, practice=engine.practice).total_bytes for job in jobs)
    fitting = sizes[needs <= usable_bytes(device)]
    return float(fitting[-1]) if len(fitting) else 1.0


def _accumulation(row: TrainingRow, micro: float, data: int) -> float:
    if row.grad_accum is not None:
        return float(row.grad_accum)
    if row.global_batch is not None:
        return max(1.0, round(row.global_batch / (micro * max(1, data))))
    return 1.0
