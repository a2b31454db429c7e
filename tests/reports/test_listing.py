"""Tables declared once: what a field shows in JSON, CSV and on pages."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date

from tonnage.reports.listing import (
    Field,
    Fields,
    cell,
    field_rows,
    field_table,
    field_values,
    figure_fields,
    named_fields,
    part_fields,
)
from tonnage.reports.plain import plain_usd
from tonnage.reports.wording import render_money
from tonnage.sizing.estimates import Figure


@dataclass(frozen=True)
class Sale:
    """What the fields below read."""

    name: str
    usd: float | None
    read_on: date | None = None
    time_s: Figure | None = None
    tags: tuple[str, ...] = ()


FIELDS: Fields[Sale] = (
    *named_fields("name"),
    Field("usd", lambda one: one.usd, json=plain_usd, title="price", show=lambda usd: render_money(usd or 0.0)),
    cell("shouted", lambda one: one.name.upper(), right=True, folds=2),
    *named_fields("read_on", "tags"),
    *figure_fields("time{}_s", lambda one: one.time_s),
)
BARE = Sale(name="a", usd=None)
FULL = Sale("b", 1.23456, date(2026, 11, 20), Figure(value=2.0, low=1.0, high=3.0, basis="computed"), ("x", "y"))


def test_json_has_the_keyed_fields_and_null_for_what_is_unknown() -> None:
    """A value is rounded as its field says; a column of pages alone is no key."""
    assert field_values(FIELDS, BARE) == {
        "name": "a", "usd": None, "read_on": None, "tags": [], "time_s": None, "time_low_s": None, "time_high_s": None,
    }  # fmt: skip
    assert field_values(FIELDS, FULL) == {
        "name": "b", "usd": 1.2346, "read_on": "2026-11-20", "tags": ["x", "y"], "time_s": 2, "time_low_s": 1,
        "time_high_s": 3,
    }  # fmt: skip


def test_csv_joins_the_parts_of_a_list() -> None:
    """A row has the values of JSON, a list in one cell."""
    assert field_rows(FIELDS, [FULL]) == [["b", 1.2346, "2026-11-20", "x y", 2, 1, 3]]


def test_pages_have_the_titled_fields_in_order() -> None:
    """Columns keep their looks, cells the text of `show`."""
    table = field_table(FIELDS, [BARE, FULL], first_is_best=True)
    assert [(one.title, one.align, one.folds) for one in table.columns] == [
        ("price", "left", 0),
        ("shouted", "right", 2),
    ]
    assert table.rows == (("$0.00", "A"), ("$1.23", "B"))
    assert table.first_is_best


def test_a_part_that_is_missing_leaves_nulls() -> None:
    """Fields of a part have its prefix before their keys, and null where there is no part."""
    fields = part_fields("new_", lambda pair: pair[1], named_fields("name", "usd"))
    pairs: list[tuple[Sale, Sale | None]] = [(FULL, BARE), (FULL, None)]
    assert [field_values(fields, pair) for pair in pairs] == [
        {"new_name": "a", "new_usd": None},
        {"new_name": None, "new_usd": None},
    ]
