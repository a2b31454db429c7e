"""The report as PDF: its text, that it repeats to the byte, that no text is markup, that tables fit their pages."""

from __future__ import annotations

import hashlib
import io
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from pypdf import PdfReader

from tonnage.comparison.comparing import Comparison
from tonnage.errors import MissingExtra
from tonnage.reports.blocks import Column, Table
from tonnage.reports.comparison.content import build_sections
from tonnage.reports.comparison.pdf import ACROSS, TOKEN, breakable, comparison_pdf, split_table
from tonnage.reports.comparison.report import render_comparison

GOLDEN = Path(__file__).parent / "golden" / "comparison.pdf.txt"
ODD = "#panic() $x$ *b* _i_ `c` @ref <tag> [d] \\\\u{41} // e ~ = f - g"


def text_of(found: bytes) -> str:
    """The text of all pages, with where each starts."""
    reader = PdfReader(io.BytesIO(found))
    pages = [f"--- page {number}\n{page.extract_text()}\n" for number, page in enumerate(reader.pages, start=1)]
    return "".join(pages)


@pytest.fixture(scope="session")
def pdf(compared: Callable[..., Comparison]) -> bytes:
    return comparison_pdf(compared())


def test_the_text_reads_as_it_did(pdf: bytes) -> None:
    """Text and pages; `TONNAGE_WRITE_GOLDEN=1 pytest` writes them anew for review."""
    text = text_of(pdf)
    if os.environ.get("TONNAGE_WRITE_GOLDEN"):
        GOLDEN.write_text(text, encoding="utf-8", newline="")
    assert text == GOLDEN.read_bytes().decode()


def test_the_same_input_gives_the_same_bytes(compared: Callable[..., Comparison], pdf: bytes) -> None:
    """Set twice; the day of making is the report's own."""
    assert hashlib.sha256(comparison_pdf(compared())).digest() == hashlib.sha256(pdf).digest()
    assert PdfReader(io.BytesIO(pdf)).metadata["/CreationDate"] == "D:20261120000000Z"


def test_it_has_title_contents_and_page_numbers(pdf: bytes, compared: Callable[..., Comparison]) -> None:
    """Bookmarks to every section, a header with title and day, «n of m» below; tagged for screen readers."""
    reader = PdfReader(io.BytesIO(pdf))
    assert reader.metadata.title == "A & B <compared>"
    titles = [section.title for section in build_sections(compared())]
    assert [one["/Title"] for one in reader.outline if not isinstance(one, list)] == titles
    assert reader.trailer["/Root"]["/MarkInfo"]["/Marked"]
    for number, page in enumerate(reader.pages, start=1):
        text = page.extract_text()
        assert text.startswith("A & B <compared> 2026-11-20")
        assert f"{number} of {len(reader.pages)}" in text


def test_users_text_is_never_markup(compared: Callable[..., Comparison], standard: str) -> None:
    """Marks that mean something to the typesetter are printed as they are."""
    text = standard.replace("title: A & B <compared>", f'title: "{ODD}"').replace("Databricks <b>", ODD)
    found = PdfReader(io.BytesIO(comparison_pdf(compared(text))))
    said = ODD.replace("\\\\", "\\")
    assert found.metadata.title == said
    flat = " ".join(" ".join(page.extract_text().split()) for page in found.pages)
    assert flat.count(said) > 5


def test_letters_that_the_fonts_lack_do_not_stop_it(compared: Callable[..., Comparison], standard: str) -> None:
    """A title in another script is set with the machine's fonts, or with boxes where it has none."""
    found = comparison_pdf(compared(standard.replace("title: A & B <compared>", "title: 比較")))
    assert PdfReader(io.BytesIO(found)).metadata.title == "比較"


@pytest.mark.parametrize("count", [2, 5, 9, 30])
def test_wide_tables_are_split_by_columns(count: int) -> None:
    """Every column is printed once, in order; the first one stands in each group; each group has room."""
    titles = [f"column {number} with a long title" for number in range(count)]
    table = Table(columns=tuple(Column(title=title) for title in titles), rows=(tuple(titles), tuple(titles)))
    groups = list(split_table(table, ACROSS))
    printed = [[column.title for column in group.columns] for group in groups]
    assert all(group[0] == titles[0] for group in printed)
    assert [title for group in printed for title in group[1:]] == titles[1:]
    assert all(len(group) * 18 <= ACROSS for group in printed)
    assert all(row == tuple(names) for group, names in zip(groups, printed, strict=True) for row in group.rows)


def test_long_words_have_places_to_break() -> None:
    """No piece is longer than TOKEN and its marks, and no letter is lost."""
    word = "https://example.org/" + "a" * 70 + "/b-c_d?e=f"
    pieces = breakable(word).split("\u200b")
    assert "".join(pieces) == word
    assert max(len(piece) for piece in pieces) <= TOKEN + 3


@pytest.mark.parametrize("library", ["altair", "vl_convert", "typst"])
def test_without_the_extra(compared: Callable[..., Comparison], monkeypatch: pytest.MonkeyPatch, library: str) -> None:
    """HTML and PDF name the extra, exit 2; every other form needs none of its libraries."""
    comparison = compared()
    monkeypatch.setitem(sys.modules, library, None)
    for form in ("table", "json", "csv", "md"):
        assert render_comparison(comparison, form)
    with pytest.raises(MissingExtra) as caught:
        comparison_pdf(comparison)
    assert caught.value.hint == "pip install 'tonnage[report]'"
    assert caught.value.exit_code == 2
    if library != "typst":
        with pytest.raises(MissingExtra):
            render_comparison(comparison, "html")
