"""A Markdown document as lines and tables that know where they are: line number, headings, block."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from markdown_it import MarkdownIt
from markdown_it.token import Token

from tonnage.values import dataclass

_BREAK = re.compile(r"<br\s*/?>", re.IGNORECASE)
_LOOKS_LIKE_A_TABLE = re.compile(r"^\s*\|.*\|\s*$")


@dataclass(frozen=True, slots=True, kw_only=True)
class TextLine:
    """One line of running text, of a list or of a code block. Lines of one `block` belong together.

    A list with its sub-lists is one block, so are a paragraph and a code block. `number` counts from 1.
    """

    number: int
    text: str
    block: int
    headings: tuple[str, ...]
    is_code: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRow:
    """The cells of one row as plain text."""

    number: int
    cells: tuple[str, ...]
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentTable:
    """A table: its header cells and rows, and the headings above it, the nearest last."""

    header: tuple[str, ...]
    rows: tuple[TableRow, ...]
    headings: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimsDocument:
    """What of a Markdown text can carry claims. `remarks` says what could not be read as intended."""

    lines: tuple[TextLine, ...]
    tables: tuple[DocumentTable, ...]
    remarks: tuple[str, ...]


def parse_document(text: str) -> ClaimsDocument:
    """Read Markdown with tables (CommonMark and the GitHub table form); any text is some Markdown, so none fails."""
    reader = _TokenWalk(text)
    reader.read(MarkdownIt("commonmark").enable("table").parse(text))
    return ClaimsDocument(lines=tuple(reader.lines), tables=tuple(reader.tables), remarks=tuple(reader.remarks))


class _TokenWalk:
    """Walks the tokens once, keeping the headings that hold and the block that is open."""

    def __init__(self, text: str) -> None:
        self.source = text.splitlines()
        self.lines: list[TextLine] = []
        self.tables: list[DocumentTable] = []
        self.remarks: list[str] = []
        self._headings: list[tuple[int, str]] = []
        self._block = 0
        self._lists = 0

    def read(self, tokens: Sequence[Token]) -> None:
        position = 0
        while position < len(tokens):
            token = tokens[position]
            if token.type == "table_open":
                end = next(i for i in range(position, len(tokens)) if tokens[i].type == "table_close")
                self._table(tokens[position:end])
                position = end
            elif token.type == "heading_open":
                self._heading(token, tokens[position + 1])
                position += 1
            else:
                self._block_token(token)
            position += 1

    def _block_token(self, token: Token) -> None:
        if token.type in ("bullet_list_open", "ordered_list_open"):
            if not self._lists:
                self._block += 1
            self._lists += 1
        elif token.type in ("bullet_list_close", "ordered_list_close"):
            self._lists -= 1
        elif token.type in ("fence", "code_block"):
            self._code(token)
        elif token.type in ("inline", "html_block"):
            if not self._lists:
                self._block += 1
            self._text(token)

    def _heading(self, opening: Token, inline: Token) -> None:
        level = int(opening.tag[1:])
        self._headings = [(other, title) for other, title in self._headings if other < level]
        self._headings.append((level, plain_text(inline)))
        self._block += 1
        self._text(inline)

    def _text(self, token: Token) -> None:
        first = (token.map or [0])[0]
        for offset, part in enumerate(_lines_of(token)):
            self._add(first + offset, part)
        if (
            token.type == "inline"
            and token.content.count("\n")
            and _LOOKS_LIKE_A_TABLE.match(token.content.split("\n")[0])
        ):
            self.remarks.append(f"line {first + 1}: looks like a table, but its header has no line of dashes below")

    def _code(self, token: Token) -> None:
        self._block += 1
        first = (token.map or [0])[0] + (token.type == "fence")
        for offset, part in enumerate(token.content.splitlines()):
            self._add(first + offset, part, is_code=True)
        self._block += 1

    def _add(self, index: int, text: str, *, is_code: bool = False) -> None:
        if text.strip():
            headings = tuple(title for _, title in self._headings)
            self.lines.append(
                TextLine(number=index + 1, text=text, block=self._block, headings=headings, is_code=is_code)
            )

    def _table(self, tokens: Sequence[Token]) -> None:
        self._block += 1
        rows = list(_rows(tokens))
        header, body = rows[0][1], rows[1:]
        self.tables.append(
            DocumentTable(
                header=header,
                rows=tuple(TableRow(number=i + 1, cells=cells, text=self.source[i].strip()) for i, cells in body),
                headings=tuple(title for _, title in self._headings),
            )
        )


def _rows(tokens: Sequence[Token]) -> Iterator[tuple[int, tuple[str, ...]]]:
    """(index of the source line, cells) of each row, the header first."""
    index, cells = 0, list[str]()
    for token in tokens:
        if token.type == "tr_open":
            index, cells = (token.map or [0])[0], []
        elif token.type == "inline":
            cells.append(plain_text(token).replace("\n", " ").strip())
        elif token.type == "tr_close":
            yield index, tuple(cells)


def _lines_of(token: Token) -> list[str]:
    """The source lines of a text token without their marks; as they are where the count would change."""
    raw = token.content.splitlines()
    if token.type != "inline":
        return raw
    plain = plain_text(token).split("\n")
    return plain if len(plain) == len(raw) else raw


def plain_text(token: Token) -> str:
    """The words of an inline token: code and emphasis without their marks, no tags, breaks as spaces."""
    parts = []
    for child in token.children or []:
        if child.type in ("softbreak", "hardbreak"):
            parts.append("\n")
        elif child.type == "html_inline":
            parts.append(" " if _BREAK.fullmatch(child.content) else "")
        elif child.type == "image":
            parts.append(plain_text(child))
        else:
            parts.append(child.content)
    return "".join(parts)
