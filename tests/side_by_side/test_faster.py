"""Who is faster, and how surely."""

from __future__ import annotations

from dataclasses import replace

from tonnage.side_by_side.cells import BenchCell
from tonnage.side_by_side.faster import Faster, faster_on, paired_ratio
from tonnage.side_by_side.reading import read_bench
from tonnage.side_by_side.result import BenchResult, Host, sum_up

SPEC = read_bench("""bench:
  name: a
  repeats: 3
  data: [{name: d, generate: {rows: 1000, columns: 10}, target: 0.8}]
  engines: [{engine: xgboost}, {engine: lightgbm}, {engine: catboost}]
""")
HOST = Host(processor="test", physical_cores=1, logical_cores=2, memory_bytes=8 * 2**30, arm=False)


def took(engine: str, turn: int, seconds: float, quality: float = 0.9) -> BenchCell:
    return BenchCell(data="d", engine=engine, turn=turn, prepare_s=0.0, train_s=seconds, quality=quality,
                     train_rows=700, curve=((100, seconds, quality),))  # fmt: skip


def pairs_of(*cells: BenchCell) -> dict[str, Faster]:
    rows = sum_up(SPEC, cells, HOST, {"d": 10})
    found = BenchResult(
        spec=SPEC, host=HOST, rows=rows, cells=cells, cells_asked=9, digests={}, shapes={"d": (700, 10)}
    )
    return {one.other: one for one in faster_on(found, SPEC.data[0])}


def test_a_slow_minute_that_meets_all_does_not_hide_who_is_faster() -> None:
    """Times vary threefold from turn to turn, the ratio within a turn hardly: 10 % more is seen surely."""
    turns = (1.0, 3.0, 2.0)
    cells = [took("xgboost", turn, s) for turn, s in enumerate(turns)]
    cells += [took("lightgbm", turn, s * (1.1 + 0.002 * turn)) for turn, s in enumerate(turns)]
    one = pairs_of(*cells)["lightgbm"]
    assert one.first == "xgboost"
    assert one.sure
    assert 1.09 < one.ratio.low < one.ratio.high < 1.12


def test_turns_that_disagree_leave_it_open() -> None:
    """Each was ahead once."""
    cells = [took("xgboost", 0, 1.0), took("xgboost", 1, 2.0), took("lightgbm", 0, 2.1), took("lightgbm", 1, 1.0)]
    one = pairs_of(*cells)["lightgbm"]
    assert one.confidence is not None
    assert 0.5 <= one.confidence < 0.9
    assert not one.sure


def test_one_repeat_says_nothing_of_it() -> None:
    """However large the difference; and a turn in which one of them failed is not shared."""
    cells = [took("xgboost", 0, 1.0), took("xgboost", 1, 1.0), took("lightgbm", 0, 50.0)]
    cells.append(BenchCell(data="d", engine="lightgbm", turn=1, reason="ended by SIGKILL"))
    one = pairs_of(*cells)["lightgbm"]
    assert (one.confidence, one.repeats, one.sure) == (None, 1, False)
    assert one.ratio.low == one.ratio.high == one.ratio.value


def test_an_engine_that_missed_the_target_once_is_not_compared() -> None:
    """What is left of its times would flatter it."""
    cells = [took("xgboost", turn, 1.0) for turn in range(2)] + [took("lightgbm", turn, 2.0) for turn in range(2)]
    cells += [took("catboost", 0, 0.1), took("catboost", 1, 0.1, quality=0.7)]
    assert set(pairs_of(*cells)) == {"lightgbm"}
    slower = [replace(one, curve=((100, 1.0, 0.7),)) for one in cells]
    assert pairs_of(*slower) == {}


def test_equal_times_are_as_likely_either_way() -> None:
    """Half the confidence, not none and not all; a constant ratio is sure."""
    assert paired_ratio([(1.0, 1.0), (2.0, 2.0)])[1] == 0.5
    assert paired_ratio([(1.0, 2.0), (2.0, 4.0)])[1] == 1.0
