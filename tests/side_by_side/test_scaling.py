"""Scaling over workers: the points of a file, efficiency with its interval, what limits it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tonnage.errors import WorkloadError
from tonnage.reports.engine_bench import engine_bench_report
from tonnage.reports.html import render_html
from tonnage.reports.rendering import render_report
from tonnage.side_by_side.cells import BenchCell
from tonnage.side_by_side.host import Host
from tonnage.side_by_side.reading import read_bench
from tonnage.side_by_side.result import BenchResult, sum_up
from tonnage.side_by_side.scaling import efficiency, losses, scaling_points, step_parts

TEXT = """bench:
  name: s
  repeats: 2
  data: [{name: d, generate: {rows: 1000, columns: 10}}]
  engines: [{engine: pytorch, epochs: 2, batch: 64, ENTRY}]
"""
SPEC = read_bench(TEXT.replace("ENTRY", "scaling: {workers: [1, 2, 4]}"))
HOST = Host(processor="test", physical_cores=4, logical_cores=4, memory_bytes=8 * 2**30, arm=False)


def rank(alone: float, synced: float, rows: float, waited: float | None = 0.0) -> dict[str, float | None]:
    return {"input_s": 0.1, "alone_s": alone, "synced_s": synced, "waited_s": waited, "rows": rows}


ONE = BenchCell(data="d", engine="pytorch-1w", turn=0, prepare_s=0.1, train_s=8.0, train_rows=800, quality=0.9,
                steps=(rank(1.0, 1.0, 64),))  # fmt: skip


def test_points_share_rows_and_batch_by_their_workers() -> None:
    """The most workers are one point of both curves; a weak point has its workers' share of rows and batch."""
    by_name = {one.name: one for one in SPEC.engines}
    assert list(by_name) == ["pytorch-1w", "pytorch-1w-weak", "pytorch-2w", "pytorch-2w-weak", "pytorch-4w"]
    assert [one.batch for one in by_name.values()] == [64, 16, 64, 32, 64]
    assert [one.takes_all_rows for one in by_name.values()] == [True, False, True, False, True]
    assert by_name["pytorch-4w"].threads == 4
    assert by_name["pytorch-4w"].scaling is not None
    assert by_name["pytorch-4w"].scaling.kinds == ("strong", "weak")


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ("scaling: {workers: [2, 4]}", "does not rise from 1"),
        ("scaling: {workers: [1]}", "one number alone"),
        ("workers: 2, scaling: {workers: [1, 2]}", "stated by `scaling` too"),
        ("devices: [0], scaling: {workers: [1, 2]}", "one for each of the most workers"),
        ("scaling: {workers: [1, 2]}}, {engine: xgboost, name: pytorch-2w", "is a point of `scaling` too"),
        ("scaling: {workers: [1, 2], kinds: [strong, strong]}", "names one twice"),
    ],
)
def test_what_contradicts_itself_is_refused(entry: str, words: str) -> None:
    with pytest.raises(WorkloadError, match=words):
        read_bench(TEXT.replace("ENTRY", entry))


def test_one_process_has_no_workers_to_scale_over() -> None:
    text = TEXT.replace("engine: pytorch, epochs: 2, batch: 64, ENTRY", "engine: xgboost, scaling: {workers: [1, 2]}")
    with pytest.raises(WorkloadError, match="xgboost runs in one process"):
        read_bench(text)


def test_efficiency_has_the_interval_of_its_repeats() -> None:
    """Of two repeats each an interval, that holds the ratio; of one none; without a base nothing is said."""
    wide = efficiency([100.0, 110.0], [150.0, 170.0], 2)
    assert wide is not None
    assert wide.low < 0.5 * (150 * 170 / 100 / 110) ** 0.5 < wide.high
    narrow = efficiency([100.0], [150.0], 2)
    assert narrow is not None
    assert narrow.low == narrow.high == pytest.approx(0.75)
    assert efficiency([], [150.0], 2) is None


def test_losses_sum_to_what_is_lost() -> None:
    """Known parts of made-up steps come back, and together they are 1 less the efficiency of the steps."""
    many = replace(ONE, steps=(rank(0.6, 0.9, 32, 0.05), rank(0.7, 0.9, 32, 0.15)))
    found = losses(step_parts([ONE]), step_parts([many]))
    assert found["communication"] == pytest.approx(0.2 / 0.9)
    assert found["load imbalance"] == pytest.approx(0.05 / 0.9)
    assert found["input"] == pytest.approx((0.1 - 0.05) / 0.9)
    assert found["cores shared"] == pytest.approx(0.1 / 0.9)
    assert found["computing"] == pytest.approx((0.45 - 0.45) / 0.9)
    assert sum(value or 0.0 for value in found.values()) == pytest.approx(1 - 0.5 * 1.0 / 0.9)


def test_what_was_not_measured_is_unknown() -> None:
    """Without steps nothing limits by name; without the kernel's count the cores are unknown, the rest is not."""
    assert losses(None, step_parts([ONE])) == {}
    many = replace(ONE, steps=(rank(0.6, 0.9, 32, None), rank(0.7, 0.9, 32, None)))
    assert losses(step_parts([ONE]), step_parts([many]))["cores shared"] is None


def test_the_report_shows_both_curves() -> None:
    """Table, JSON and page; a cell that failed leaves its point out, and rows of a share are in no other table."""
    cells = tuple(
        replace(ONE, engine=name, turn=turn, train_s=seconds + turn * 0.1, train_rows=rows, steps=steps)
        for turn in (0, 1)
        for name, seconds, rows, steps in (
            ("pytorch-1w", 8.0, 800, ONE.steps), ("pytorch-1w-weak", 2.0, 200, ()),
            ("pytorch-2w", 5.0, 800, (rank(0.5, 0.7, 32), rank(0.5, 0.7, 32))),
            ("pytorch-2w-weak", 2.5, 400, (rank(0.5, 0.7, 16),)),
        )
    )  # fmt: skip
    cells += (BenchCell(data="d", engine="pytorch-4w", turn=0, reason="ended by SIGKILL"),)
    found = BenchResult(spec=SPEC, host=HOST, rows=sum_up(SPEC, cells, HOST, {"d": 10}), cells=cells, cells_asked=10,
                        digests={"d": {"train": "0" * 64}}, shapes={"d": (800, 10)})  # fmt: skip
    points = {(one.kind, one.workers): one for one in scaling_points(SPEC, cells)}
    assert set(points) == {("strong", 1), ("strong", 2), ("weak", 1), ("weak", 2)}
    strong, weak = points["strong", 2], points["weak", 2]
    assert strong.efficiency is not None
    assert strong.efficiency.value == pytest.approx(0.8, rel=0.01)
    assert strong.limited_by == "communication"
    assert weak.limited_by is None
    report = engine_bench_report(found)
    text = render_report(report, "table")
    assert "scaling over workers" in text
    assert "communication" in text
    assert "unknown" in text
    assert "pytorch-2w-weak" not in text
    document = report.document()["scaling"]
    assert [one["limited_by"] for one in document] == [None, "communication", None, None]
    assert document[1]["efficiency"]["low"] < document[1]["efficiency"]["value"]
    assert "d: efficiency" in render_html(report.page())
