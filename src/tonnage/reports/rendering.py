"""A report in the form asked for. A report is a page for people, a document for JSON and rows for CSV."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal, get_args

from tonnage.reports.blocks import Page
from tonnage.reports.plain import dump_csv, dump_json
from tonnage.values import dataclass

Format = Literal["table", "json", "csv", "md", "html"]
FORMATS: Final[tuple[Format, ...]] = get_args(Format)
DEFAULT_WIDTH: Final = 120


@dataclass(frozen=True, slots=True)
class Look:
    """What a terminal can show: cells a line, and whether in colour. Other forms ignore it."""

    width: int = DEFAULT_WIDTH
    color: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One result in its three contents, each built when it is asked for."""

    page: Callable[[], Page]
    document: Callable[[], Mapping[str, Any]]
    columns: Sequence[str]
    rows: Callable[[], Sequence[Sequence[Any]]]


def render_report(report: Report, form: Format, look: Look | None = None) -> str:
    """The text of a report, with a newline at its end."""
    if form == "json":
        return dump_json(report.document())
    if form == "csv":
        return dump_csv(report.columns, report.rows())
    if form == "md":
        from tonnage.reports.markdown import render_markdown

        return render_markdown(report.page())
    if form == "html":
        from tonnage.reports.html import render_html

        return render_html(report.page())
    from tonnage.reports.terminal import render_terminal

    look = look or Look()
    return render_terminal(report.page(), width=look.width, color=look.color)
