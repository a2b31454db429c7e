"""Who is faster, and how surely."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from tonnage.side_by_side.cells import BenchCell
from tonnage.side_by_side.faster import Faster, NotCompared, faster_on, first_beside, not_compared, paired_ratio
from tonnage.side_by_side.host import Host
from tonnage.side_by_side.reading import read_bench
from tonnage.side_by_side.result import BenchResult, sum_up

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


def bench_of(*cells: BenchCell) -> BenchResult:
    rows = sum_up(SPEC, cells, HOST, {"d": 10})
    return BenchResult(spec=SPEC, host=HOST, rows=rows, cells=cells, cells_asked=9, digests={}, shapes={"d": (700, 10)})


def pairs_of(*cells: BenchCell) -> dict[str, Faster]:
    return {one.other: one for one in faster_on(bench_of(*cells), SPEC.data[0])}


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
    assert 0.0 <= one.confidence < 0.5
    assert not one.sure


def test_one_repeat_says_nothing_of_it() -> None:
    """However large the difference; a turn that one of them has yet to measure is not shared."""
    cells = [took("xgboost", 0, 1.0), took("xgboost", 1, 1.0), took("lightgbm", 0, 50.0)]
    one = pairs_of(*cells)["lightgbm"]
    assert (one.confidence, one.repeats, one.sure) == (None, 1, False)
    assert one.ratio.low == one.ratio.high == one.ratio.value


def test_an_engine_that_missed_the_target_once_is_not_compared() -> None:
    """What is left of its times would flatter it. It is named with what it missed."""
    cells = [took("xgboost", turn, 1.0) for turn in range(2)] + [took("lightgbm", turn, 2.0) for turn in range(2)]
    cells += [took("catboost", 0, 0.1), took("catboost", 1, 0.1, quality=0.7)]
    assert set(pairs_of(*cells)) == {"lightgbm"}
    left = NotCompared(data="d", engine="catboost", repeats=2, failed=0, missed=1)
    assert not_compared(bench_of(*cells), SPEC.data[0]) == (left,)
    slower = [replace(one, curve=((100, 1.0, 0.7),)) for one in cells]
    assert pairs_of(*slower) == {}


def test_an_engine_that_failed_in_some_repeats_is_never_first() -> None:
    """It was the quickest where it ended, and ran out of time in two of three repeats."""
    cells = [took(name, turn, s) for name, s in (("xgboost", 1.0), ("lightgbm", 2.0)) for turn in range(3)]
    cells.append(took("catboost", 0, 0.1))
    cells += [BenchCell(data="d", engine="catboost", turn=turn, reason="out of time") for turn in (1, 2)]
    assert {(name, one.first) for name, one in pairs_of(*cells).items()} == {("lightgbm", "xgboost")}
    left = NotCompared(data="d", engine="catboost", repeats=3, failed=2, missed=0)
    assert not_compared(bench_of(*cells), SPEC.data[0]) == (left,)


def test_equal_times_give_no_confidence() -> None:
    """A constant ratio is sure, whichever of the two is ahead."""
    assert paired_ratio([(1.0, 1.0), (2.0, 2.0)])[1] == 0.0
    assert paired_ratio([(1.0, 2.0), (2.0, 4.0)])[1] == 1.0
    assert paired_ratio([(2.0, 1.0), (4.0, 2.0)])[1] == 1.0


@pytest.mark.parametrize("engines", [2, 6])
@pytest.mark.parametrize("repeats", [2, 5])
def test_equal_engines_are_seldom_called_different(engines: int, repeats: int) -> None:
    """Which comes first is chance then, and so is each ratio: at most about one bench in ten calls any pair sure (400
    benches: 10 % with three standard errors of 1.5 %)."""
    random, wrong, benches = Random(7), 0, 400
    for _ in range(benches):
        seconds = {str(one): {turn: random.lognormvariate(0.0, 0.1) for turn in range(repeats)}
                   for one in range(engines)}  # fmt: skip
        wrong += any(one.sure for one in first_beside("d", seconds))
    assert wrong / benches <= 0.145
