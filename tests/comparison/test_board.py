"""The version for the board: two pages, the one answer of the whole report, its cost, what would change it."""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import pytest
from pypdf import PdfReader

from tonnage.comparison.comparing import Comparison
from tonnage.comparison.verdict import OutKind
from tonnage.reports.comparison.board import MOST_REASONS, SHORT_OUT, board_sections, horizon_chart
from tonnage.reports.comparison.choice import summary_section
from tonnage.reports.comparison.criteria_page import render_criteria
from tonnage.reports.comparison.drawings import Courses
from tonnage.reports.comparison.html import score_class, sections_html
from tonnage.reports.comparison.pdf import comparison_pdf
from tonnage.reports.comparison.verdict_words import headline, reason_words

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted(
    (path for path in (ROOT / "examples" / "compare").glob("*.tonnage.yaml") if "kind: compare" in path.read_text()),
    key=lambda path: (path.name.startswith("h2o"), path.name),  # the quickest last
)


@pytest.mark.parametrize(
    "file",
    [EXAMPLES[-1], *(pytest.param(one, marks=pytest.mark.slow) for one in EXAMPLES[:-1])],
    ids=lambda path: path.name,
)
def test_it_has_two_pages_at_most(file: Path, tmp_path: Path) -> None:
    """Of every example, by the command of its user; and the picture is in the page too."""
    reports = [str(tmp_path / "board.pdf"), str(tmp_path / "2026-board.html")]
    arguments = ["compare", str(file), "--as-of", "2026-11-20", "--report", reports[0], "--report", reports[1]]
    subprocess.run([sys.executable, "-m", "tonnage", *arguments], check=True, capture_output=True, cwd=ROOT)
    reader = PdfReader(reports[0])
    assert len(reader.pages) <= 2
    page = Path(reports[1]).read_text(encoding="utf-8")
    assert 'aria-label="Contents"' not in page
    assert page.count("<svg") == 1
    assert str(ROOT) not in page


def test_it_says_what_the_whole_report_says(compared: Callable[..., Comparison]) -> None:
    """The same answer in the same words, at most three reasons."""
    comparison = compared()
    page = sections_html(comparison, board_sections(comparison), contents=False)
    text = "\n".join(one.extract_text() for one in PdfReader(io.BytesIO(_pdf(comparison))).pages)
    assert headline(comparison)[:40] in " ".join(text.split())
    answer = board_sections(comparison)[0]
    assert headline(comparison) in [getattr(part, "text", "") for part in summary_section(comparison).parts]
    (reasons,) = [part.items for part in answer.parts if hasattr(part, "items")]
    assert reasons == tuple(reason_words(comparison, one) for one in comparison.answer.reasons[:MOST_REASONS])
    for title in ("The answer", "What it costs", "What would change it", "What it takes to move", "Date and sources"):
        assert f">{title}</h2>" in page


def test_cost_against_time_ends_at_the_cost_of_the_horizon(compared: Callable[..., Comparison]) -> None:
    """Each line starts at what moving costs and ends where the table says."""
    comparison = compared()
    chart = horizon_chart(comparison)
    assert chart is not None
    assert isinstance(chart.drawing, Courses)
    ends = {one.name: one.points[-1][1] for one in chart.drawing.courses}
    for one in comparison.answer.verdict.contenders:
        title = comparison.title_of[one.alternative]
        if title in ends:
            assert ends[title] == pytest.approx(one.usd.value)
            starts = next(course.points[0][1] for course in chart.drawing.courses if course.name == title)
            entry = comparison.entries[one.alternative].usd
            expected = 0.0 if entry is None or one.alternative == comparison.answer.inputs.origin else entry.value
            assert starts == pytest.approx(expected)


def _pdf(comparison: Comparison) -> bytes:
    return comparison_pdf(comparison, board_sections(comparison))


def test_the_page_of_aspects_is_fresh() -> None:
    """docs/criteria.md is what its module writes: reports refer to it."""
    assert (ROOT / "docs" / "criteria.md").read_text(encoding="utf-8") == render_criteria()


def test_cells_are_coloured_by_score() -> None:
    """Judged and computed scores, with sources behind them or without; other cells have no class."""
    cells = ["Jobs only — 4/5 [3, 19?]", "$12.00 — computed, 4.6/5", "None — 5/5", "4 of 5 lines", "not known"]
    assert [score_class(cell) for cell in cells] == [" s4", " s5", " s5", "", ""]


def test_every_must_have_has_words() -> None:
    """Each way to fall out has its short words on the page."""
    assert set(SHORT_OUT) == set(get_args(OutKind))
