"""Lists of like things (devices, machines, offers, models): fields defined once, shown in every form."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from tonnage.reports.blocks import Block, Column, Page, Paragraph, Table
from tonnage.reports.plain import plain_number
from tonnage.reports.rendering import Report
from tonnage.reports.wording import UNKNOWN, short
from tonnage.values import dataclass

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Field(Generic[T]):
    """One fact: its JSON key and CSV column, how it is read, and its column on a page (no title: not on pages)."""

    key: str
    read: Callable[[T], Any]
    title: str = ""
    show: Callable[[Any], str] | None = None
    right: bool = False
    folds: int = 0
    fold_text: str = "{}"
    wraps: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing(Generic[T]):
    """Things of one kind: `name` is the JSON key of the list, `head` stands before it."""

    schema: str
    title: str
    name: str
    head: Mapping[str, Any]
    fields: Sequence[Field[T]]
    items: Sequence[T]
    remarks: Sequence[str] = ()
    most: int | None = None  # on pages; JSON and CSV hold all


def listing_report(listing: Listing[T]) -> Report:
    """The report of a list."""
    return Report(
        page=lambda: _page(listing),
        document=lambda: _document(listing),
        columns=[field.key for field in listing.fields],
        rows=lambda: [[_cell(plain(field.read(item))) for field in listing.fields] for item in listing.items],
    )


def plain(value: Any) -> Any:
    """A value as JSON carries it."""
    if isinstance(value, bool):
        return value
    if isinstance(value, int | float):
        return plain_number(value)
    return list(value) if isinstance(value, tuple) else value


def _cell(value: Any) -> Any:
    return " ".join(str(part) for part in value) if isinstance(value, list) else value


def _document(listing: Listing[T]) -> dict[str, Any]:
    items = [{field.key: plain(field.read(item)) for field in listing.fields} for item in listing.items]
    return {"schema": listing.schema, **listing.head, listing.name: items}


def _page(listing: Listing[T]) -> Page:
    shown = [field for field in listing.fields if field.title]
    columns = tuple(
        Column(
            title=field.title,
            align="right" if field.right else "left",
            folds=field.folds,
            fold_text=field.fold_text,
            wraps=field.wraps,
        )
        for field in shown
    )
    items = listing.items if listing.most is None else listing.items[: listing.most]
    rows = tuple(tuple(_text(field, field.read(item)) for field in shown) for item in items)
    blocks: list[Block] = [Table(columns=columns, rows=rows)] if rows else [Paragraph(text="none")]
    if len(items) < len(listing.items):
        left = len(listing.items) - len(items)
        blocks.append(Paragraph(text=f"{left:,} more; --top shows more, -o csv all", tone="faint"))
    blocks += [Paragraph(text=remark, tone="faint") for remark in listing.remarks]
    return Page(title=listing.title, blocks=tuple(blocks))


def _text(field: Field[T], value: Any) -> str:
    if field.show is not None:
        return field.show(value)
    if value is None or value == "":
        return UNKNOWN
    return short(value, 4) if isinstance(value, int | float) and not isinstance(value, bool) else str(value)
