"""The decision of a comparison by itself: text, Mermaid, page, data."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable

from tonnage.comparison.comparing import Comparison
from tonnage.reports.comparison.report import render_decision


def test_text(compared: Callable[..., Comparison]) -> None:
    """The tree with the way taken, the trace, and what would change it."""
    said = render_decision(compared(), "table")
    assert "|- NO *" in said
    assert "<== where these rules lead" in said
    assert "if custom_fine_tuning is yes (now no): Choose Databricks" in said
    assert "some.tonnage.yaml" in said


def test_markdown_has_the_drawing_once(compared: Callable[..., Comparison]) -> None:
    """As Mermaid, which reads as text too."""
    said = render_decision(compared(), "md")
    assert "```mermaid\nflowchart TD" in said
    assert "```text\n" not in said  # once is enough


def test_the_page_stands_alone(compared: Callable[..., Comparison]) -> None:
    """Nothing fetched; every anchor has its target; user text is escaped."""
    said = render_decision(compared(), "html")
    assert not re.search(r"<script|<link|<img|@import|url\(", said)
    for anchor in re.findall(r'href="#([^"]+)"', said):
        assert f'id="{anchor}"' in said
    assert "&lt;compared&gt;" in said
    assert "<compared>" not in said


def test_data(compared: Callable[..., Comparison]) -> None:
    """JSON has the trace, the leaf, the changes and both drawings; CSV the trace."""
    found = json.loads(render_decision(compared(), "json"))
    assert found["schema"] == "tonnage/decision@1"
    assert found["leaf"] == "bedrock"
    assert [step["answer"] for step in found["steps"]] == ["no", "no", "no"]
    assert found["would_change"]
    assert found["mermaid"].startswith("flowchart TD")
    rows = list(csv.DictReader(io.StringIO(render_decision(compared(), "csv"))))
    assert [row["answer"] for row in rows] == ["no", "no", "no"]
