"""A page as Markdown (GitHub's tables)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tonnage.reports.blocks import Block, Bullets, Code, Heading, LineChart, Page, Pairs, Table
from tonnage.reports.line_chart import chart_lines
from tonnage.reports.visible import visible_page

_SPARK = 60  # blocks in a row


def render_markdown(page: Page) -> str:
    """The page as Markdown text, every column present."""
    page = visible_page(page)
    lines = [f"# {escape(page.title)}", ""]
    for block in page.blocks:
        lines += [*_block_lines(block), ""]
    return "\n".join(lines).rstrip("\n") + "\n"


def _block_lines(block: Block) -> Iterator[str]:
    if isinstance(block, Heading):
        yield f"## {escape(block.text)}"
    elif isinstance(block, Table):
        yield from _table_lines(block)
    elif isinstance(block, Code):
        yield from ("```sh", *block.lines, "```")
    elif isinstance(block, LineChart):
        yield from (f"- {escape(line)}" for line in chart_lines(block, _SPARK))
    elif isinstance(block, Pairs):
        yield from (f"- **{escape(label)}**: {escape(value)}" for label, value in block.rows)
    elif isinstance(block, Bullets):
        yield from (f"- {escape(item)}" for item in block.items)
    else:
        yield escape(block.text)


def _table_lines(table: Table) -> Iterator[str]:
    yield _row([column.title for column in table.columns])
    yield "| " + " | ".join("---:" if column.align == "right" else "---" for column in table.columns) + " |"
    for number, row in enumerate(table.rows):
        best = table.first_is_best and number == 0
        yield _row(row, bold=best)


def _row(cells: tuple[str, ...] | list[str], *, bold: bool = False) -> str:
    texts = [escape(cell) for cell in cells]
    return "| " + " | ".join(f"**{text}**" if bold and text else text for text in texts) + " |"


def escape(text: str) -> str:
    """Text without the characters that Markdown would take for marks.

    >>> escape("gpu_1x_a100 | <b>")
    'gpu\\\\_1x\\\\_a100 \\\\| &lt;b&gt;'
    """
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_\[\]|$])", r"\\\1", text).replace("\n", " ")
