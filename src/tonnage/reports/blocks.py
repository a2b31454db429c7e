"""What a report consists of, before it has a look: headings, pairs, tables. One content, three looks."""

from __future__ import annotations

from typing import Literal

from tonnage.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Heading:
    """The start of a section."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Paragraph:
    """Running text. `tone` is what it means to the reader: plain, faint (an aside), good or warning."""

    text: str
    tone: Literal["plain", "faint", "good", "warning"] = "plain"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairs:
    """Label and value, one a line."""

    rows: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bullets:
    """A list of remarks."""

    items: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column of a table.

    Where the terminal is too narrow, columns with the highest `folds` leave first; their cells are then put into
    `fold_text`, on a second line under the row ("": they are left out). 0: stays always. `wraps` cells may break
    at spaces.
    """

    title: str
    align: Literal["left", "right"] = "left"
    folds: int = 0
    fold_text: str = "{}"
    wraps: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows of text cells. The first row is set off where `first_is_best`; without any title there is no header."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    first_is_best: bool = False

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(f"a row of {len(row)} cells in a table of {len(self.columns)} columns: {row}")


@dataclass(frozen=True, slots=True, kw_only=True)
class LineChart:
    """Lines over one axis: (x, y) in order of x. A terminal shows each as a row of blocks.

    `log_x`: equal factors of x are equally far apart; every x is above 0 then.
    """

    title: str
    x_title: str
    y_title: str
    series: tuple[tuple[str, tuple[tuple[float, float], ...]], ...]
    log_x: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Code:
    """Lines to copy: never wrapped, never changed."""

    lines: tuple[str, ...]


Block = Heading | Paragraph | Pairs | Bullets | Table | LineChart | Code


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A whole report."""

    title: str
    blocks: tuple[Block, ...]
