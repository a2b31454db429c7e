"""A comparison in the form asked for."""

from __future__ import annotations

from typing import Any

from tonnage.comparison.comparing import Comparison
from tonnage.comparison.criteria import Criterion
from tonnage.comparison.request import Alternative
from tonnage.comparison.scoring import Score
from tonnage.reports.blocks import Block, Heading, Page, Paragraph
from tonnage.reports.comparison.choice import advice_section, decision_section, score_section, summary_section
from tonnage.reports.comparison.costs import cost_section, performance_section, volume_section
from tonnage.reports.comparison.decision_views import decision_tree
from tonnage.reports.comparison.document import comparison_document, decision_document
from tonnage.reports.comparison.html import comparison_html, sections_html
from tonnage.reports.comparison.markdown import comparison_markdown, sections_markdown
from tonnage.reports.comparison.sections import Chart, Checks, CodePart, Section, Subheading, Tree
from tonnage.reports.plain import dump_csv, dump_json, plain_number
from tonnage.reports.rendering import Format, Look, Report
from tonnage.reports.terminal import render_terminal
from tonnage.sizing.estimates import Figure

SCHEMA = "tonnage/decision@1"
DECISION_COLUMNS = ("question", "ask", "answer", "found", "from")


def render_decision(comparison: Comparison, form: Format, look: Look | None = None) -> str:
    """The tree as text (table), Mermaid and text (md), a page (html), all of it as data (json), the trace (csv)."""
    if form == "json":
        tree = decision_tree(comparison.decision)
        views = {"text": tree.text, "mermaid": tree.mermaid}
        return dump_json({"schema": SCHEMA, "chosen": comparison.answer.choice} | decision_document(comparison) | views)
    if form == "csv":
        steps = comparison.decision.steps
        rows = [(one.question.name, one.question.ask, one.answer, one.found, one.origin) for one in steps]
        return dump_csv(DECISION_COLUMNS, rows)
    sections = (summary_section(comparison), decision_section(comparison))
    if form == "md":
        return sections_markdown(comparison, sections)
    if form == "html":
        return sections_html(comparison, sections)
    look = look or Look()
    blocks = tuple(terminal_blocks(sections[1]))
    page = Page(title=comparison.request.title, blocks=(Heading(text="Why"), *blocks[1:]))
    return render_terminal(page, width=look.width, color=look.color)


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


COLUMNS = (
    "thing",
    "aspect",
    "group",
    "value",
    "unit",
    "low",
    "high",
    "basis",
    "score",
    "score_low",
    "score_high",
    "because",
    "sources",
    "read_on",
)
UNITS = {
    "usd_per_month": "usd_per_month",
    "setup_usd": "usd",
    "time_at_budget_s": "s",
    "time_on_equal_devices_s": "s",
    "latency_p95_s": "s",
    "throughput_per_s": "per_s",
    "energy_kwh_per_month": "kwh_per_month",
    "carbon_kg_per_month": "kg_per_month",
}


def comparison_rows(comparison: Comparison) -> list[tuple[Any, ...]]:
    """One row for each alternative and criterion; what is not known has empty cells."""
    return [
        (alternative.name, criterion.key, criterion.group, *_cells(comparison, alternative, criterion))
        for alternative in comparison.request.alternatives
        for criterion in comparison.criteria
    ]


def _cells(comparison: Comparison, alternative: Alternative, criterion: Criterion) -> tuple[Any, ...]:
    """From the value on: a figure of the planner, a judgement with its evidence, or nothing."""
    scores = _ends(comparison.scores[alternative.name].get(criterion.key))
    if criterion.measure is not None:
        figure = getattr(comparison.totals[alternative.name], criterion.measure)
        value, *bounds = _ends(figure)
        basis = None if figure is None else figure.basis
        return (value, UNITS[criterion.measure], *bounds, basis, *scores, None, "planner", None)
    cell = alternative.profile.cells.get(criterion.key)
    if cell is None:
        return (None,) * 11
    sources = "; ".join(one.url or one.title for one in cell.evidence)
    dates = "; ".join(one.read_on.isoformat() if one.read_on else "not verified" for one in cell.evidence)
    return (cell.value, None, None, None, "judged", *scores, cell.because or None, sources, dates)


def _ends(figure: Figure | Score | None) -> tuple[Any, Any, Any]:
    if figure is None:
        return (None, None, None)
    return (plain_number(figure.value), plain_number(figure.low), plain_number(figure.high))
