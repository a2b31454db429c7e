"""Traces: what is read, what is refused, and what becomes of samples and holes."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from tonnage.errors import InputError
from tonnage.spot_instances import SpotJob, TraceError, draw_joint_windows, draw_windows, parse_trace

from .conftest import document, trace

GOOD = document([0, 1, 1], nodes=1, zone="z", family="f", accelerator="v100_1")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is not JSON"),
        ("{", "is not JSON (line 1)"),
        ('{"metadata": {"gap_seconds": 60}, "data": [1' + "0" * 5000 + "]}", "is not JSON"),
        ("[1, 2]", "holds no JSON object"),
        ("null", "holds no JSON object"),
        (json.dumps({"data": [1]}), "has no `metadata`"),
        (json.dumps({"metadata": {"gap_seconds": 60}}), "has no `data`"),
        (json.dumps({"metadata": 3, "data": [1]}), "`metadata` is no object"),
        (json.dumps({"metadata": {}, "data": [1]}), "`metadata` has no `gap_seconds`"),
        (json.dumps(document([])), "`data` is empty"),
        (json.dumps(document([None, None])), "holds no sample, only null"),
        (json.dumps({"metadata": {"gap_seconds": 60}, "data": "0101"}), "`data` is no list"),
        (json.dumps(document([1], gap_seconds=-5)), "`gap_seconds` is -5"),
        (json.dumps(document([1], gap_seconds=0)), "`gap_seconds` is 0"),
        (json.dumps(document([1], gap_seconds=1e12)), "`gap_seconds` is 1000000000000.0"),
        (json.dumps(document([10**400])), "sample 0 of `data` is 1000"),
        (json.dumps(document([1], gap_seconds="60")), "`gap_seconds` is '60'"),
        (json.dumps(document([1], gap_seconds=True)), "`gap_seconds` is True"),
        ('{"metadata": {"gap_seconds": NaN}, "data": [1]}', "`gap_seconds` is nan"),
        ('{"metadata": {"gap_seconds": 60}, "data": [1, NaN]}', "sample 1 of `data` is nan"),
        (json.dumps(document([0, 1, "up"])), "sample 2 of `data` is 'up'"),
        (json.dumps(document([0, [1]])), "sample 1 of `data` is [1]"),
        (json.dumps(document([0, -1])), "sample 1 of `data` is -1"),
        (json.dumps(document([1], nodes=0)), "`nodes` is 0"),
        (json.dumps(document([1], nodes=1.5)), "`nodes` is 1.5"),
        (json.dumps(document([1, 1]) | {"spot_price_usd_per_h": [0.9]}), "1 prices for 2 samples"),
        (json.dumps(document([1]) | {"spot_price_usd_per_h": [-1]}), "`spot_price_usd_per_h` is -1"),
    ],
)
def test_a_broken_trace_is_named(text: str, said: str) -> None:
    """TraceError, exit 2, names the file and the place, with a hint."""
    with pytest.raises(TraceError) as caught:
        parse_trace(text, name="broken")
    assert caught.value.message.startswith("broken")
    assert said in caught.value.message
    assert caught.value.hint
    assert caught.value.exit_code == 2


def test_metadata_is_kept() -> None:
    found = parse_trace(json.dumps(GOOD), name="n")
    assert (found.name, found.family, found.zone, found.accelerator, found.nodes) == ("n", "f", "z", "v100_1", 1)


def test_nodes_is_a_threshold() -> None:
    """A job of 4 instances has spot where 4 or more are there."""
    found = trace([0, 3, 4, 5], nodes=4)
    assert found.segments[0].tolist() == [False, False, True, True]


@pytest.mark.parametrize(
    ("gap_s", "data", "expected"),
    [
        (120, [0, 1, 0], [0, 1, 0]),
        (60, [0, 1, 1, 0, 1, 1], [0, 1, 1]),
        (240, [1, 0], [1, 1, 0, 0]),
        (600, [1, 0], [1] * 5 + [0] * 5),
        (180, [1, 0], [1, 1, 0]),
    ],
)
def test_samples_become_ticks(gap_s: float, data: list[int], expected: list[int]) -> None:
    """A tick of 120 s holds the last sample at or before it."""
    assert trace(data, gap_seconds=gap_s).ticks()[0].astype(int).tolist() == expected


def test_short_holes_hold_and_long_ones_split() -> None:
    """600 s between known samples hold the value before; more makes two stretches."""
    held = trace([1, None, None, None, None, 0])
    assert held.segments[0].astype(int).tolist() == [1, 1, 1, 1, 1, 0]
    split = trace([None, 1, None, None, None, None, None, 0, 1])
    assert [one.astype(int).tolist() for one in split.segments] == [[1], [0, 1]]


def test_sparse_sampling_is_no_hole() -> None:
    """Samples 1,000 s apart are a coarse record, not a record full of holes."""
    assert len(trace([1, 0, 1], gap_seconds=1000).segments) == 1


def job(**changes: Any) -> SpotJob:
    return SpotJob(**({"work_h": 2.0, "deadline_h": 3.0, "changeover_h": 0.1, "price_ratio": 3.0} | changes))


def test_windows_lie_inside_a_stretch() -> None:
    """No window runs over a hole: here every stretch is all up or all down."""
    data: list[Any] = [*([1] * 120), *([None] * 10), *([0] * 120)]
    windows = draw_windows(trace(data), ticks=job().ticks, count=50, seed=3)
    shares = windows.up.mean(axis=(1, 2))
    assert set(shares.tolist()) == {0.0, 1.0}


def test_windows_are_the_seeds() -> None:
    data = [int(value) for value in np.random.default_rng(1).integers(0, 2, 500)]
    same = [draw_windows(trace(data), ticks=90, count=20, seed=5).up for _ in range(2)]
    other = draw_windows(trace(data), ticks=90, count=20, seed=6).up
    assert (same[0] == same[1]).all()
    assert (same[0] != other).any()


def test_a_trace_shorter_than_the_deadline_is_an_error() -> None:
    with pytest.raises(InputError, match=r"covers 0\.3 h"):
        draw_windows(trace([1] * 10), ticks=90, count=3, seed=0)
    with pytest.raises(InputError, match=r"covers 0\.3 h"):
        draw_joint_windows([trace([1] * 10), trace([1] * 500)], ticks=90, count=3, seed=0)


def test_zones_begin_together() -> None:
    """Column z of a joint window is trace z over the same ticks."""
    first, second = [int(n % 7 < 3) for n in range(300)], [int(n % 7 >= 3) for n in range(300)]
    up = draw_joint_windows([trace(first), trace(second)], ticks=90, count=10, seed=0).up
    assert (up[:, :, 0] != up[:, :, 1]).all()
    with pytest.raises(InputError, match="has a hole"):
        draw_joint_windows([trace([*first, *([None] * 9), 1]), trace(second)], ticks=9, count=1, seed=0)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"deadline_h": 2.05}, "shorter than 2 h of work plus 0.1 h of start-up"),
        ({"work_h": 0.0}, "--hours 0"),
        ({"work_h": float("nan")}, "--hours nan"),
        ({"changeover_h": -0.1}, "--changeover-hours -0.1"),
        ({"price_ratio": 0.9}, "--price-ratio 0.9"),
        ({"deadline_h": float("inf")}, "--deadline-hours inf"),
    ],
)
def test_a_job_that_cannot_be_is_refused(changes: dict[str, float], said: str) -> None:
    with pytest.raises(InputError) as caught:
        job(**changes)
    assert said in caught.value.message
    assert caught.value.hint
