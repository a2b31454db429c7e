"""The layouts worth trying for a training job on each machine type: a grid, without what cannot run.

What the workload fixes (`layout:`, `--layout`, keys of `train:`) is not searched: a layout fixed in every key is the
only one of the grid.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from math import prod

import numpy as np

from tonnage.planning.sized import IntArray
from tonnage.sizing.devices import Machine
from tonnage.sizing.layouts import RECOMPUTES, SHARDINGS, Layouts
from tonnage.sizing.program_profiles import recompute_kind
from tonnage.values import dataclass
from tonnage.workload.jobs import TrainJob
from tonnage.workload.program_limits import limits_of

NODE_COUNTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
MAX_MICRO_BATCH = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutGrid:
    """Layout columns and the machine each row is for."""

    machine: IntArray
    layouts: Layouts


def node_counts(max_nodes: int) -> tuple[int, ...]:
    """Node counts to try, up to and including the limit."""
    return (*(n for n in NODE_COUNTS if n < max_nodes), max_nodes)


def grid_for(job: TrainJob, machines: Sequence[Machine], *, max_nodes: int, max_gpus: int | None) -> LayoutGrid:
    """Every nodes x tensor x pipeline x sharding x recompute x micro-batch that divides the work evenly.

    Tensor parallelism that is not fixed stays inside a node and divides the heads; a pipeline stage holds at least
    one layer; the global batch is met exactly (data parallel x micro-batch x accumulation = global batch). Fixed GPUs
    or nodes go before `max_nodes`.
    """
    shapes: dict[tuple[int, bool], np.ndarray] = {}
    rows, owners = [], []
    for index, machine in enumerate(machines):
        multi_node = machine.network_gb_per_s is not None
        key = (machine.count, multi_node)
        if key not in shapes:
            counts = _node_counts(job, machine.count, max_nodes, multi_node=multi_node)
            shapes[key] = _rows(job, machine.count, counts, max_gpus)
        rows.append(shapes[key])
        owners.append(np.full(len(shapes[key]), index, dtype=np.intp))
    table = np.concatenate(rows) if rows else np.empty((0, 9))
    return LayoutGrid(
        machine=np.concatenate(owners) if owners else np.empty(0, dtype=np.intp),
        layouts=Layouts(
            nodes=table[:, 0],
            data_parallel=table[:, 1],
            tensor_parallel=table[:, 2],
            pipeline_parallel=table[:, 3],
            sharding=table[:, 4],
            recompute=table[:, 5],
            micro_batch=table[:, 6],
            accumulation=table[:, 7],
            context_parallel=table[:, 8],
        ),
    )


def _rows(job: TrainJob, per_node: int, nodes: Sequence[int], max_gpus: int | None) -> np.ndarray:
    """The grid of one node size, one layout a row, as float64 (n, 9)."""
    rows: list[tuple[int, ...]] = []
    for count in nodes:
        gpus = count * per_node
        if max_gpus is not None and gpus > max_gpus:
            continue
        for tensor, pipeline in _model_parallel(job, per_node, gpus):
            context = job.context_parallel or 1
            data = gpus // (tensor * pipeline * context)
            for micro, accumulation in _micro_batches(job, data):
                if job.accumulation is None and pipeline > 1 and accumulation < pipeline:
                    continue
                if (job.virtual_stages or 1) > 1 and accumulation % pipeline:
                    continue
                for sharding in _shardings(job, data * context):
                    for recompute in _recomputes(job):
                        rows.append((count, data, tensor, pipeline, sharding, recompute, micro, accumulation, context))
    return np.array(rows, dtype=np.float64).reshape(-1, 9)


def _node_counts(job: TrainJob, per_node: int, max_nodes: int, *, multi_node: bool) -> tuple[int, ...]:
    """Node counts to try; the one that the job fixes, where it does."""
    fixed = job.nodes
    if job.gpus is not None:
        if job.gpus % per_node or fixed not in (None, job.gpus // per_node):
            return ()
        fixed = job.gpus // per_node
    if fixed is None:
        return node_counts(max_nodes) if multi_node else (1,)
    return (fixed,) if multi_node or fixed == 1 else ()


def _model_parallel(job: TrainJob, per_node: int, gpus: int) -> list[tuple[int, int]]:
    """Pairs of tensor and pipeline degree."""
    tensors = [t for t in (1, 2, 4, 8, 16) if t <= per_node and per_node % t == 0 and _divides_heads(job, t)]
    pipelines = [p for p in (1, 2, 4, 8, 16) if p <= max(job.model.layers, 1) and job.model.layers % p == 0]
    if job.method == "qlora" or job.model.architecture in ("convolution", "encoder-decoder"):
        tensors, pipelines = [1], [1]  # no common trainer runs these split
    refused = limits_of(job.program.name).refused(job.method)
    tensors = [1] if "tensor_parallel" in refused else tensors
    pipelines = [1] if "pipeline_parallel" in refused else pipelines
    if job.tensor_parallel is not None:
        tensors = [job.tensor_parallel]
    if job.pipeline_parallel is not None:
        pipelines = [job.pipeline_parallel]
    context = job.context_parallel or 1
    pairs = [(t, p) for t in tensors for p in pipelines if gpus % (t * p * context) == 0]
    return [(t, p) for t, p in pairs if job.data_parallel in (None, gpus // (t * p * context))]


def fixed_degrees(job: TrainJob) -> dict[str, int]:
    """Degrees above one that the job fixes; a data-parallel rank has the product of these GPUs."""
    degrees = {"tensor parallel": job.tensor_parallel, "pipeline parallel": job.pipeline_parallel,
               "context parallel": job.context_parallel}  # fmt: skip
    return {name: degree for name, degree in degrees.items() if degree is not None and degree > 1}


def degrees_divide(job: TrainJob, machine: Machine, max_nodes: int) -> bool:
    """Whether some count of these machines has GPUs that the fixed degrees divide."""
    counts = _node_counts(job, machine.count, max_nodes, multi_node=machine.network_gb_per_s is not None)
    needed = prod(fixed_degrees(job).values())
    return any(count * machine.count % needed == 0 for count in counts)


def _divides_heads(job: TrainJob, tensor: int) -> bool:
    return tensor == 1 or (job.model.heads > 0 and job.model.heads % tensor == 0)


def _micro_batches(job: TrainJob, data: int) -> list[tuple[int, int]]:
    """Micro-batch sizes and the accumulation that makes up the global batch over `data` ranks."""
    if job.global_batch % data:
        return []
    local = job.global_batch // data
    fixed = job.micro_batch
    if job.accumulation is not None:
        if local % job.accumulation or fixed not in (None, local // job.accumulation):
            return []
        fixed = local // job.accumulation
    if fixed is not None:
        return [(fixed, local // fixed)] if local % fixed == 0 else []
    sizes = [size for size in range(1, min(local, MAX_MICRO_BATCH) + 1) if local % size == 0]
    return [(size, local // size) for size in _thinned(sizes)]


def _thinned(sizes: list[int]) -> list[int]:
    """About one size per doubling: the largest divisor up to each power of two, and the largest of all. `sizes` are in
    order and begin with 1."""
    kept = {sizes[bisect_right(sizes, 2**power) - 1] for power in range(11)}
    return sorted(kept | {sizes[-1]})


def _shardings(job: TrainJob, data: int) -> list[int]:
    if job.sharding is not None:
        return [SHARDINGS.index(job.sharding)] if data > 1 or job.sharding == "ddp" else []
    searched = limits_of(job.program.name).shardings or ("ddp", "zero2", "zero3")
    return [SHARDINGS.index(name) for name in (searched if data > 1 else ("ddp",))]


def _recomputes(job: TrainJob) -> list[int]:
    if job.recompute is not None:
        return [RECOMPUTES.index(recompute_kind(job.recompute, job.program))]
    if job.model.architecture == "convolution":
        return [RECOMPUTES.index("none")]
    kind, named = job.program.selective, job.program.name is not None
    selective = kind == "per-op" or (job.attention == "eager" and (kind == "scores" or not named))
    names = ("none", "selective", "full") if selective else ("none", "full")
    return [RECOMPUTES.index(recompute_kind(name, job.program)) for name in names]
