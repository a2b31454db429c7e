"""A page of blocks as PDF, set by Typst in process and offline: what `tonnage bench FILE --pdf` writes."""

from __future__ import annotations

import json
from datetime import datetime
from importlib import resources
from importlib.util import find_spec
from typing import Any, Final

from tonnage.errors import MissingExtra
from tonnage.reports.blocks import Block, Bullets, Code, Heading, LineChart, Page, Pairs, Paragraph, Table
from tonnage.reports.line_chart import render_svg

FONT: Final = "Libertinus Serif"  # which Typst carries


def page_pdf(page: Page, *, made: datetime) -> bytes:
    """The page; the same bytes for the same page and moment. MissingExtra without the library.

    The template reads the page as data, so that no text is read as markup. The machine's own fonts are not asked.
    """
    if find_spec("typst") is None:
        raise MissingExtra("a PDF report", "report")
    import typst

    data = {"title": page.title, "blocks": [part for block in page.blocks if (part := _part(block)) is not None]}
    template = resources.files("tonnage.reports").joinpath("templates", "page.typ").read_bytes()
    return typst.compile(
        template, format="pdf", sys_inputs={"page": json.dumps(data, ensure_ascii=False)},
        timestamp=made.replace(microsecond=0), ignore_system_fonts=True,
    )  # fmt: skip


def _part(block: Block) -> dict[str, Any] | None:
    """The block as the template reads it; None of a chart without a point."""
    match block:
        case Heading(text=text):
            return {"kind": "heading", "text": text}
        case Paragraph(text=text, tone=tone):
            return {"kind": "paragraph", "text": text, "tone": tone}
        case Pairs(rows=rows):
            return {"kind": "pairs", "rows": rows}
        case Bullets(items=items):
            return {"kind": "bullets", "items": items}
        case Table(columns=columns, rows=rows):
            titles = [{"title": one.title, "align": one.align} for one in columns]
            return {"kind": "table", "columns": titles, "rows": rows}
        case LineChart(title=title):
            drawn = render_svg(block)
            return {"kind": "chart", "title": title, "svg": _alone(drawn)} if drawn else None
        case Code(lines=lines):
            return {"kind": "code", "lines": lines}


def _alone(svg: str) -> str:
    """An SVG that is a document of its own, in the font of the text around it."""
    return svg.replace("<svg ", f'<svg xmlns="http://www.w3.org/2000/svg" font-family="{FONT}" color="#1c2024" ', 1)
