"""Vector operations of devices: multiples, promises, what is refused; a small real run of the processor."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import tonnage
from tonnage.calibration.local_profile import DeviceCurve, DeviceProfile, MachineIdentity, MeasuredPoint, Timing
from tonnage.errors import InputError, UnknownName
from tonnage.reports.rendering import render_report
from tonnage.reports.vector_bench import vector_bench_report
from tonnage.side_by_side.vectors import VectorResult, VectorsCompared, compared, roof_of_profile
from tonnage.sizing.estimates import Figure
from tonnage.sizing.vector_work import vector_operation


def exactly(value: float) -> Figure:
    return Figure(value=value, low=value, high=value, basis="measured")


def result(device: str, kind: str, seconds: float, precision: str = "fp32", **more: Any) -> VectorResult:
    work = vector_operation("gemm", 512, precision)
    return VectorResult(device=device, kind=kind, work=work, predicted_s=exactly(seconds), measured_s=exactly(seconds),
                        repeats=5, **more)  # fmt: skip


def test_a_gpu_is_beside_the_processor_at_the_same_work() -> None:
    """tf32 is beside fp32; a format that the processor lacks has no multiple, and the processor itself has none."""
    rows = compared(
        [result("cpu", "cpu", 8.0), result("H100-SXM", "cuda", 0.5), result("H100-SXM", "cuda", 0.25, "tf32"),
         result("H100-SXM", "cuda", 0.1, "bf16")], {"H100-SXM": 10.0},
    )  # fmt: skip
    times = [None if one.measured_times is None else one.measured_times.value for one in rows]
    assert times == [None, 16.0, 32.0, None]
    assert [one.promised_times for one in rows] == [None, 10.0, 10.0, None]


def test_the_page_says_of_how_many_operations_a_promise_holds() -> None:
    """As measured where it was measured; a busy machine is said."""
    cells = [result("cpu", "cpu", 8.0), *(result("H100-SXM", "cuda", s, p) for s, p in ((0.5, "fp32"), (1.0, "tf32")))]
    rows = compared(cells, {"H100-SXM": 10.0})
    found = VectorsCompared(
        rows=rows, origins={"cpu": ("units", None), "H100-SXM": ("data sheet", None)}, threads=2,
        measured_on="2026-11-27", torch_version="2.13.0", others_cpu_fraction=0.5,
    )  # fmt: skip
    page = render_report(vector_bench_report(found), "table")
    said = " ".join(page.split())
    assert "«10x a processor» is reached by 1 of 2 operations as measured: 8x (gemm tf32 of 512) to 16x" in said
    assert "other programs took 50%" in said
    quiet = render_report(vector_bench_report(replace(found, others_cpu_fraction=0.01)), "table")
    assert "other programs" not in quiet


def profile(**changes: Any) -> DeviceProfile:
    def timing(seconds: float) -> Timing:
        return Timing(median_s=seconds, low_quartile_s=seconds * 0.99, high_quartile_s=seconds * 1.01, repeats=9)

    def curve(operation: str, unit: str, *points: tuple[float, float]) -> DeviceCurve:
        made = tuple(MeasuredPoint(size=size, amount=size, timing=timing(seconds)) for size, seconds in points)
        return DeviceCurve(operation=operation, precision="fp32", threads=2, unit=unit, points=made)

    return DeviceProfile(
        name="local-made", kind="cpu", made_at="2026-11-26T00:00:00+00:00", versions=(), framework_bytes=1e8,
        adapter_library_bytes=0.0, load_average=0.0, time_log_sd=0.1, memory_log_sd=0.1, prior_source="",
        usd_per_hour=None, others_cpu_fraction=0.0,
        identity=MachineIdentity(processor="made", physical_cores=2, logical_cores=2, architecture="x86_64",
                                 memory_gib=8.0),
        curves=(curve("stream", "bytes", (49152.0, 1e-5), (12e6, 1e-3), (48e6, 6e-3)),
                curve("product", "flop", (1e6, 1e-4), (2e9, 1e-2))), **changes,
    )  # fmt: skip


def test_a_measured_processor_is_predicted_by_its_own_rates() -> None:
    """The fastest stream from memory (12 of 16 bytes counted) and the largest product; other threads are refused."""
    roof = roof_of_profile(profile(), 2, "made")
    assert roof.bytes_per_s.value == pytest.approx(12e6 / 1e-3 * 16 / 12)
    assert roof.flop_per_s["fp32"].value == pytest.approx(2e11)
    assert "bf16" not in roof.flop_per_s
    with pytest.raises(InputError, match="4 threads was not measured"):
        roof_of_profile(profile(), 4, "made")


@pytest.mark.heavy
def test_the_processor_really_timed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every operation has a time above 0 and a prediction made first; the rows lie in the file; a GPU of the catalog
    stands beside it, predicted alone."""
    pytest.importorskip("torch")
    monkeypatch.setenv("TONNAGE_HOME", str(tmp_path / "home"))
    file = tmp_path / "rows.csv"
    asked = tonnage.BenchVectorsOptions(devices=("cpu",), gpu="A100-80GB-SXM", lengths=(4096,), sides=(64,), threads=1,
                                        rows=str(file))  # fmt: skip
    answer = tonnage.bench_vectors(asked)
    here = [one for one in answer.found.rows if one.kind == "cpu"]
    assert {one.work.name for one in here} == {"axpy", "dot", "sum", "multiply", "gemm"}
    assert all(one.measured_s is not None and one.measured_s.value > 0 for one in here)
    assert all(one.predicted_s is not None for one in here if one.work.precision == "fp32")
    there = [one for one in answer.found.rows if one.kind == "catalog"]
    assert all(one.measured_s is None and one.predicted_s is not None for one in there)
    assert {one.promised_times for one in there if one.predicted_times is not None} == {6.0}
    rows = list(csv.DictReader(file.read_text(encoding="utf-8").splitlines()))
    assert len(rows) == len(answer.found.rows)
    assert json.loads(answer.to_json())["schema"] == "tonnage/vector-bench@1"


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("options", "words"),
    [({"devices": ("tpu",)}, "no kind of device"), ({"lengths": (0,)}, "--length: found 0"),
     ({"lengths": (2**34,)}, "do not fit"), ({"threads": 4000}, "this machine has"), ({"profile": "nix"}, "no device"),
     ({"gpu": "H1000"}, "H1000")],
)  # fmt: skip
def test_what_is_refused(options: dict[str, Any], words: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With what is expected instead: the kinds there are, the range, the largest size that fits, near names."""
    pytest.importorskip("torch")
    monkeypatch.setenv("TONNAGE_HOME", str(tmp_path))
    asked = tonnage.BenchVectorsOptions(**({"lengths": (16,), "sides": (8,), "devices": ("cpu",)} | options))
    with pytest.raises((InputError, UnknownName), match=words) as failed:
        tonnage.bench_vectors(asked)
    assert failed.value.hint or "expected" in str(failed.value) or "has" in str(failed.value)
