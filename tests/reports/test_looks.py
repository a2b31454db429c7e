"""The three looks of a page: a terminal of any width, Markdown, HTML."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from tonnage.planning.plan import Plan
from tonnage.reports import Look, render_plan
from tonnage.reports.blocks import Column, Page, Table
from tonnage.reports.html import render_html
from tonnage.reports.markdown import render_markdown
from tonnage.reports.plan_page import plan_page
from tonnage.reports.terminal import render_terminal, wrap

WORDS = st.text(alphabet=st.characters(blacklist_categories=("Cc", "Cs", "Zl", "Zp")), max_size=60)


@pytest.mark.parametrize("width", range(40, 201, 8))
def test_no_line_is_wider_than_the_window(plan: Plan, width: int) -> None:
    """Whatever the window, no line runs over its edge."""
    text = render_plan(plan, "table", look=Look(width=width))
    assert max(cell_len(line) for line in text.splitlines()) <= width


def test_narrow_windows_lose_no_fact(plan: Plan) -> None:
    """Columns that do not fit stand under the row: region, layout and GPUs are there at 60 columns."""
    text = " ".join(render_plan(plan, "table", look=Look(width=60)).split())
    for fact in ("in us-east-1", "1 GPU, micro-batch 32", "3 x A30", "any region"):
        assert fact in text


@given(WORDS, st.integers(min_value=2, max_value=40))
def test_wrap_keeps_every_character(text: str, width: int) -> None:
    """Wrapping loses nothing but spaces, and no line is too wide."""
    lines = wrap(text, width)
    assert re.sub(r"[ \n]", "", "".join(lines)) == re.sub(r"[ \n]", "", text)
    assert all(cell_len(line) <= width for line in lines)


def test_colour_only_where_asked(plan: Plan) -> None:
    """No escape sequence without colour; the same words with it."""
    plain = render_plan(plan, "table", look=Look(width=100))
    colored = render_plan(plan, "table", look=Look(width=100, color=True))
    assert "\x1b" not in plain
    assert "\x1b[" in colored
    assert re.sub(r"\x1b\[[0-9;]*m", "", colored) == plain


def test_markup_in_names_is_text(plan: Plan) -> None:
    """What looks like markup in a name is printed as it stands, in each look."""
    odd = replace(plan, name="[bold]x[/bold] <script>alert(1)</script> | *y*")
    assert "[bold]x[/bold] <script>" in render_plan(odd, "table")
    html = render_plan(odd, "html")
    assert "<script>" not in html
    assert "&lt;script&gt;" in html
    assert "\\| \\*y\\*" in render_plan(odd, "md")


class Balance(HTMLParser):
    """Fails on a tag that is closed out of order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:  # noqa: ARG002
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.mark.parametrize("fragment", [False, True])
def test_html_is_whole_and_fetches_nothing(plan: Plan, fragment: bool) -> None:
    """Tags are balanced; no script, no address to fetch; a fragment has no <html>."""
    text = render_html(plan_page(plan, top=10), fragment=fragment)
    parser = Balance()
    parser.feed(text)
    assert parser.open == []
    assert "<script" not in text
    assert "http" not in text
    assert ("<html" in text) is not fragment


def test_markdown_tables_have_equal_rows(plan: Plan) -> None:
    """Every line of a Markdown table has as many cells as its header."""
    lines = render_plan(plan, "md").splitlines()
    rows = [pair for pair in pairwise(lines) if all(line.startswith("|") for line in pair)]
    assert len(rows) > 5
    for pair in rows:
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in pair}) == 1, pair


def test_a_row_that_does_not_match_its_columns_is_a_bug() -> None:
    """A table cannot be built with a cell too many."""
    with pytest.raises(ValueError):
        Table(columns=(Column(title="a"),), rows=(("1", "2"),))


def test_empty_table_renders() -> None:
    """A table without rows is its header."""
    page = Page(title="t", blocks=(Table(columns=(Column(title="a"),), rows=()),))
    assert render_terminal(page, width=80, color=False) == "t\n  a\n"
    assert render_markdown(page).endswith("| a |\n| --- |\n")
