"""Each form of each report, against a golden file. `TONNAGE_WRITE_GOLDEN=1 pytest` writes them anew for review."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tonnage.planning.plan import Plan
from tonnage.planning.sizes import SizeReport
from tonnage.reports import FORMATS, Look, render_explain, render_plan, render_size
from tonnage.sizing.assumption_table import Assumption

GOLDEN = Path(__file__).parent / "golden"
ASSUMED = (Assumption(name="gemm_peak_fraction", value=0.74, low=0.72, high=0.8, source="a fit"),)


def check(text: str, name: str) -> None:
    path = GOLDEN / name
    if os.environ.get("TONNAGE_WRITE_GOLDEN"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("form", FORMATS)
def test_plan(plan: Plan, form: str) -> None:
    """A plan reads as it did."""
    check(render_plan(plan, form, look=Look(width=120)), f"plan.{form}")


@pytest.mark.parametrize("width", [40, 80, 200])
def test_plan_widths(plan: Plan, width: int) -> None:
    """A plan reads as it did in a narrow and in a wide window."""
    check(render_plan(plan, "table", look=Look(width=width)), f"plan-{width}.table")


@pytest.mark.parametrize("form", ["table", "json"])
def test_nothing_fits(empty_plan: Plan, form: str) -> None:
    """A plan without options shows its nearest misses."""
    check(render_plan(empty_plan, form), f"nothing-fits.{form}")


@pytest.mark.parametrize("form", ["table", "json"])
def test_service(service_plan: Plan, form: str) -> None:
    """A service has a price a month and a p95, no end."""
    check(render_plan(service_plan, form), f"service.{form}")


@pytest.mark.parametrize("form", FORMATS)
def test_size(size_report: SizeReport, form: str) -> None:
    """A size reads as it did."""
    check(render_size(size_report, form), f"size.{form}")


@pytest.mark.parametrize("form", FORMATS)
def test_explain(plan: Plan, form: str) -> None:
    """An explanation reads as it did."""
    check(render_explain(plan, None, ASSUMED, form), f"explain.{form}")
