"""Machines of one's own: what their owner states becomes an hour, an offer, and a total like any other's."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pytest

from tonnage import api
from tonnage.catalog import Catalog
from tonnage.comparison.comparing import Comparison
from tonnage.comparison.owned import Owned, with_owned
from tonnage.comparison.reaching import NotComputed
from tonnage.errors import WorkloadError
from tonnage.reports.comparison.report import render_comparison

ROOM = Owned(
    like="g4dn.xlarge", machines=2, capex_usd=8000.0, years=4.0, utilisation=0.5, kw=0.4, usd_per_kwh=0.15, pue=1.4,
    resale_usd=0.0, other_usd_per_year=500.0,
)  # fmt: skip
STATED = "{like: g4dn.xlarge, capex_usd: 8000, years: 4, utilisation: 0.5, kw: 0.4, usd_per_kwh: 0.15, pue: 1.4}"
FILE = """
kind: compare
title: Own and rented
compare:
  - {{name: on-premise, owned: {owned}}}
  - self-managed-aws
workloads: [{{file: tune.yaml, jobs_per_month: 30}}]
organisation: {{usd_per_hour: 100}}
"""
TUNE = """
kind: train
name: tune
model: bert-base-uncased
data: {samples: 10000, seq_len: 128, epochs: 1}
constraints: {providers: [aws]}
"""


def test_an_hour_by_hand() -> None:
    """8,000 over 4 x 8,766 x 0.5 hours, 0.4 kW x 1.4 x 0.15, 500 a year over 4,383 hours."""
    parts = dict(ROOM.usd_per_hour(dedicated=False))
    assert parts["purchase over its years"] == pytest.approx(8000 / 17532)
    assert parts["power"] == pytest.approx(0.084)
    assert parts["room, support and the rest"] == pytest.approx(500 / 4383)
    alone = dict(ROOM.usd_per_hour(dedicated=True))
    assert alone["purchase over its years"] == pytest.approx(8000 / 35064)


def test_the_offer_is_as_stated(catalog: Catalog) -> None:
    """One machine for sale, at the sum of the parts, with the file as its source."""
    market = with_owned(catalog, ROOM, dedicated=False, file="own.yaml")
    (offer,) = market.offers
    expected = sum(usd for _, usd in ROOM.usd_per_hour(dedicated=False))
    assert offer.usd_per_instance_hour == pytest.approx(Decimal(repr(expected)), abs=Decimal("0.000001"))
    assert "own.yaml" in offer.source.text


def test_an_unknown_machine_is_reported(catalog: Catalog) -> None:
    """`like` names a machine of the catalog."""
    with pytest.raises(WorkloadError, match=r"owned.like") as caught:
        with_owned(catalog, ROOM.model_copy(update={"like": "p5.24xlarge"}), dedicated=False, file="own.yaml")
    assert caught.value.hint


def compare_in(folder: Path, owned: str) -> Comparison:
    (folder / "tune.yaml").write_text(TUNE)
    (folder / "own.tonnage.yaml").write_text(FILE.format(owned=owned))
    return api.compare(folder / "own.tonnage.yaml")


def test_owned_machines_are_planned_and_ranked(tmp_path: Path) -> None:
    """The total is jobs x hours x the stated hour; the ledger names the file; constraints on clouds do not bind."""
    found = compare_in(tmp_path, STATED)
    total = found.totals["on-premise"]
    option = total.rows[0].option
    assert option is not None
    assert option.provider == "on-premise"
    assert option.usd_per_instance_hour == pytest.approx(8000 / 17532 + 0.084, abs=1e-5)
    assert all("owned" in line.source for line in option.ledger.lines)
    assert total.run_usd_per_month is not None
    assert option.time_s is not None
    assert total.run_usd_per_month.value == pytest.approx(
        30 * option.time_s.value / 3600 * option.usd_per_instance_hour, rel=0.2
    )
    assert "on-premise" in {one.alternative for one in found.ranking}
    said = render_comparison(found, "md")
    assert "Machines of one's own" in said
    assert "stated" in said


def test_without_figures_the_keys_are_named(compared: Callable[..., Comparison], standard: str) -> None:
    """Not stated, not known: and which keys to give."""
    found = compared(standard.replace("- sagemaker", "- on-premise"))
    assert found.totals["on-premise"].usd_per_month is None
    row = found.totals["on-premise"].rows[0]
    assert isinstance(row.why_not, NotComputed)
    assert "owned" in row.why_not.why
    assert "capex_usd" in row.why_not.why


@pytest.mark.parametrize("wrong", ["utilisation: 0", "utilisation: 1.2", "years: 0", "pue: 0.5", "capex_usd: -1"])
def test_impossible_figures_are_refused(tmp_path: Path, wrong: str) -> None:
    """With file, line and key."""
    key = wrong.split(":")[0]
    parts = [part for part in STATED.strip("{}").split(", ") if not part.startswith(f"{key}:")]
    with pytest.raises(WorkloadError, match=r"own.tonnage.yaml:5"):
        compare_in(tmp_path, "{" + ", ".join([*parts, wrong]) + "}")
