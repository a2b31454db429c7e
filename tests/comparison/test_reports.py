"""A comparison's report: one golden file a form, and what holds of every page.

`TONNAGE_WRITE_GOLDEN=1 pytest` writes the golden files anew for review.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
from collections.abc import Callable
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pytest

from tonnage.comparison.comparing import Comparison
from tonnage.reports.comparison.content import build_sections
from tonnage.reports.comparison.moving import migration_calendar, migration_checklist, migration_csv
from tonnage.reports.comparison.report import render_comparison
from tonnage.reports.rendering import FORMATS, Look

GOLDEN = Path(__file__).parent / "golden"
VOID = {"meta", "input", "link", "br", "path", "line"}


def check(text: str, name: str) -> None:
    path = GOLDEN / name
    if os.environ.get("TONNAGE_WRITE_GOLDEN"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="")
    assert text == path.read_bytes().decode("utf-8")


@pytest.mark.parametrize("form", FORMATS)
def test_report(compared: Callable[..., Comparison], form: str) -> None:
    """A comparison reads as it did."""
    check(render_comparison(compared(), form, Look(width=120)), f"comparison.{form}")


def test_exports(compared: Callable[..., Comparison]) -> None:
    """A migration's files read as they did."""
    found = compared()
    assert found.migration is not None
    check(migration_csv(found.migration), "migration.csv")
    check(migration_calendar(found.migration, found.as_of), "migration.ics")
    check(migration_checklist(found.migration), "migration.md")


@pytest.mark.parametrize("form", FORMATS)
def test_the_same_input_gives_the_same_bytes(compared: Callable[..., Comparison], form: str) -> None:
    """Twice computed, once the same."""
    assert render_comparison(compared(), form) == render_comparison(compared(), form)


class Page(HTMLParser):
    """Checks nesting and collects what the tests ask for."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.tags.append((tag, found))
        if found.get("id"):
            self.ids.append(str(found["id"]))
        if tag == "a":
            self.links.append(str(found.get("href")))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in VOID:
            return
        assert self.open, tag
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


@pytest.fixture
def html(compared: Callable[..., Comparison]) -> str:
    return render_comparison(compared(), "html")


def test_the_page_stands_alone(html: str) -> None:
    """No script, nothing fetched, below 2 MB; light, dark and print have their styles."""
    assert len(html.encode()) < 2_000_000
    assert not re.search(r"<script|<link|<img|<iframe|@import|url\(|\son\w+=", html)
    for wanted in ("prefers-color-scheme: dark", "@media print", "color-scheme: light dark"):
        assert wanted in html


def test_the_page_is_well_formed(html: str) -> None:
    """Tags close in order, ids are unique, every anchor has its target, headings do not skip a level."""
    page = Page()
    page.feed(html)
    assert page.open == []
    assert len(page.ids) == len(set(page.ids))
    assert all(link[1:] in page.ids for link in page.links if link.startswith("#"))
    levels = [int(tag[1]) for tag, _ in page.tags if re.fullmatch(r"h\d", tag)]
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))


def test_the_page_is_readable_without_eyes_or_mouse(html: str) -> None:
    """Language, landmarks, a skip link; headers of rows and columns; words for drawings, labels for boxes."""
    page = Page()
    page.feed(html)
    tags = [tag for tag, _ in page.tags]
    assert ("html", {"lang": "en"}) in page.tags
    assert {"header", "nav", "main"} <= set(tags)
    assert page.links[0] == "#summary"
    assert all(found.get("scope") in ("col", "row") for tag, found in page.tags if tag == "th")
    drawings = [found for tag, found in page.tags if tag == "svg"]
    assert drawings
    for found in drawings:
        assert found["role"] == "img"
        assert all(key in page.ids for key in str(found["aria-labelledby"]).split())
    assert tags.count("figcaption") == tags.count("figure") == len(drawings)
    assert tags.count("details") == tags.count("summary")
    assert tags.count("input") == tags.count("label")
    assert all(found.get("tabindex") == "0" for _, found in page.tags if found.get("class") == "scroll")


def test_users_text_is_escaped(html: str) -> None:
    """Titles with marks appear as text, in tables and in drawings."""
    assert "A &amp; B &lt;compared&gt;" in html
    assert "<compared>" not in html
    assert "<b>" not in html
    page = Page()
    page.feed(html)
    assert any("Databricks <b>" in text for text in page.text)


def test_every_section_is_there(compared: Callable[..., Comparison]) -> None:
    """What a hand-written comparison has, in every whole report."""
    keys = [section.key for section in build_sections(compared())]
    assert keys == ["summary", "scope", "matrix", "architecture", "when", "costs", "levers", "volume", "performance",
                    "footprint", "decision", "scores", "trade-offs", "recommendation", "hybrid", "moves",
                    "migration", "practice", "risks", "appendix"]  # fmt: skip
    text = render_comparison(compared(), "md")
    for title in ("## Matrix", "### Break-even", "## What the rules say", "## Recommendation by horizon", "- [ ] "):
        assert title in text


def test_json_keeps_intervals_and_sources(compared: Callable[..., Comparison]) -> None:
    """Every cost has its interval and basis, every criterion its evidence."""
    document = json.loads(render_comparison(compared(), "json"))
    assert document["schema"] == "tonnage/compare@1"
    alternative = document["things"][0]
    assert set(alternative["usd_per_month"]) == {"value", "low", "high", "basis"}
    assert all(cell["evidence"] for cell in alternative["aspects"].values())
    assert alternative["works"][0]["option"]["ledger"][0]["read_on"] == "2026-07-20"


def test_csv_has_a_row_for_each_thing_and_aspect(compared: Callable[..., Comparison]) -> None:
    """The matrix as a table; dates or «undated» beside each source."""
    found = compared()
    rows = list(csv.DictReader(io.StringIO(render_comparison(found, "csv"))))
    assert len(rows) == len(found.request.alternatives) * len(found.criteria)
    judged = [row for row in rows if row["basis"] == "judged"]
    assert judged
    assert all(row["sources"] and row["read_on"] for row in judged)


def test_what_is_not_known_says_so(compared: Callable[..., Comparison], standard: str) -> None:
    """Without a rate people are «not known», never zero dollars."""
    text = render_comparison(compared(standard.replace(", usd_per_hour: 100", "")), "md")
    assert "not known" in text
    assert "| \\$0" not in text


def test_one_is_singular(compared: Callable[..., Comparison], standard: str) -> None:
    """One person, one week, one job, one hour a day."""
    text = standard.replace("employees: 120, team_size: 4", "employees: 1, team_size: 1").replace(
        "people: 2", "people: 1"
    )
    text = text.replace("jobs_per_month: 30", "jobs_per_month: 1").replace("people: 1}", "people: 1, hours_per_day: 1}")
    said = render_comparison(compared(text + "horizons_weeks: {short: 1, medium: 2, long: 9}\n"), "md")
    assert not re.search(r"\b1 (people|weeks|jobs|hours)\b", said)
    assert "short (1 week)" in said
    assert "1 person" in said
