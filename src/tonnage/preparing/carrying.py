"""A preparation carried out on any engine: sources checked, then step after step, each a view over the one before."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from tonnage.errors import DataError, did_you_mean, nearest
from tonnage.preparing.spec import (
    TEXT_FORMATS,
    ColumnType,
    Drop,
    Encode,
    Join,
    Keep,
    Preparation,
    TableSource,
    TableTarget,
    TokenColumns,
    Window,
)
from tonnage.preparing.sql import encoded_names
from tonnage.values import dataclass

Columns = tuple[str, ...]
Lines = Callable[[TableSource, Mapping[str, Any]], str]  # the places of rows with these values, in words


class DataEngine(Protocol):
    """What carries the steps out. Views are named; a text source's columns are all texts."""

    def open(self, view: str, source: TableSource) -> Mapping[str, ColumnType | None]:
        """Make a source a view; its columns with the types that its file carries (None: another type)."""

    def count(self, view: str) -> int:
        """Rows of a view."""

    def typed(self, view: str, over: str, types: Mapping[str, ColumnType]) -> None:
        """A view of texts with each column as its type."""

    def untyped(self, view: str, column: str, kind: ColumnType) -> str | None:
        """The least text of a column that is not of its type."""

    def keyless(self, view: str, key: Sequence[str]) -> int:
        """How many rows lack a part of their key."""

    def repeated(self, view: str, key: Sequence[str]) -> tuple[Any, ...] | None:
        """The first key, by its order, that more than one row has, and how many rows have it."""

    def categories(self, view: str, step: Encode) -> list[str]:
        """The categories there are, one more than may be at most."""

    def join(
        self, view: str, over: str, columns: Sequence[str], step: Join, other: str, key: Sequence[str],
        kept: Sequence[str],
    ) -> None:  # fmt: skip
        """A view with columns of the other one, found by its key."""

    def window(self, view: str, over: str, columns: Sequence[str], step: Window, key: Sequence[str]) -> None:
        """A view with a figure over the rows before each row."""

    def encode(self, view: str, over: str, columns: Sequence[str], step: Encode, categories: Sequence[str]) -> None:
        """A view with the categories as numbers, in place of the column."""

    def select(self, view: str, over: str, columns: Sequence[str]) -> None:
        """A view of these columns alone."""

    def tokenise(self, view: str, over: str, step: TokenColumns) -> None:
        """A view with a column of token numbers more."""

    def write(self, view: str, key: Columns, target: TableTarget) -> int | None:
        """The view into its target, in the order of the key; the version of a Delta table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedTables:
    """What came of it. `categories`: of each encoded column, as they were used; `version`: of a Delta table."""

    rows_in: Mapping[str, int]
    rows_out: int
    columns: Columns
    categories: Mapping[str, tuple[str, ...]]
    version: int | None


@dataclass(frozen=True, slots=True)
class _ReadTable:
    view: str
    columns: Columns
    types: Mapping[str, ColumnType | None]


def carry_out(asked: Preparation, engine: DataEngine, lines: Lines) -> PreparedTables:
    """The preparation on an engine. DataError says which source, column, key and line is at fault."""
    tables = {name: _checked(engine, source, lines) for name, source in asked.sources.items()}
    rows_in = {name: engine.count(table.view) for name, table in tables.items()}
    base, here = asked.sources[asked.base], tables[asked.base]
    categories: dict[str, tuple[str, ...]] = {}
    for number, step in enumerate(asked.steps):
        view, place = f"step_{number}", f"`prepare.steps[{number}]`"
        if isinstance(step, Join):
            here = _joined(engine, view, here, step, asked.sources[step.source], tables[step.source], place)
        elif isinstance(step, Window):
            here = _windowed(engine, view, here, step, base.key, place)
        elif isinstance(step, Encode):
            here, found = _encoded(engine, view, here, step, base.key, place)
            categories[step.column] = found
        elif isinstance(step, TokenColumns):
            _check_columns(here.columns, (step.column,), place)
            _check_new((step.name,), here.columns, place)
            engine.tokenise(view, here.view, step)
            here = _ReadTable(view, (*here.columns, step.name), {**here.types, step.name: None})
        else:
            here = _selected(engine, view, here, step, base.key, place)
    _check_columns(here.columns, asked.target.partition_by, "`prepare.to.partition_by`")
    version = engine.write(here.view, base.key, asked.target)
    return PreparedTables(
        rows_in=rows_in, rows_out=engine.count(here.view), columns=here.columns, categories=categories,
        version=version,
    )  # fmt: skip


def _checked(engine: DataEngine, source: TableSource, lines: Lines) -> _ReadTable:
    """The source as a view of typed columns whose key tells its rows apart."""
    raw = f"raw {source.name}"
    there = engine.open(raw, source)
    stated = source.types
    _check_columns(tuple(there), (*source.key, *(stated or ())), f"source '{source.name}'")
    if source.format in TEXT_FORMATS and stated is not None:
        _check_texts(engine, raw, source, stated, lines)
        view, types = f"source {source.name}", dict(stated)
        engine.typed(view, raw, types)
        found: Mapping[str, ColumnType | None] = types
    else:
        for column, kind in (stated or {}).items():
            if there[column] != kind:
                carried = there[column] or "another type"
                said = f"column '{column}' is {carried} in {source.location}, not {kind}"
                raise DataError(f"source '{source.name}': {said}", hint="correct `types`, or write the file again")
        view, found = raw, there
    _check_key(engine, view, source, lines)
    return _ReadTable(view, tuple(found), found)


def _check_texts(
    engine: DataEngine, view: str, source: TableSource, types: Mapping[str, ColumnType], lines: Lines
) -> None:
    for column, kind in types.items():
        found = engine.untyped(view, column, kind)
        if found is not None:
            where = lines(source, {column: found})
            raise DataError(f"source '{source.name}': column '{column}' has '{found}', which is no {kind} ({where})",
                            hint="correct the row, or state another type under `types`")  # fmt: skip


def _check_key(engine: DataEngine, view: str, source: TableSource, lines: Lines) -> None:
    lacking = engine.keyless(view, source.key)
    if lacking:
        where = lines(source, dict.fromkeys(source.key[:1]))
        raise DataError(f"source '{source.name}': {lacking:,} rows lack a part of their key ({where})",
                        hint="`key` names columns that every row has")  # fmt: skip
    repeated = engine.repeated(view, source.key)
    if repeated:
        values = dict(zip(source.key, repeated[:-1], strict=True))
        said = ", ".join(f"{name}={value}" for name, value in values.items())
        raise DataError(
            f"source '{source.name}': {repeated[-1]:,} rows have the key {said} ({lines(source, values)})",
            hint="remove the repeated rows, or name more columns under `key`",
        )


def _check_columns(there: Sequence[str], wanted: Sequence[str], place: str) -> None:
    for column in wanted:
        if column not in there:
            hint = did_you_mean(nearest(column, there, count=1), f"columns: {', '.join(there)}")
            raise DataError(f"{place}: there is no column '{column}'", hint=hint)


def _check_new(names: Sequence[str], there: Sequence[str], place: str) -> None:
    """Engines tell `A` and `a` not apart."""
    folded = {one.casefold() for one in there}
    for name in names:
        if name.casefold() in folded:
            raise DataError(
                f"{place}: there is a column '{name}' already", hint="`name` it otherwise, or drop the other"
            )


def _joined(
    engine: DataEngine, view: str, here: _ReadTable, step: Join, source: TableSource, other: _ReadTable, place: str
) -> _ReadTable:
    _check_columns(here.columns, step.on, place)
    kept = step.keep or tuple(one for one in other.columns if one not in source.key)
    _check_columns(other.columns, kept, f"{place}, source '{source.name}'")
    _check_new(kept, here.columns, place)
    for mine, theirs in zip(step.on, source.key, strict=True):
        if here.types[mine] != other.types[theirs]:
            raise DataError(f"{place}: '{mine}' is {here.types[mine]}, '{theirs}' of '{source.name}' is "
                            f"{other.types[theirs]}", hint="state the same type for both")  # fmt: skip
    engine.join(view, here.view, here.columns, step, other.view, source.key, kept)
    return _ReadTable(view, (*here.columns, *kept), {**here.types, **{one: other.types[one] for one in kept}})


def _windowed(engine: DataEngine, view: str, here: _ReadTable, step: Window, key: Columns, place: str) -> _ReadTable:
    _check_columns(here.columns, (step.column, step.order, *step.by, *key), place)
    _check_new((step.name,), here.columns, place)
    if step.function in ("mean", "sum") and here.types[step.column] not in ("integer", "number"):
        raise DataError(f"{place}: '{step.column}' is {here.types[step.column]}, and has no {step.function}",
                        hint="min, max, count or previous")  # fmt: skip
    engine.window(view, here.view, here.columns, step, key)
    kinds: dict[str, ColumnType | None] = {"mean": "number", "sum": "number", "count": "integer"}
    kind = kinds.get(step.function, here.types[step.column])
    return _ReadTable(view, (*here.columns, step.name), {**here.types, step.name: kind})


def _encoded(
    engine: DataEngine, view: str, here: _ReadTable, step: Encode, key: Columns, place: str
) -> tuple[_ReadTable, tuple[str, ...]]:
    _check_columns(here.columns, (step.column,), place)
    if step.column in key:
        raise DataError(f"{place}: '{step.column}' is of the key, which stays as it is", hint="encode another column")
    categories = step.categories
    if categories is None and step.how != "frequency":
        found = engine.categories(here.view, step)
        if len(found) > step.most:
            raise DataError(f"{place}: '{step.column}' has more than {step.most} categories",
                            hint="how: frequency, a larger `most`, or `categories`")  # fmt: skip
        categories = tuple(sorted(found, key=str.encode))
    categories = categories or ()
    names = encoded_names(step, categories)
    folded = [one.casefold() for one in names]
    for name in names:
        if folded.count(name.casefold()) > 1:
            raise DataError(f"{place}: '{name}' differs from another category in case alone, and columns may not",
                            hint="how: ordinal, or write the categories alike first")  # fmt: skip
    kept = [one for one in here.columns if one != step.column]
    _check_new(names, kept, place)
    engine.encode(view, here.view, here.columns, step, categories)
    kind: ColumnType = "number" if step.how == "frequency" else "integer"
    types = {one: here.types[one] for one in kept} | dict.fromkeys(names, kind)
    return _ReadTable(view, (*kept, *names), types), categories


def _selected(
    engine: DataEngine, view: str, here: _ReadTable, step: Keep | Drop, key: Columns, place: str
) -> _ReadTable:
    _check_columns(here.columns, step.columns, place)
    left = tuple(one for one in here.columns if one not in step.columns)
    wanted = step.columns if isinstance(step, Keep) else left
    gone = [one for one in key if one not in wanted]
    if gone:
        raise DataError(
            f"{place}: '{gone[0]}' is of the key, which stays", hint="keep it, and leave it out in training"
        )
    engine.select(view, here.view, wanted)
    return _ReadTable(view, wanted, {one: here.types[one] for one in wanted})
