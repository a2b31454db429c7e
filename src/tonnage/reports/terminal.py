"""A page as a terminal shows it: aligned columns that fold under the row where the window is narrow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from rich.cells import cell_len

from tonnage.reports.blocks import Block, Bullets, Code, Column, Heading, LineChart, Page, Pairs, Paragraph, Table
from tonnage.reports.line_chart import chart_lines
from tonnage.reports.visible import visible_page

GAP: Final = 2
INDENT: Final = 2
NARROWEST: Final = 40
_SPARK: Final = 60  # blocks in a chart's row
_WRAP_TO: Final = 28  # a column that wraps is not pressed below this
_TONES: Final = {"plain": "", "faint": "dim", "good": "bold green", "warning": "yellow"}
# Select Graphic Rendition, ECMA-48 8.3.117. Rich would paint the same, and takes as long to import as a page to render.
_SGR: Final = {"bold": "1", "dim": "2", "bold green": "1;32", "bold cyan": "1;36", "yellow": "33"}
Line = list[tuple[str, str]]  # texts, each with its style


def render_terminal(page: Page, *, width: int, color: bool) -> str:
    """The page as text of at most `width` cells a line, with colours where asked for."""
    page = visible_page(page)
    width = max(width, NARROWEST)
    paint = _painted if color else _plain
    return "".join(paint(line) + "\n" for line in _page_lines(page, width))


def _plain(line: Line) -> str:
    return "".join(text for text, _ in line).rstrip()


def _painted(line: Line) -> str:
    """The line with the codes of its styles, without spaces at its end."""
    left, parts = len(_plain(line)), []
    for text, style in line:
        shown = text[:left]
        left -= len(shown)
        parts.append(f"\x1b[{_SGR[style]}m{shown}\x1b[0m" if style and shown else shown)
    return "".join(parts)


def _page_lines(page: Page, width: int) -> Iterator[Line]:
    yield from _wrapped(page.title, width, "bold")
    for block in page.blocks:
        if isinstance(block, Heading):
            yield []
        yield from _block_lines(block, width)


def _block_lines(block: Block, width: int) -> Iterator[Line]:
    if isinstance(block, Heading):
        yield from _wrapped(block.text, width, "bold cyan")
    elif isinstance(block, Paragraph):
        yield from _wrapped(block.text, width, _TONES[block.tone], indent=INDENT)
    elif isinstance(block, Bullets):
        for item in block.items:
            yield from _hanging("- ", item, width)
    elif isinstance(block, Code):
        yield from ([(line, "")] for line in block.lines)
    elif isinstance(block, LineChart):
        for line in chart_lines(block, _SPARK):
            yield from _wrapped(line, width, "", indent=INDENT)
    elif isinstance(block, Pairs):
        yield from _pair_lines(block, width)
    else:
        yield from _table_lines(block, width)


def _wrapped(text: str, width: int, style: str, *, indent: int = 0) -> Iterator[Line]:
    for line in wrap(text, width - indent):
        yield [(" " * indent, ""), (line, style)]


def _hanging(mark: str, text: str, width: int) -> Iterator[Line]:
    lead = " " * INDENT + mark
    for number, line in enumerate(wrap(text, width - len(lead))):
        yield [(lead if number == 0 else " " * len(lead), ""), (line, "")]


def _pair_lines(block: Pairs, width: int) -> Iterator[Line]:
    labels = max((cell_len(label) for label, _ in block.rows), default=0)
    labels = min(labels, width // 2)
    for label, value in block.rows:
        for number, line in enumerate(wrap(value, width - labels - INDENT - GAP) or [""]):
            shown = label if number == 0 else ""
            yield [(" " * INDENT, ""), (_padded(shown, labels, "left"), "dim"), (" " * GAP, ""), (line, "")]


def _table_lines(table: Table, width: int) -> Iterator[Line]:
    shown, folded = _choose_columns(table, width)
    widths = _fit(table, shown, width)
    header = [wrap(table.columns[index].title, widths[index]) or [""] for index in shown]
    if any(table.columns[index].title for index in shown):
        yield from _row_lines(header, shown, table.columns, widths, "dim")
    for number, row in enumerate(table.rows):
        best = table.first_is_best and number == 0
        cells = [wrap(row[index], widths[index]) or [""] for index in shown]
        yield from _row_lines(cells, shown, table.columns, widths, "bold green" if best else "")
        aside = " · ".join(
            table.columns[index].fold_text.format(row[index])
            for index in folded
            if row[index].strip() and table.columns[index].fold_text
        )
        if aside:
            yield from _wrapped(aside, width, "dim", indent=INDENT + widths[shown[0]] + GAP)


def _row_lines(
    cells: Sequence[Sequence[str]], shown: Sequence[int], columns: Sequence[Column], widths: dict[int, int], style: str
) -> Iterator[Line]:
    for depth in range(max(len(cell) for cell in cells)):
        line = [(" " * INDENT, "")]
        for place, (index, cell) in enumerate(zip(shown, cells, strict=True)):
            text = cell[depth] if depth < len(cell) else ""
            line.append((_padded(text, widths[index], columns[index].align), style))
            if place < len(shown) - 1:
                line.append((" " * GAP, ""))
        yield line


def _natural(table: Table, index: int) -> int:
    cells = (table.columns[index].title, *(row[index] for row in table.rows))
    return max(cell_len(cell) for cell in cells)


def _choose_columns(table: Table, width: int) -> tuple[list[int], list[int]]:
    """Indexes of the columns that are in the row, and of those that go under it."""
    least = [
        min(_natural(table, index), _WRAP_TO) if column.wraps else _natural(table, index)
        for index, column in enumerate(table.columns)
    ]
    shown = list(range(len(table.columns)))
    while len(shown) > 1 and sum(least[index] + GAP for index in shown) - GAP + INDENT > width:
        last = max(shown, key=lambda index: (table.columns[index].folds, index))
        if table.columns[last].folds == 0:
            break
        shown.remove(last)
    return shown, [index for index in range(len(table.columns)) if index not in shown]


def _fit(table: Table, shown: Sequence[int], width: int) -> dict[int, int]:
    """Widths of the shown columns: natural, with the widest ones narrowed until all fit."""
    widths = {index: _natural(table, index) for index in shown}
    room = width - INDENT - GAP * (len(shown) - 1)
    flexible = [index for index in shown if table.columns[index].wraps]
    while sum(widths.values()) > room:
        pool = [index for index in flexible if widths[index] > _WRAP_TO] or list(shown)
        widest = max(pool, key=lambda index: widths[index])
        if widths[widest] <= 4:
            break
        widths[widest] -= 1
    return widths


def _padded(text: str, width: int, align: str) -> str:
    space = " " * max(0, width - cell_len(text))
    return space + text if align == "right" else text + space


def wrap(text: str, width: int) -> list[str]:
    """Lines of at most `width` cells, broken at spaces; a longer word is cut, after a dash if it can be.

    >>> wrap("1 x Standard_NC4as_T4_v3", 12)
    ['1 x', 'Standard_', 'NC4as_T4_v3']
    """
    width = max(width, 1)
    lines: list[str] = []
    for paragraph in text.split("\n"):
        line = ""
        for word in paragraph.split(" "):
            while cell_len(word) > width:
                if line:
                    lines.append(line)
                    line = ""
                cut = _longest_prefix(word, width)
                lines.append(word[:cut])
                word = word[cut:]
            joined = f"{line} {word}" if line else word
            if cell_len(joined) > width:
                lines.append(line)
                joined = word
            line = joined
        lines.append(line)
    return lines if lines != [""] else []


def _longest_prefix(word: str, width: int) -> int:
    """Characters of `word` that fit, cut after a dash or the like where there is one in the second half."""
    cut = 1
    while cut < len(word) and cell_len(word[: cut + 1]) <= width:
        cut += 1
    after_mark = max((place for place in range(cut // 2, cut + 1) if word[place - 1] in "-_./+,"), default=0)
    return after_mark or cut
