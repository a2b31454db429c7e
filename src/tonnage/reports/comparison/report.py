"""A comparison in the form asked for."""

from __future__ import annotations

from tonnage.comparison.comparing import Comparison
from tonnage.reports.blocks import Block, Heading, Page, Paragraph
from tonnage.reports.comparison.choice import advice_section, decision_section, score_section, summary_section
from tonnage.reports.comparison.costs import cost_section, performance_section, volume_section
from tonnage.reports.comparison.document import comparison_document
from tonnage.reports.comparison.html import comparison_html
from tonnage.reports.comparison.markdown import comparison_markdown
from tonnage.reports.comparison.matrix_rows import COLUMNS, comparison_rows
from tonnage.reports.comparison.sections import Chart, Checks, CodePart, Section, Subheading, Tree
from tonnage.reports.plain import dump_csv, dump_json
from tonnage.reports.rendering import Format, Look, Report
from tonnage.reports.terminal import render_terminal


def render_comparison(comparison: Comparison, form: Format, look: Look | None = None) -> str:
    """HTML and Markdown are the whole report, JSON all figures, CSV the matrix, a table the answer and its reasons."""
    if form == "json":
        return dump_json(comparison_document(comparison))
    if form == "csv":
        return dump_csv(COLUMNS, comparison_rows(comparison))
    if form == "md":
        return comparison_markdown(comparison)
    if form == "html":
        return comparison_html(comparison)
    look = look or Look()
    return render_terminal(_short_page(comparison), width=look.width, color=look.color)


def comparison_report(comparison: Comparison) -> Report:
    """The answer and its reasons as a page, with the document and the rows of the whole."""
    return Report(
        page=lambda: Page(title=comparison.request.title, blocks=_short_blocks(comparison)),
        document=lambda: comparison_document(comparison), columns=COLUMNS, rows=lambda: comparison_rows(comparison),
    )  # fmt: skip


def _short_page(comparison: Comparison) -> Page:
    note = Paragraph(text="The whole report, with matrix, sources and migration: --report FILE.html", tone="faint")
    return Page(title=comparison.request.title, blocks=(*_short_blocks(comparison), note))


def _short_blocks(comparison: Comparison) -> tuple[Block, ...]:
    sections = (
        summary_section(comparison),
        cost_section(comparison),
        volume_section(comparison),
        performance_section(comparison),
        decision_section(comparison),
        score_section(comparison),
        advice_section(comparison),
    )
    return tuple(block for section in sections for block in terminal_blocks(section))


def terminal_blocks(section: Section) -> list[Block]:
    """A section without what a terminal cannot show."""
    out: list[Block] = [Heading(text=section.title)]
    for part in section.parts:
        if isinstance(part, Subheading):
            out.append(Heading(text=part.text))
        elif isinstance(part, Tree):
            out += [Paragraph(text=line) for line in part.text.rstrip("\n").split("\n")]
        elif not isinstance(part, (Chart, Checks, CodePart)):
            out.append(part)
    return out
