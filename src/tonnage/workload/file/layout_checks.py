"""Layouts that cannot be: degrees over GPUs, a global batch that is not met, heads or layers that do not divide."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import NamedTuple

from tonnage.workload.file.layout_fields import TrainLayoutFields
from tonnage.workload.program_limits import INTERLEAVING, limits_of
from tonnage.workload.programs import ProgramName
from tonnage.workload.shapes import ModelShape

DEGREES = ("data_parallel", "tensor_parallel", "pipeline_parallel", "context_parallel")


class LayoutFault(NamedTuple):
    """What is wrong with one key of a layout, and what to do about it."""

    name: str
    message: str
    hint: str


def find_train_faults(
    layout: TrainLayoutFields,
    *,
    global_batch: int,
    shape: ModelShape | None,
    max_gpus: int | None,
    program: ProgramName | None = None,
    method: str = "full",
) -> Iterator[LayoutFault]:
    """Everything about a training layout that no machine can run, or that its program does not."""
    yield from find_program_faults(layout, program, method)
    gpus = list(_gpu_faults(layout, max_gpus))
    yield from gpus
    if not gpus:
        yield from _batch_faults(layout, global_batch)
    yield from _schedule_faults(layout, program)
    if layout.sharding not in (None, "ddp") and _ranks(layout) == 1:
        hint = "use `ddp`, or give data_parallel more than 1"
        yield LayoutFault("sharding", f"found '{layout.sharding}', but one rank has nothing to share it with", hint)
    if shape is not None:
        yield from _shape_faults(layout, shape)


def find_program_faults(layout: TrainLayoutFields, program: ProgramName | None, method: str) -> Iterator[LayoutFault]:
    """Degrees that the program does not run for the method."""
    limits = limits_of(program)
    for name in limits.refused(method):
        degree = getattr(layout, name)
        if degree is not None and degree > 1:
            with_what = "" if name in limits.never else f" with {method}"
            yield LayoutFault(name, f"found {degree}, which {program} does not run{with_what} ({limits.source})",
                        "leave the key out, or name another program")  # fmt: skip


def _gpu_faults(layout: TrainLayoutFields, max_gpus: int | None) -> Iterator[LayoutFault]:
    stated = [(name, getattr(layout, name)) for name in DEGREES if getattr(layout, name) is not None]
    product = prod(value for _, value in stated)
    words = " x ".join(f"{name} {value}" for name, value in stated)
    gpus = layout.gpus
    if gpus is not None and (gpus % product or (product != gpus and len(stated) == len(DEGREES))):
        yield LayoutFault("gpus", f"found {gpus}, but {words} takes {product}", f"gpus: {product}, or change a degree")
    if gpus is not None and layout.nodes is not None and gpus % layout.nodes:
        yield LayoutFault(
            "gpus", f"found {gpus}, which does not divide over {layout.nodes} nodes", "nodes are used whole"
        )
    needed = max(gpus or 1, product, layout.nodes or 1)
    if max_gpus is not None and needed > max_gpus:
        name = "gpus" if gpus is not None else stated[-1][0] if stated else "nodes"
        yield LayoutFault(name, f"the layout takes {needed} GPUs, max_gpus is {max_gpus}", "raise constraints.max_gpus")


def _ranks(layout: TrainLayoutFields) -> int | None:
    """Ranks that share weights; None where the layout leaves it open."""
    context = layout.context_parallel or 1
    if layout.data_parallel is not None:
        return layout.data_parallel * context
    if layout.gpus is None or layout.tensor_parallel is None or layout.pipeline_parallel is None:
        return None
    return layout.gpus // (layout.tensor_parallel * layout.pipeline_parallel)


def _batch_faults(layout: TrainLayoutFields, global_batch: int) -> Iterator[LayoutFault]:
    names = [name for name in ("data_parallel", "micro_batch", "accumulation") if getattr(layout, name) is not None]
    samples = prod(getattr(layout, name) for name in names)
    if not names or (global_batch % samples == 0 and (samples == global_batch or len(names) < 3)):
        return
    words = " x ".join(f"{name} {getattr(layout, name)}" for name in names)
    relation = "is not" if len(names) == 3 else "does not divide"
    whole = samples if len(names) == 3 else samples * max(1, round(global_batch / samples))
    yield LayoutFault(
        names[-1],
        f"{words} is {samples} samples, which {relation} the global batch ({global_batch})",
        f"train.global_batch: {whole}, or change the layout",
    )


def _schedule_faults(layout: TrainLayoutFields, program: ProgramName | None) -> Iterator[LayoutFault]:
    """An interleaved schedule needs a program that has one, stages, and micro-batches in groups of as many (Narayanan
    et al. 2021, arXiv:2104.04473, section 2.2.2)."""
    chunks, stages = layout.virtual_stages or 1, layout.pipeline_parallel or 1
    if chunks == 1:
        return
    if program is not None and program not in INTERLEAVING:
        fault = f"found {chunks}, but {program} has no interleaved schedule"
        yield LayoutFault("virtual_stages", fault, f"leave the key out, or name one of {', '.join(INTERLEAVING)}")
    elif stages == 1:
        hint = "give pipeline_parallel too, more than 1"
        yield LayoutFault("virtual_stages", f"found {chunks}, but there is no pipeline to interleave", hint)
    elif layout.accumulation is not None and layout.accumulation % stages:
        fault = f"found {layout.accumulation}, which {stages} interleaved stages do not divide"
        yield LayoutFault("accumulation", fault, f"a multiple of {stages}, or virtual_stages 1")


def _shape_faults(layout: TrainLayoutFields, shape: ModelShape) -> Iterator[LayoutFault]:
    yield from find_head_faults(layout.tensor_parallel or 1, shape)
    layers = shape.layers + shape.encoder_layers
    stages = layout.pipeline_parallel or 1
    if stages > max(layers, 1):
        hint = f"use at most {layers}" if layers else "leave it out: this model has no layers to cut between"
        yield LayoutFault(
            "pipeline_parallel", f"found {stages}, more stages than {shape.name} has layers ({layers})", hint
        )
    chunks = layout.virtual_stages or 1
    if chunks > 1 and stages > 1 and layers % (stages * chunks):
        fault = f"found {chunks}; {stages} stages of as many chunks do not divide the {layers} layers of {shape.name}"
        fits = [str(count) for count in range(1, layers + 1) if layers % (stages * count) == 0]
        yield LayoutFault("virtual_stages", fault, f"one of {', '.join(fits)}" if fits else "change pipeline_parallel")
    if (layout.context_parallel or 1) > 1 and not shape.heads:
        yield LayoutFault("context_parallel", f"{shape.name} has no sequences to share out", "leave the key out")


def find_head_faults(tensor: int, shape: ModelShape) -> Iterator[LayoutFault]:
    """A degree that does not divide the attention heads."""
    if tensor == 1:
        return
    if not shape.heads:
        yield LayoutFault("tensor_parallel", f"{shape.name} has no attention heads to share out", "leave the key out")
    elif shape.heads % tensor:
        fits = [str(count) for count in range(1, min(shape.heads, 64) + 1) if shape.heads % count == 0]
        fault = f"found {tensor}, which does not divide the {shape.heads} heads of {shape.name}"
        yield LayoutFault("tensor_parallel", fault, f"one of {', '.join(fits)}")
