"""Why a comparison's rules came out so: the tree with the way taken, and what would change the leaf."""

from __future__ import annotations

from tonnage.comparison.comparing import Comparison
from tonnage.reports.blocks import Heading, Page
from tonnage.reports.comparison.choice import decision_section, summary_section
from tonnage.reports.comparison.decision_views import decision_tree
from tonnage.reports.comparison.document import decision_document
from tonnage.reports.comparison.html import sections_html
from tonnage.reports.comparison.markdown import sections_markdown
from tonnage.reports.comparison.report import terminal_blocks
from tonnage.reports.plain import dump_csv, dump_json
from tonnage.reports.rendering import Format, Look
from tonnage.reports.terminal import render_terminal

SCHEMA = "tonnage/decision@1"
COLUMNS = ("question", "ask", "answer", "found", "from")


def render_decision(comparison: Comparison, form: Format, look: Look | None = None) -> str:
    """The tree as text (table), Mermaid and text (md), a page (html), all of it as data (json), the trace (csv)."""
    if form == "json":
        tree = decision_tree(comparison.decision)
        views = {"text": tree.text, "mermaid": tree.mermaid}
        return dump_json({"schema": SCHEMA, "chosen": comparison.answer.choice} | decision_document(comparison) | views)
    if form == "csv":
        steps = comparison.decision.steps
        rows = [(one.question.name, one.question.ask, one.answer, one.found, one.origin) for one in steps]
        return dump_csv(COLUMNS, rows)
    sections = (summary_section(comparison), decision_section(comparison))
    if form == "md":
        return sections_markdown(comparison, sections)
    if form == "html":
        return sections_html(comparison, sections)
    look = look or Look()
    blocks = tuple(terminal_blocks(sections[1]))
    page = Page(title=comparison.request.title, blocks=(Heading(text="Why"), *blocks[1:]))
    return render_terminal(page, width=look.width, color=look.color)
