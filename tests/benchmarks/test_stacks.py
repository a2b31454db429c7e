"""Plans of well-known stacks meet what those stacks published, each within the tolerance its row states."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest


def _load() -> ModuleType:
    """`benchmarks/stacks.py`, which also writes the table of docs/accuracy.md."""
    path = Path(__file__).parents[2] / "benchmarks" / "stacks.py"
    spec = importlib.util.spec_from_file_location("stacks", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["stacks"] = module
    spec.loader.exec_module(module)
    return module


stacks = _load()
ROWS = stacks.load_stacks()
WORSE = 1.15  # a marked miss may move this much before it counts as a new one


def test_twelve_stacks_stand_with_their_sources() -> None:
    """At least twelve programs, each row with a source that names a commit or version, a date and a reason."""
    assert len({row.program for row in ROWS}) >= 12
    for row in ROWS:
        assert re.search(r"@[0-9a-f]{7}:", row.source), row.name
        assert row.published > 0
        assert row.why
        assert row.read_on >= "2026-11-22"
        assert row.workload.exists(), row.workload


@pytest.mark.parametrize("row", ROWS, ids=[f"{row.workload.stem.split('.')[0]} {row.metric}" for row in ROWS])
def test_the_plan_meets_the_published_figure(row: stacks.Stack) -> None:  # type: ignore[name-defined]
    """`tonnage size` in the row's own layout is within the tolerance of what was published.

    Rows that miss are marked with the ratio last seen: they may not get worse, and pass once they hold.
    """
    planned = stacks.plan_stack(row)
    if stacks.within(row, planned):
        return
    ratio = planned.ratio(row.published)
    said = planned.refusal if ratio is None else f"{ratio:.2f} of the published figure"
    assert row.expected_miss, f"{row.name}: {said}"
    if ratio is None:
        assert row.expected_miss == "refused", f"{row.name}: {said}"
    elif row.expected_miss != "refused":
        seen = float(row.expected_miss)
        distance, marked = (max(one, 1 / one) for one in (ratio, seen))
        assert distance <= marked * WORSE, f"{row.name}: {said}, marked at {seen}"
    pytest.xfail(f"{row.name}: {said}")
