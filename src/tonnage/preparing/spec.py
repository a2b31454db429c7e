"""What a preparation asks for, frozen: sources with keys and types, steps in order, where the result goes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Final, Literal

from tonnage.values import dataclass

ColumnType = Literal["integer", "number", "text", "boolean", "date", "timestamp"]
FileFormat = Literal["csv", "jsonl", "parquet"]
SourceFormat = Literal["csv", "jsonl", "parquet", "delta"]
TargetFormat = Literal["csv", "parquet", "delta"]
JoinKind = Literal["left", "inner"]
WindowFunction = Literal["mean", "sum", "min", "max", "count", "previous"]
Encoding = Literal["one-hot", "ordinal", "frequency"]
TEXT_FORMATS: Final = ("csv", "jsonl")  # all cells are read as texts, and typed as the file says


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSource:
    """A table. `types` None: those the file itself carries. `version` of a Delta table; None: its newest."""

    name: str
    location: str
    format: SourceFormat
    key: tuple[str, ...]
    types: Mapping[str, ColumnType] | None = None
    version: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """Columns of another source beside each row, found by its key."""

    source: str
    on: tuple[str, ...]  # columns here, in the order of the source's key
    how: JoinKind = "left"
    keep: tuple[str, ...] = ()  # of the source; empty: all but its key


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A figure over the `rows` rows before each row (with that row where `current`) of its group, in order."""

    column: str
    function: WindowFunction
    by: tuple[str, ...]
    order: str
    rows: int
    current: bool
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Encode:
    """A column of categories as numbers. `categories` None: those that are there, in order of their bytes."""

    column: str
    how: Encoding
    categories: tuple[str, ...] | None = None
    most: int = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenColumns:
    """A column of texts as token numbers, by the tokenizer.json of a folder."""

    column: str
    tokenizer: str
    most: int
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Keep:
    """These columns alone, in this order."""

    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Drop:
    """Without these columns."""

    columns: tuple[str, ...]


Step = Join | Window | Encode | TokenColumns | Keep | Drop


@dataclass(frozen=True, slots=True, kw_only=True)
class TableTarget:
    """Where the result goes; of a Delta table it is a new version, in a folder for each value of `partition_by`."""

    location: str
    format: TargetFormat
    partition_by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamTerms:
    """How files that arrive in the folder of `from` are read: in micro-batches, each written once.

    `checkpoint`: the folder that knows which files are done. `every_s`: seconds from one micro-batch to the next, until
    interrupted; None: what is there now, then the end. `fitted`: the JSON answer of a batch, whose categories are used.
    """

    checkpoint: str
    every_s: float | None = None
    files_at_once: int = 100
    fitted: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Preparation:
    """A whole file. `base`: the source whose rows are prepared, one out for each in (but by an inner join)."""

    name: str
    sources: Mapping[str, TableSource] = field(default_factory=dict)
    base: str
    steps: tuple[Step, ...]
    target: TableTarget
    stream: StreamTerms | None = None
