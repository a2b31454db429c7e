"""Vector operations: bytes and FLOP against their definitions, seconds against kernels of a GPU, properties."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tonnage.sizing.assumptions import Assumptions
from tonnage.sizing.estimates import Figure
from tonnage.sizing.tabular import TabularAssumptions
from tonnage.sizing.vector_work import (
    Roof,
    VectorName,
    flop_per_cycle,
    gpu_roof,
    listed_operations,
    processor_roof,
    speed_up,
    vector_operation,
)

KERNELS = Path(__file__).parents[2] / "benchmarks" / "results" / "gpu_kernels_h100-80gb-sxm_2026-11-22.csv"
H100 = gpu_roof("H100-SXM", 3350e9, {"fp32": 66.9e12, "tf32": 494.7e12, "bf16": 989.4e12}, Assumptions())


def processor(clock_hz: float | None = 2.5e9) -> Roof:
    return processor_roof("cpu", 2, clock_hz, flop_per_cycle(("AVX2",)), TabularAssumptions())


@pytest.mark.parametrize(
    ("name", "flop", "moved", "fresh"),
    [("axpy", 2, 12, 0), ("dot", 2, 8, 0), ("sum", 1, 4, 0), ("multiply", 1, 12, 4)],
)
def test_what_an_element_costs(name: VectorName, flop: int, moved: int, fresh: int) -> None:
    """STREAM and the BLAS count so: two reads and a write of 4 bytes for axpy, two reads for a dot product."""
    work = vector_operation(name, 1000)
    assert (work.flop, work.counted_bytes, work.fresh_bytes) == (flop * 1000, moved * 1000, fresh * 1000)


def test_square_products_as_measured_on_an_h100() -> None:
    """4,096 and 8,192 squared in three number formats: measured seconds are within 20 % of what the sheet predicts."""
    with KERNELS.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["op"] == "gemm"]
    seen = 0
    for row in rows:
        shape, precision = row["shape"], row["note"].split(";")[0]
        if shape != f"K={row['tokens']} N={row['tokens']}" or precision not in H100.flop_per_s:
            continue
        predicted = H100.seconds(vector_operation("gemm", int(row["tokens"]), precision))
        assert predicted is not None
        assert float(row["time_us"]) * 1e-6 == pytest.approx(predicted.value, rel=0.2)
        seen += 1
    assert seen == 6


@given(st.integers(1, 2**28), st.sampled_from(["axpy", "dot", "sum", "multiply"]))
def test_more_elements_never_take_less(length: int, name: VectorName) -> None:
    """On both kinds of device, at all ends of the interval; and the interval holds the figure."""
    for roof in (H100, processor()):
        fewer, more = (roof.seconds(vector_operation(name, size)) for size in (length, length + 1))
        assert fewer is not None
        assert more is not None
        assert fewer.low <= fewer.value <= fewer.high
        assert (fewer.value, fewer.low, fewer.high) <= (more.value, more.low, more.high)


def test_caches_fetch_what_is_written() -> None:
    """On a processor a product of elements moves a third more than axpy of the same length; on a GPU as much."""
    ends = [
        roof.seconds(vector_operation(name, 2**24)) for roof in (processor(), H100) for name in ("multiply", "axpy")
    ]
    multiply, axpy, on_gpu, axpy_on_gpu = (one.value for one in ends if one is not None)
    assert multiply / axpy == pytest.approx(4 / 3, rel=1e-3)
    assert on_gpu == pytest.approx(axpy_on_gpu, rel=1e-6)


def test_a_short_vector_costs_a_call() -> None:
    """One element takes as long as a launch, so that a GPU gains nothing there."""
    found = H100.seconds(vector_operation("axpy", 1))
    assert found is not None
    assert found.value == pytest.approx(Assumptions().host_launch_us_per_kernel * 1e-6)


def test_units_of_processors() -> None:
    """Widths as the vendors' guides state them; what is not known is absent, and then a core's judgement is taken."""
    assert flop_per_cycle(("AVX2", "AVX-512", "AMX bf16")) == {"fp32": 64.0, "bf16": 1024.0}
    assert flop_per_cycle(("AVX2", "AVX-512", "AVX-512 bf16"), amd_family=25) == {"fp32": 32.0, "bf16": 64.0}
    assert flop_per_cycle(("NEON", "SVE", "Arm bf16"))["fp32"] == 32.0
    assert flop_per_cycle(()) == {}
    tiles = processor_roof("cpu", 2, 2.6e9, flop_per_cycle(("AVX-512", "AMX bf16")), TabularAssumptions())
    assert tiles.flop_per_s["bf16"].low <= 1.98e12 <= tiles.flop_per_s["bf16"].high  # measured on such a machine
    assert processor(clock_hz=None).flop_per_s["fp32"].value == 2 * TabularAssumptions().cpu_flop_per_s


def test_a_rate_that_is_not_known_is_no_prediction() -> None:
    """bf16 on a processor without such units has no figure, and neither has its multiple."""
    assert processor().seconds(vector_operation("gemm", 512, "bf16")) is None
    assert speed_up(None, Figure(value=1.0, low=1.0, high=1.0)) is None


def test_what_is_listed() -> None:
    """Vectors in fp32 at each length, products in each precision at each side."""
    found = listed_operations((10, 20), (4,), ("fp32", "bf16"))
    assert len(found) == 4 * 2 + 2
    assert {one.precision for one in found if one.name != "gemm"} == {"fp32"}
