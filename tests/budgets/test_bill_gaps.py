"""Measured hours beside a bill: each gap is made of its parts, to the pico-dollar."""

from __future__ import annotations

import csv
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import tonnage
from tonnage.bills.lines import BillLine
from tonnage.budgets.bill_gaps import BillTolerance, CloudGap, OwnUse, compare_with_bill
from tonnage.errors import DataError, TonnageError, UnknownName
from tonnage.places.contract import tag_of
from tonnage.runs import EventKind, RunFolder
from tonnage.settings import load_settings
from tonnage.testing.runs import run_spec

USD = 10**12
NOON = datetime(2026, 11, 3, 12, tzinfo=UTC)
TOLERANCE = BillTolerance(percent=2.0, usd=0.01, edges_s=600.0)
USE = OwnUse(name="one", kind="run", started_at=NOON, seconds=7200.0, usd_per_hour=3.0, usd=6.0, quantum_s=60.0)
LINE = BillLine(day=NOON.date(), item="p3", model=None, key=None, usd_pico=6 * USD, digit_pico=0, hours=2.0,
                tags=(("run", "one"),))  # fmt: skip


def compared(*lines: BillLine, uses: tuple[OwnUse, ...] = (USE,)) -> Any:
    return compare_with_bill("x", lines, uses, lambda line: dict(line.tags).get("run"), TOLERANCE)


def one_gap(*lines: BillLine, uses: tuple[OwnUse, ...] = (USE,)) -> CloudGap:
    (gap,) = compared(*lines, uses=uses).gaps
    known = [part.pico for part in gap.parts]
    if gap.gap_pico is not None and None not in known:
        assert sum(filter(None, known)) == gap.gap_pico, gap.parts
    assert isinstance(gap, CloudGap)
    return gap


def bare(**said: Any) -> BillLine:
    return replace(LINE, hours=None, **said)


@pytest.mark.parametrize(
    ("lines", "uses", "state", "reasons"),
    [
        ([LINE], (USE,), "equal", []),
        ([replace(LINE, hours=2.0 + 1 / 60, usd_pico=6_050_000_000_000)], (USE,), "within tolerance",
         ["billing quantum"]),
        ([replace(LINE, hours=2.15, usd_pico=6_450_000_000_000)], (USE,), "explained", ["start and end"]),
        ([replace(LINE, hours=5.0, usd_pico=15 * USD)], (USE,), "unexplained", ["hours"]),
        ([replace(LINE, hours=1.0, usd_pico=3 * USD)], (USE,), "unexplained", ["hours"]),
        ([replace(LINE, usd_pico=7 * USD)], (USE,), "explained", ["price"]),
        ([LINE, bare(usd_pico=-2 * USD, charge="credit")], (USE,), "explained", ["credit"]),
        ([LINE, bare(usd_pico=USD, charge="tax")], (USE,), "explained", ["tax"]),
        ([LINE, bare(usd_pico=USD)], (USE,), "explained", ["other charges"]),
        ([replace(LINE, charge="commitment", usd_pico=2 * USD)], (USE,), "explained", ["commitment"]),
        ([bare(usd_pico=5 * USD)], (USE,), "explained", ["price"]),
        ([replace(LINE, usd_pico=None, currency="EUR")], (USE,), "unknown", ["other currency"]),
        ([LINE], (replace(USE, usd=None, usd_per_hour=None),), "unknown", ["no price"]),
        ([LINE], (), "unexplained", ["not measured here"]),
        ([replace(LINE, tags=())], (USE,), "unexplained", ["untagged"]),
        ([bare(tags=(), usd_pico=0)], (USE,), "unexplained", ["not in the bill"]),
        ([LINE], (replace(USE, usd=0.0, usd_per_hour=0.0),), "explained", ["price"]),
    ],
)  # fmt: skip
def test_what_a_gap_is_made_of(lines: list[BillLine], uses: tuple[OwnUse, ...], state: str, reasons: list[str]) -> None:
    """One reason at a time; the parts add up to the gap."""
    gap = one_gap(*lines, uses=uses)
    left_out = {"hours"} if gap.bill_pico == 0 else set[str]()
    assert (gap.state, [part.reason for part in gap.parts if part.reason not in left_out]) == (state, reasons)


def test_several_reasons_at_once() -> None:
    """A dearer hour, ten minutes more of it, a disk and a credit: all four, with their amounts."""
    gap = one_gap(replace(LINE, hours=2.15, usd_pico=round(2.15 * 4 * USD)), bare(usd_pico=USD),
                  bare(usd_pico=-USD // 2, charge="credit"))  # fmt: skip
    assert {part.reason: part.pico for part in gap.parts} == {
        "credit": -USD // 2, "start and end": 450_000_000_000, "price": 2_150_000_000_000, "other charges": USD,
    }  # fmt: skip


def test_days_split_at_midnight() -> None:
    """A session over midnight is two days; days that the bill does not have are left out."""
    use = replace(USE, started_at=datetime(2026, 11, 3, 23, tzinfo=UTC))
    old = replace(USE, name="old", started_at=NOON - timedelta(days=9))
    found = compared(replace(LINE, hours=1.0, usd_pico=3 * USD),
                     replace(LINE, day=date(2026, 11, 4), hours=1.0, usd_pico=3 * USD), uses=(use, old))  # fmt: skip
    assert [(gap.day.day, gap.measured_hours, gap.state) for gap in found.gaps] == [
        (3, 1.0, "equal"),
        (4, 1.0, "equal"),
    ]


def test_what_names_nobody_is_listed() -> None:
    """Lines without a tag of ours, the dearest first, and other currencies by their count."""
    found = compared(LINE, replace(LINE, tags=(), machine="g5", usd_pico=9 * USD),
                     bare(tags=(), item="disk", usd_pico=1), bare(tags=(), usd_pico=None, currency="EUR"))  # fmt: skip
    assert [(one.item, one.hours, one.pico) for one in found.unmatched][:2] == [
        ("usage: g5", 2.0, 9 * USD), ("usage: disk", None, 1),
    ]  # fmt: skip
    assert found.foreign == (("EUR", 1),)
    assert compare_with_bill("x", [], [USE], lambda _: None, TOLERANCE) is None


def home_with_a_run(folder: Path) -> Any:
    run = RunFolder(folder / "runs" / "first-run")
    run.create(run_spec("first-run"), submitted={"name": "first-run"})
    run.record(EventKind.STARTED, who="supervisor", at=NOON)
    run.record(EventKind.SUCCEEDED, who="supervisor", at=NOON + timedelta(hours=2))
    return load_settings({}, {"TONNAGE_HOME": str(folder)}, folder)


def cur(path: Path, *rows: dict[str, str]) -> Path:
    base = {"line_item_usage_start_date": "2026-11-03T12:00:00Z", "line_item_unblended_cost": "7.20",
            "line_item_usage_amount": "2.0", "pricing_unit": "Hrs", "line_item_currency_code": "USD",
            "line_item_line_item_type": "Usage", "line_item_resource_id": "i-1", "resource_tags": ""}  # fmt: skip
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(base))
        writer.writeheader()
        writer.writerows(base | row for row in rows)
    return path


def test_a_run_and_its_bill(tmp_path: Path) -> None:
    """By the tag that a place sets, by one of the user's, by --match; another home's run is not this home's."""
    settings = home_with_a_run(tmp_path / "home")
    tag = tag_of(tmp_path / "home" / "runs" / "first-run", 1)
    for row, options in (
        ({"resource_tags": f'{{"user_tonnage": "{tag}"}}'}, {}),
        ({"resource_tags": '{"user_job": "first-run"}'}, {"tag": ("job",)}),
        ({}, {"match": (("i-1", "first-run"),)}),
    ):
        answer = tonnage.reconcile_budgets(
            cur(tmp_path / "bill.csv", row), tonnage.BudgetsReconcileOptions(**options), settings=settings
        )
        (gap,) = answer.found.gaps
        assert (gap.name, gap.estimate_pico, gap.bill_pico, gap.state) == ("first-run", 72 * USD // 10, 72 * USD // 10,
                                                                           "equal")  # fmt: skip
        assert answer.fault is None
    foreign = tag.replace(tag.split(":")[1], "ffffffff")
    answer = tonnage.reconcile_budgets(cur(tmp_path / "bill.csv", {"resource_tags": f'{{"tonnage": "{foreign}"}}'}),
                                       settings=settings)  # fmt: skip
    assert [part.reason for part in answer.found.gaps[0].parts] == ["untagged"]
    assert answer.fault is not None
    assert answer.fault.exit_code == 1
    document = answer.report().document()
    assert document["gaps"][0]["parts"][0] == {"reason": "untagged", "usd": -7.2,
                                               "detail": "2.00 h of this day have no tag of ours"}  # fmt: skip


def test_what_cannot_be_compared_is_said(tmp_path: Path) -> None:
    """Unknown runs, bills for tokens, nothing that --only leaves."""
    settings = home_with_a_run(tmp_path / "home")
    bill = cur(tmp_path / "bill.csv", {})
    with pytest.raises(UnknownName, match="no run or service is named 'frist-run'"):
        tonnage.reconcile_budgets(
            bill, tonnage.BudgetsReconcileOptions(match=(("i-1", "frist-run"),)), settings=settings
        )
    with pytest.raises(DataError, match="no line that holds 'nobody'"):
        tonnage.reconcile_budgets(bill, tonnage.BudgetsReconcileOptions(only="nobody"), settings=settings)
    tokens = tmp_path / "tokens.csv"
    tokens.write_text("usage_date_utc,model,cost_usd\n2026-11-03,m,1\n")
    with pytest.raises(TonnageError, match="a bill for tokens"):
        tonnage.reconcile_budgets(tokens, settings=settings)
