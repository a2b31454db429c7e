"""Slices of a card (MIG): how many it holds of each kind, and which part of it each has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from importlib.resources import files
from typing import Final

from tonnage.catalog.hardware import Accelerator, Source
from tonnage.catalog.rows import Row, read_rows
from tonnage.values import dataclass

SLICE_COLUMNS: Final = (
    "accelerator", "name", "instances", "memory_gib", "memory_fraction", "multiprocessor_fraction", "notes", "source",
    "read_on",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class MigSlice:
    """One kind of slice of one kind of card. Fractions are of the whole card; bandwidth goes with the memory."""

    accelerator: str
    name: str  # "1g.10gb": its compute slices and what its memory is called
    instances: int  # that a card holds of this kind alone
    memory_gib: float
    memory_fraction: float
    multiprocessor_fraction: float
    source: Source


def slices_of(accelerator: str) -> tuple[MigSlice, ...]:
    """The kinds of slices of a card, smallest first; none where it cannot be cut.

    >>> [one.name for one in slices_of("A30")]
    ['1g.6gb', '2g.12gb']
    """
    return tuple(one for one in _slices() if one.accelerator == accelerator)


@cache
def _slices() -> Sequence[MigSlice]:
    path = files("tonnage.catalog") / "data" / "mig_slices.csv"
    return tuple(_read(row) for row in read_rows(path, SLICE_COLUMNS))


def _read(row: Row) -> MigSlice:
    return MigSlice(
        accelerator=row.text("accelerator"), name=row.text("name"), instances=int(row.required("instances", 1, 7)),
        memory_gib=row.required("memory_gib", 1, 2048), memory_fraction=row.required("memory_fraction", 0.01, 1),
        multiprocessor_fraction=row.required("multiprocessor_fraction", 0.01, 1), source=row.source(),
    )  # fmt: skip


def as_device(card: Accelerator, one: MigSlice) -> Accelerator:
    """The slice as a device of its own: rates by its share of multiprocessors, bandwidth by its share of memory, no
    links to other devices."""

    def part(value: float | None, fraction: float) -> float | None:
        return None if value is None else value * fraction

    compute = one.multiprocessor_fraction

    return replace(
        card, name=f"{card.name} {one.name}", memory_gib=one.memory_gib, usable_memory_gib=one.memory_gib,
        memory_bandwidth_gb_per_s=part(card.memory_bandwidth_gb_per_s, one.memory_fraction),
        dense_fp32_tflops=part(card.dense_fp32_tflops, compute),
        dense_tf32_tflops=part(card.dense_tf32_tflops, compute),
        dense_fp16_tflops=part(card.dense_fp16_tflops, compute),
        dense_bf16_tflops=part(card.dense_bf16_tflops, compute),
        dense_fp8_tflops=part(card.dense_fp8_tflops, compute), dense_int8_tops=part(card.dense_int8_tops, compute),
        measured_bf16_matmul_tflops=part(card.measured_bf16_matmul_tflops, compute), scale_up_gb_per_s=None,
        tdp_w=part(card.tdp_w, compute), source=one.source,
    )  # fmt: skip
