"""Cells summed up: intervals, the target, dollars, and what was predicted."""

from __future__ import annotations

from dataclasses import replace

from tonnage.side_by_side.cells import BenchCell
from tonnage.side_by_side.host import Host
from tonnage.side_by_side.reading import read_bench
from tonnage.side_by_side.result import sum_up

SPEC = read_bench("""bench:
  name: a
  repeats: 2
  price: {usd_per_hour: 3.6}
  data: [{name: d, generate: {rows: 1000, columns: 10}, target: 0.8}]
  engines: [{engine: xgboost, rounds: 50}, {engine: pytorch, devices: ["0"]}]
""")
HOST = Host(processor="test", physical_cores=1, logical_cores=2, memory_bytes=8 * 2**30, arm=False)
CELL = BenchCell(
    data="d", engine="xgboost", turn=0, prepare_s=1.0, train_s=4.0, cpu_s=6.0, quality=0.9, train_rows=700,
    peak_rss_bytes=2**30, curve=((25, 2.0, 0.7), (50, 4.0, 0.85)),
)  # fmt: skip


def test_dollars_are_counted_to_the_target() -> None:
    """5 s of preparing and training until the target, at 3.60 dollars an hour."""
    (row,) = sum_up(SPEC, [CELL, replace(CELL, turn=1)], HOST, {"d": 10})
    assert row.to_target_s is not None
    assert abs(row.to_target_s.value - 5.0) < 1e-9
    assert row.usd_to_target is not None
    assert abs(row.usd_to_target.value - 0.005) < 1e-12
    assert row.rows_per_s is not None
    assert abs(row.rows_per_s.value - 700 * 50 / 4.0) < 1e-6
    assert row.cores_used is not None
    assert abs(row.cores_used.value - 1.5) < 1e-12


def test_a_target_missed_once_has_no_time() -> None:
    """A mean over the repeats that came to the target would flatter the engine."""
    missed = replace(CELL, turn=1, curve=((50, 4.0, 0.7),))
    (row,) = sum_up(SPEC, [CELL, missed], HOST, {"d": 10})
    assert row.to_target_s is None
    assert row.usd_to_target is None
    assert row.reached == 1


def test_a_failed_cell_keeps_its_reason_beside_good_ones() -> None:
    """One repeat that failed does not hide the others, nor they it."""
    (row,) = sum_up(
        SPEC, [CELL, BenchCell(data="d", engine="xgboost", turn=1, reason="ended by SIGKILL")], HOST, {"d": 10}
    )
    assert (row.done, row.failed, row.reason) == (1, 1, "ended by SIGKILL")


def test_predicted_on_processors_alone() -> None:
    """The predictor is asked for the threads that were pinned; of a GPU whose card nobody named it says nothing."""
    both = sum_up(SPEC, [CELL, replace(CELL, engine="pytorch")], HOST, {"d": 10})
    assert both[0].predicted_s is not None
    assert both[0].predicted_s.low < both[0].predicted_s.value < both[0].predicted_s.high
    assert both[1].predicted_s is None


def test_a_known_card_is_predicted() -> None:
    """The engine's GPU by its number; a card that the catalog does not know, one that is not there, and several GPUs
    have no prediction, and an engine that the physics is not of a wider one."""
    from tonnage.catalog import load_catalog

    card = load_catalog().accelerator("H100-SXM")
    columns = {"d": 10}
    spec = read_bench("""bench:
  name: a
  threads: 2
  data: [{name: d, generate: {rows: 1000, columns: 10}}]
  engines: [{engine: xgboost, devices: ["0"]}, {engine: lightgbm, devices: ["0"]}, {engine: catboost, devices: ["1"]},
            {engine: xgboost, name: absent, devices: ["7"]}, {engine: pytorch, devices: ["0"]},
            {engine: pytorch, name: two, devices: ["0", "1"], workers: 2}]
""")
    cells = [replace(CELL, engine=one.name, train_rows=700_000) for one in spec.engines]
    rows = {row.engine.name: row.predicted_s for row in sum_up(spec, cells, replace(HOST, gpus=(card, None)), columns)}
    assert {name for name, figure in rows.items() if figure is None} == {"catboost", "absent", "two"}
    trees, other = rows["xgboost"], rows["lightgbm"]
    assert trees is not None
    assert other is not None
    assert trees.value == other.value
    assert trees.high < other.high


def test_cards_are_those_that_the_driver_names() -> None:
    """By the catalog's name; a board of another name is none, and without a driver there are none."""
    from types import SimpleNamespace

    from tonnage.benchmarks.machine import known_gpus

    boards = ["NVIDIA H100 80GB HBM3", "NVIDIA Something 9"]
    nvml = SimpleNamespace(
        NVMLError=RuntimeError, nvmlInit=lambda: None, nvmlDeviceGetCount=lambda: 2,
        nvmlDeviceGetHandleByIndex=lambda index: index, nvmlDeviceGetName=lambda handle: boards[handle],
    )  # fmt: skip
    assert [card.name if card else None for card in known_gpus(nvml)] == ["H100-SXM", None]

    def fails() -> None:
        raise RuntimeError("no driver")

    nvml.nvmlInit = fails
    assert known_gpus(nvml) == ()
