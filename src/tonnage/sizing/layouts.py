"""How a job is spread: columns of micro-batch, data / tensor / pipeline / context parallel, sharding, recomputation."""

from __future__ import annotations

from dataclasses import fields
from typing import Final

import numpy as np

from tonnage.sizing.estimates import Array
from tonnage.values import dataclass

SHARDINGS: Final = ("ddp", "zero1", "zero2", "zero3")  # the column holds the index
RECOMPUTES: Final = ("none", "selective", "full", "per-op")
# selective: attention scores only (Korthikanti et al. 2022); per-op: all but attention and every second product


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """One training layout, as a plan prints it."""

    nodes: int
    gpus_per_node: int
    data_parallel: int
    tensor_parallel: int
    pipeline_parallel: int
    sharding: str
    recompute: str
    micro_batch: int
    accumulation: int
    context_parallel: int = 1

    @property
    def gpus(self) -> int:
        return self.data_parallel * self.tensor_parallel * self.pipeline_parallel * self.context_parallel

    def describe(self, virtual_stages: int | None = None) -> str:
        """Short text: `8 GPUs, zero3, micro-batch 4, recompute full`. `virtual_stages`: chunks that a stage holds."""
        parts = [f"{self.gpus} GPU" + ("s" if self.gpus > 1 else "")]
        if self.data_parallel > 1:
            parts.append(f"{self.sharding} x{self.data_parallel}")
        if self.tensor_parallel > 1:
            parts.append(f"tp {self.tensor_parallel}")
        if self.pipeline_parallel > 1:
            chunks = f", {virtual_stages} chunks each" if (virtual_stages or 1) > 1 else ""
            parts.append(f"pp {self.pipeline_parallel}{chunks}")
        if self.context_parallel > 1:
            parts.append(f"cp {self.context_parallel}")
        parts.append(f"micro-batch {self.micro_batch}" + (f" x{self.accumulation}" if self.accumulation > 1 else ""))
        if self.recompute != "none":
            parts.append(f"recompute {self.recompute}")
        return ", ".join(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layouts:
    """Columns of layouts, one row per candidate."""

    nodes: Array
    data_parallel: Array
    tensor_parallel: Array
    pipeline_parallel: Array
    sharding: Array  # index into SHARDINGS
    recompute: Array  # index into RECOMPUTES
    micro_batch: Array
    accumulation: Array
    context_parallel: Array  # ranks that share each sequence

    @property
    def gpus(self) -> Array:
        return self.data_ranks * self.tensor_parallel * self.pipeline_parallel

    @property
    def data_ranks(self) -> Array:
        """Ranks that hold the same weights: they reduce gradients together and share sharded state."""
        return self.data_parallel * self.context_parallel

    def take(self, rows: np.ndarray[tuple[int], np.dtype[np.intp]]) -> Layouts:
        return Layouts(**{field.name: getattr(self, field.name)[rows] for field in fields(self)})

    def row(self, index: int) -> Layout:
        gpus, nodes = int(self.gpus[index]), int(self.nodes[index])
        return Layout(
            nodes=nodes,
            gpus_per_node=gpus // nodes,
            data_parallel=int(self.data_parallel[index]),
            tensor_parallel=int(self.tensor_parallel[index]),
            pipeline_parallel=int(self.pipeline_parallel[index]),
            sharding=SHARDINGS[int(self.sharding[index])],
            recompute=RECOMPUTES[int(self.recompute[index])],
            micro_batch=int(self.micro_batch[index]),
            accumulation=int(self.accumulation[index]),
            context_parallel=int(self.context_parallel[index]),
        )


def one_layout(
    *,
    micro_batch: int,
    accumulation: int = 1,
    data_parallel: int = 1,
    tensor_parallel: int = 1,
    pipeline_parallel: int = 1,
    sharding: str = "ddp",
    recompute: str = "none",
    nodes: int = 1,
    context_parallel: int = 1,
) -> Layouts:
    """A single layout as columns of one row."""
    return Layouts(
        nodes=np.array([float(nodes)]),
        data_parallel=np.array([float(data_parallel)]),
        tensor_parallel=np.array([float(tensor_parallel)]),
        pipeline_parallel=np.array([float(pipeline_parallel)]),
        sharding=np.array([float(SHARDINGS.index(sharding))]),
        recompute=np.array([float(RECOMPUTES.index(recompute))]),
        micro_batch=np.array([float(micro_batch)]),
        accumulation=np.array([float(accumulation)]),
        context_parallel=np.array([float(context_parallel)]),
    )
