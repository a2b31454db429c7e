"""A comparison as PDF: the same sections as the page, set by Typst, in process and offline.

The template reads the report as data (JSON), so no text of a user's is ever read as markup. Decided here is what a page
of fixed size asks for: which sections lie across, how tables are split and how wide their columns are.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from datetime import datetime
from importlib import resources
from itertools import groupby
from typing import Any, Final

from tonnage.comparison.comparing import Comparison
from tonnage.reports.blocks import Bullets, Heading, Pairs, Paragraph, Table
from tonnage.reports.comparison.content import build_sections, subtitle
from tonnage.reports.comparison.plots import FONTS, INK, PDF_LIBRARIES, demand_libraries, draw_svg
from tonnage.reports.comparison.sections import Chart, Checks, CodePart, Node, Part, Section, Subheading, Tree

UPRIGHT, ACROSS = 124, 188  # letters of a table that have room in a line of a page
TURNED: Final = 3  # a table of so many parts is read on pages that lie across
COLUMN: Final = 26  # letters a column of running text should have
TOKEN: Final = 18  # longer words may be broken anywhere
FONT: Final = "Libertinus Serif"
BLACK: Final = "#1c2024"
CARRIED: Final = re.compile("[\u0000-\u052f\u1e00-\u22ff\u25a0-\u25ff\ufb00-\ufb06]*")


def comparison_pdf(comparison: Comparison, sections: tuple[Section, ...] | None = None) -> bytes:
    """The whole report, or some sections of it, all upright and without a table of contents.

    The same bytes for the same input; MissingExtra without the libraries.

    Typst carries the fonts. Only where a text has letters that these lack are the machine's own fonts asked as well.
    """
    demand_libraries(PDF_LIBRARIES, "a PDF report")
    import typst

    data = json.dumps(_report(comparison, sections), ensure_ascii=False, sort_keys=True)
    template = resources.files("tonnage.reports").joinpath("templates", "comparison.typ").read_bytes()
    return typst.compile(
        template,
        format="pdf",
        sys_inputs={"report": data},
        timestamp=_whole_seconds(comparison.as_of),
        ignore_system_fonts=CARRIED.fullmatch(data) is not None,
    )


def _whole_seconds(moment: datetime) -> datetime:
    return moment.replace(microsecond=0)


def _report(comparison: Comparison, chosen: tuple[Section, ...] | None) -> dict[str, Any]:
    whole = chosen is None
    sections = build_sections(comparison) if chosen is None else chosen
    first, *others = [_section(section, turned=whole) for section in sections]
    first["across"] = False  # it is placed under the title
    return {
        "title": comparison.request.title,
        "subtitle": subtitle(comparison),
        "as_of": comparison.as_of.date().isoformat(),
        "contents": whole,
        "first": first,
        "runs": [
            {"across": across, "sections": list(run)} for across, run in groupby(others, key=lambda one: one["across"])
        ],
    }


def _section(section: Section, *, turned: bool) -> dict[str, Any]:
    """A section as the template reads it; `turned`: its pages lie across where a table asks for that."""
    tables = [part for part in section.parts if isinstance(part, Table)]
    across = turned and any(_parts_of(table, UPRIGHT) >= TURNED for table in tables)
    room = ACROSS if across else UPRIGHT
    return {
        "title": section.title,
        "across": across,
        "parts": [one for part in section.parts for one in _parts(part, room)],
    }


def _parts(part: Part, room: int) -> Iterator[dict[str, Any]]:
    kind = type(part).__name__
    if isinstance(part, Table):
        for table in split_table(part, room):
            yield _table(table)
    elif isinstance(part, Chart):
        svg = draw_svg(part).replace(INK, BLACK).replace(FONTS, FONT)
        yield {"kind": "Chart", "title": part.title, "note": part.note, "text": part.text, "svg": svg} | _size(svg)
        if part.figures is not None:
            for table in split_table(part.figures, room):
                yield _table(table)
    elif isinstance(part, (Heading, Subheading)):
        yield {"kind": "Heading", "text": part.text}
    elif isinstance(part, Paragraph):
        yield {"kind": kind, "text": breakable(part.text), "tone": part.tone}
    elif isinstance(part, Pairs):
        yield {"kind": kind, "rows": [[breakable(cell) for cell in row] for row in part.rows]}
    elif isinstance(part, (Bullets, Checks)):
        yield {"kind": kind, "items": [breakable(item) for item in part.items]}
    elif isinstance(part, CodePart):
        yield {"kind": kind, "text": part.text.rstrip("\n")}
    elif isinstance(part, Tree):
        yield {"kind": "Tree", "lines": list(_lines(part.root, 0))}
    else:
        raise TypeError(f"a comparison has no part of the kind {kind}")


def _lines(node: Node, depth: int) -> Iterator[dict[str, Any]]:
    answer = "not known" if node.answer == "unknown" else node.answer
    mark = " (where these rules lead)" if node.taken and not node.children else ""
    yield {"depth": depth, "answer": answer, "text": breakable(node.text) + mark, "taken": node.taken}
    for child in node.children:
        yield from _lines(child, depth + 1)


def _size(svg: str) -> dict[str, float]:
    found = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', svg)
    assert found is not None
    return {"width": float(found[1]), "height": float(found[2])}


def _widths(table: Table) -> list[int]:
    """The longest cell of each column, in letters."""
    return [
        max(len(column.title), *(len(row[place]) for row in table.rows), 1)
        for place, column in enumerate(table.columns)
    ]


def _parts_of(table: Table, room: int) -> int:
    """Into how many groups of columns a table must be split."""
    widths = [min(width, COLUMN) + 2 for width in _widths(table)]
    return math.ceil(sum(widths[1:]) / max(room - widths[0], 1))


def split_table(table: Table, room: int) -> Iterator[Table]:
    """Groups of columns that have room side by side, the first column in each; the table itself where all have."""
    count = _parts_of(table, room)
    if count <= 1:
        yield table
        return
    size = math.ceil((len(table.columns) - 1) / count)
    for start in range(1, len(table.columns), size):
        places = (0, *range(start, min(start + size, len(table.columns))))
        yield Table(
            columns=tuple(table.columns[place] for place in places),
            rows=tuple(tuple(row[place] for place in places) for row in table.rows),
            first_is_best=table.first_is_best,
        )


def _table(table: Table) -> dict[str, Any]:
    return {
        "kind": "Table",
        "columns": [
            {"title": column.title, "align": column.align, "share": _share(table, place)}
            for place, column in enumerate(table.columns)
        ],
        "rows": [[{"text": breakable(cell), "link": _link(cell)} for cell in row] for row in table.rows],
        "best": table.first_is_best,
    }


def _share(table: Table, place: int) -> float:
    """How wide a column is beside the others: room for its longest word, and more where there is much to read."""
    cells = [table.columns[place].title, *(row[place] for row in table.rows)]
    longest = max(len(cell) for cell in cells)
    word = max((min(len(word), TOKEN) for cell in cells for word in cell.split()), default=1)
    return float(round(max(word + 1.5, min(longest, 12), min(longest**0.75, 45)), 2))


def _link(cell: str) -> str:
    return cell if cell.startswith(("https://", "http://")) and " " not in cell else ""


def breakable(text: str) -> str:
    """Words longer than TOKEN with places where a line may end, after a mark where there is one.

    >>> breakable("short words"), breakable("a-rather/long-address.of/mine").replace("\\u200b", "|")
    ('short words', 'a-|rather/|long-|address.|of/|mine')
    """
    return " ".join(word if len(word) <= TOKEN else _broken(word) for word in text.split(" "))


def _broken(word: str) -> str:
    pieces = re.findall(rf"[^/._:=?&,-]{{1,{TOKEN}}}[/._:=?&,-]*|[/._:=?&,-]+", word)
    return "\u200b".join(pieces)
