"""Tables declared once: each field says what JSON, CSV and pages show of an item; lists of like things are reports."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY
from datetime import date
from operator import attrgetter
from typing import Any, Generic, TypeVar

from tonnage.reports.blocks import Block, Column, Page, Paragraph, Table
from tonnage.reports.plain import plain_day, plain_number
from tonnage.reports.rendering import Report
from tonnage.reports.wording import UNKNOWN, short
from tonnage.values import dataclass

T = TypeVar("T")
P = TypeVar("P")
ENDS = (("", "value"), ("_low", "low"), ("_high", "high"))  # of a figure: what a key gets, the attribute


def plain(value: Any) -> Any:
    """A value as JSON carries it."""
    if isinstance(value, bool):
        return value
    if isinstance(value, int | float):
        return plain_number(value)
    if isinstance(value, date):
        return plain_day(value)
    return list(value) if isinstance(value, tuple) else value


@dataclass(frozen=True, slots=True)
class Field(Generic[T]):
    """One fact of an item: its JSON key and CSV column, how it is read, and its column on a page.

    Without a key it is on pages only, without a title in JSON and CSV only. `json` turns a known value into what
    JSON carries, `show` any value into the text of a cell.
    """

    key: str
    read: Callable[[T], Any]
    _: KW_ONLY
    title: str | None = None
    json: Callable[[Any], Any] = plain
    show: Callable[[Any], str] | None = None
    right: bool = False
    folds: int = 0
    fold_text: str = "{}"
    wraps: bool = False

    def value(self, item: T) -> Any:
        """As JSON carries it; what is unknown is null."""
        value = self.read(item)
        return None if value is None else self.json(value)

    def text(self, item: T) -> str:
        """As a page shows it."""
        value = self.read(item)
        if self.show is not None:
            return self.show(value)
        if value is None or value == "":
            return UNKNOWN
        return short(value, 4) if isinstance(value, int | float) and not isinstance(value, bool) else str(value)

    @property
    def column(self) -> Column:
        return Column(
            title=self.title or "",
            align="right" if self.right else "left",
            folds=self.folds,
            fold_text=self.fold_text,
            wraps=self.wraps,
        )


Fields = Sequence[Field[T]]


def cell(
    title: str,
    read: Callable[[T], str],
    *,
    right: bool = False,
    folds: int = 0,
    fold_text: str = "{}",
    wraps: bool = False,
) -> Field[T]:
    """A column that only pages have; `read` gives its text."""
    return Field("", read, title=title, show=str, right=right, folds=folds, fold_text=fold_text, wraps=wraps)


def named_fields(*names: str) -> list[Field[Any]]:
    """Fields whose keys are the names of the attributes they read."""
    return [Field(name, attrgetter(name)) for name in names]


def figure_fields(key: str, read: Callable[[T], Any], json: Callable[[Any], Any] = plain_number) -> Fields[T]:
    """The value and the ends of the interval of a figure, or of none; `key` has a {} where «_low» goes."""

    def reader(end: str) -> Callable[[T], Any]:
        return lambda item: getattr(read(item), end, None)

    return [Field(key.format(name), reader(end), json=json) for name, end in ENDS]


def part_fields(prefix: str, part: Callable[[T], P | None], fields: Fields[P]) -> list[Field[T]]:
    """The fields of a part of the item, their keys behind a prefix; null where an item lacks the part."""

    def reader(field: Field[P]) -> Callable[[T], Any]:
        return lambda item: None if (found := part(item)) is None else field.value(found)

    return [Field(prefix + field.key, reader(field), json=lambda value: value) for field in fields]


def field_keys(fields: Fields[T]) -> list[str]:
    """The keys of JSON, the columns of CSV."""
    return [field.key for field in fields if field.key]


def field_values(fields: Fields[T], item: T) -> dict[str, Any]:
    """An item as JSON carries it."""
    return {field.key: field.value(item) for field in fields if field.key}


def field_rows(fields: Fields[T], items: Sequence[T]) -> list[list[Any]]:
    """Items as CSV carries them: the parts of a list or of a mapping in one cell."""
    return [[_csv_cell(value) for value in field_values(fields, item).values()] for item in items]


def _csv_cell(value: Any) -> Any:
    if isinstance(value, list):
        return " ".join(map(str, value))
    return named_values(value) if isinstance(value, dict) else value


def named_values(values: Mapping[str, Any]) -> str:
    """Values beside their names, numbers to four digits.

    >>> named_values({"loss": 0.123456, "task": "mlp"})
    'loss 0.1235, task mlp'
    """
    return ", ".join(
        f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}" for name, value in values.items()
    )


def field_table(fields: Fields[T], items: Sequence[T], *, first_is_best: bool = False) -> Table:
    """Items as a page shows them."""
    shown = [field for field in fields if field.title is not None]
    rows = tuple(tuple(field.text(item) for field in shown) for item in items)
    return Table(columns=tuple(field.column for field in shown), rows=rows, first_is_best=first_is_best)


def fields_report(
    page: Callable[[], Page], document: Callable[[], Mapping[str, Any]], fields: Fields[T], items: Sequence[T]
) -> Report:
    """A report whose CSV lists `items`."""
    return Report(page=page, document=document, columns=field_keys(fields), rows=lambda: field_rows(fields, items))


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing(Generic[T]):
    """Things of one kind: `name` is the JSON key of the list, `head` is shown before it."""

    schema: str
    title: str
    name: str
    head: Mapping[str, Any]
    fields: Fields[T]
    items: Sequence[T]
    remarks: Sequence[str] = ()
    most: int | None = None  # on pages; JSON and CSV hold all


def listing_report(listing: Listing[T]) -> Report:
    """The report of a list."""
    return fields_report(
        lambda: _page(listing),
        lambda: {
            "schema": listing.schema,
            **listing.head,
            listing.name: [field_values(listing.fields, item) for item in listing.items],
        },
        listing.fields,
        listing.items,
    )


def _page(listing: Listing[T]) -> Page:
    items = listing.items if listing.most is None else listing.items[: listing.most]
    blocks: list[Block] = [field_table(listing.fields, items)] if items else [Paragraph(text="none")]
    if len(items) < len(listing.items):
        left = len(listing.items) - len(items)
        blocks.append(Paragraph(text=f"{left:,} more; --top shows more, -o csv all", tone="faint"))
    blocks += [Paragraph(text=remark, tone="faint") for remark in listing.remarks]
    return Page(title=listing.title, blocks=tuple(blocks))
