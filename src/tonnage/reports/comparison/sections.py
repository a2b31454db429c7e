"""What a comparison's report consists of beyond the common blocks: sections, charts, check-boxes, code."""

from __future__ import annotations

from tonnage.reports.blocks import Block, Table
from tonnage.reports.comparison.drawings import Drawing
from tonnage.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A drawing with its words for those who cannot see it.

    `key` makes its ids; `note` says how to read it, `text` what it shows; `figures`: its figures as a table, None where
    a table of the same section holds them. `mermaid`: the same for Markdown, where there is a kind of it for that ("":
    left out there).
    """

    key: str
    title: str
    note: str
    text: str
    drawing: Drawing
    figures: Table | None = None
    mermaid: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checks:
    """Action items, to be ticked off."""

    items: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CodePart:
    """Text that keeps its spaces; `language` as Markdown names it."""

    text: str
    language: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subheading:
    """A heading within a section."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One node of the decision tree as nested lists show it."""

    text: str
    answer: str  # how one comes here: "", "yes", "no", "not known"
    taken: bool
    children: tuple[Node, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """The decision tree."""

    root: Node
    text: str
    mermaid: str


Part = Block | Chart | Checks | CodePart | Subheading | Tree


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One section; `key` is its anchor."""

    key: str
    title: str
    parts: tuple[Part, ...]
