"""The findings of a document in each form: golden text, escaped markup, machine-readable twins."""

from __future__ import annotations

import csv
import io
import json
import os
from pathlib import Path

import pytest

from tonnage.catalog import load_catalog
from tonnage.claims import VERDICTS, CheckedDocument, check_document
from tonnage.reports.claims import claims_report
from tonnage.reports.rendering import FORMATS, Format, Look, render_report

GOLDEN = Path(__file__).parent / "golden"
TEXT = """# AWS
| Instance | GPUs | $/h |
|---|---|---|
| p5.48xlarge | 8 | $98.32 |
| p5.24xlarge | 4 | |
| g4dn.xlarge | 1 | $0.55 |
| p9.48xlarge | 8 | |

2 × 3 = 7
"""


@pytest.fixture(scope="module")
def checked() -> CheckedDocument:
    return check_document(TEXT, load_catalog(), name="notes.md")


@pytest.mark.parametrize("form", FORMATS)
def test_golden(checked: CheckedDocument, form: Format) -> None:
    """The report reads as it did. `TONNAGE_WRITE_GOLDEN=1 pytest` writes it anew for review."""
    path = GOLDEN / f"claims.{form}"
    text = render_report(claims_report(checked), form, Look(width=120))
    if os.environ.get("TONNAGE_WRITE_GOLDEN"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


def test_json_and_csv_hold_every_claim(checked: CheckedDocument) -> None:
    """Right claims too, with the verdicts counted; the CSV has the same rows."""
    document = json.loads(render_report(claims_report(checked), "json"))
    assert document["schema"] == "tonnage/claims@1"
    assert list(document["counts"]) == list(VERDICTS)
    assert sum(document["counts"].values()) == len(document["claims"]) == len(checked.findings)
    rows = list(csv.DictReader(io.StringIO(render_report(claims_report(checked), "csv"))))
    assert [row["verdict"] for row in rows] == [claim["verdict"] for claim in document["claims"]]


def test_right_claims_are_shown_when_asked_for(checked: CheckedDocument) -> None:
    """A page counts right claims; `every_claim` lists them."""
    assert "Right" not in render_report(claims_report(checked), "table")
    assert "8x H100-SXM" in render_report(claims_report(checked, every_claim=True), "table")


def test_markup_of_the_document_is_text() -> None:
    """Tags and bars in a document's names do not become tags of the report, in HTML or in Markdown."""
    text = (
        "| Instance | $/h |\n|---|---|\n| <b>p5.24xlarge</b> | `$49<script>x</script>` |\n| p5.48xlarge | `$1 <i>` |\n"
    )
    checked = check_document(text, load_catalog(), name="<script>name</script>.md")
    assert "$49<script>x</script>" in {one.claimed for one in checked.findings}
    assert "p5.24xlarge" in {one.subject for one in checked.findings}
    for form in ("html", "md"):
        shown = render_report(claims_report(checked, every_claim=True), form)
        assert "<script>" not in shown
        assert "<i>" not in shown


def test_nothing_found_is_said() -> None:
    """A document without claims says so rather than showing an empty page."""
    shown = render_report(claims_report(check_document("# Words", load_catalog(), name="a.md")), "table")
    assert "nothing in it was understood as a claim" in shown
