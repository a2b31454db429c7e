"""What a preparation asks for, frozen: sources with keys and types, steps in order, where the result goes.

Steps and `stream` are what the file says of them, with their keys' meaning; `reading` makes names and paths whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Annotated, Final, Literal

from pydantic import BeforeValidator, Field

from tonnage.comparison.user_files import Name
from tonnage.values import dataclass
from tonnage.workload.file.fields import Count, Duration, Spelled, StrictModel, Word, as_names
from tonnage.workload.file.fields import key as entry

ColumnType = Literal["integer", "number", "text", "boolean", "date", "timestamp"]
FileFormat = Literal["csv", "jsonl", "parquet"]
SourceFormat = Literal["csv", "jsonl", "parquet", "delta"]
TargetFormat = Literal["csv", "parquet", "delta"]
JoinKind = Literal["left", "inner"]
WindowFunction = Literal["mean", "sum", "min", "max", "count", "previous"]
Encoding = Literal["one-hot", "ordinal", "frequency"]
Columns = Annotated[tuple[Word, ...], BeforeValidator(as_names), Spelled("column or list of columns")]
Categories = Annotated[tuple[str, ...], BeforeValidator(as_names), Spelled("list of categories")]
Most = Annotated[int, Field(ge=1, le=10_000), Spelled("whole number, 1 to 10,000")]
TokenCount = Annotated[int, Field(ge=1, le=1_000_000), Spelled("whole number, 1 to 1,000,000")]
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


class Join(StrictModel):
    """`join`: columns of another source beside each row, found by its key."""

    source: Name = entry("The other source; its rows are found by its key.")
    on: Columns = entry("Columns here, in the order of that key.")
    how: JoinKind = entry("left keeps rows that find nothing; inner leaves them out.", default="left")
    keep: Columns = entry("Columns of the source.", default=(), shown="all but its key")


class Window(StrictModel):
    """`window`: a figure over the `rows` rows before each row of its group, in order, with that row where `current`."""

    column: Word = entry("What the figure is of.")
    function: WindowFunction = entry("mean, sum, min, max, count, or previous (the value so many rows before).")
    by: Columns = entry("The group: columns with equal values.")
    order: Word = entry("The column that rows of a group follow one another by; ties by the key.")
    rows: Count = entry("How many rows before this one.")
    current: bool = entry("Whether this row counts too.", default=False)
    name: Word = entry("The new column.", default="", shown="COLUMN_FUNCTION_ROWS")


class Encode(StrictModel):
    """`encode`: a column of categories as numbers. `categories` None: those that are there, in order of their bytes."""

    column: Word = entry("The categories.")
    how: Encoding = entry("one-hot (a column each), ordinal (their place, -1 for others), frequency (their share).")
    categories: Categories | None = entry("Those there are; others are unknown.", default=None, shown="found")
    most: Most = entry("More categories than this are an error.", default=100)


class TokenColumns(StrictModel):
    """`tokens`: a column of texts as token numbers, by the tokenizer.json of a folder."""

    column: Word = entry("The texts.")
    tokenizer: Word = entry("A folder with tokenizer.json, or pkg://package/folder.")
    most: TokenCount = entry("Texts are cut here.", default=512)
    name: Word = entry("The new column.", default="", shown="COLUMN_tokens")


class Keep(StrictModel):
    """These columns alone, in this order."""

    columns: Columns


class Drop(StrictModel):
    """Without these columns."""

    columns: Columns


Step = Join | Window | Encode | TokenColumns | Keep | Drop


@dataclass(frozen=True, slots=True, kw_only=True)
class TableTarget:
    """Where the result goes; of a Delta table it is a new version, in a folder for each value of `partition_by`."""

    location: str
    format: TargetFormat
    partition_by: tuple[str, ...] = ()


class StreamTerms(StrictModel):
    """`stream`: how `--stream` reads files that arrive in the folder of `from`: in micro-batches, each written once."""

    checkpoint: Word = entry("A folder that keeps which files are done; of this preparation alone.")
    every_s: Duration | None = entry(
        "From one micro-batch to the next, until interrupted.", default=None, shown="what is there now, then the end",
        alias="every",
    )  # fmt: skip
    files_at_once: Count = entry("Files of a micro-batch at most.", default=100)
    fitted: Word | None = entry("The JSON answer of a batch, whose categories are used.", default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Preparation:
    """A whole file. `base`: the source whose rows are prepared, one out for each in (but by an inner join)."""

    name: str
    sources: Mapping[str, TableSource] = field(default_factory=dict)
    base: str
    steps: tuple[Step, ...]
    target: TableTarget
    stream: StreamTerms | None = None
