"""The keys of a preparation file, at the door: pydantic models; every key with its meaning."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from tonnage.comparison.door import Name
from tonnage.preparing.spec import ColumnType, Encoding, FileFormat, JoinKind, WindowFunction
from tonnage.workload.file.fields import Count, CountOrZero, Duration, Spelled, StrictModel, Word, as_names
from tonnage.workload.file.fields import key as entry

Columns = Annotated[tuple[Word, ...], BeforeValidator(as_names), Spelled("column or list of columns")]
Categories = Annotated[tuple[str, ...], BeforeValidator(as_names), Spelled("list of categories")]
Most = Annotated[int, Field(ge=1, le=10_000), Spelled("whole number, 1 to 10,000")]
TokenCount = Annotated[int, Field(ge=1, le=1_000_000), Spelled("whole number, 1 to 1,000,000")]


def _as_list(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


class TableSourceEntry(StrictModel):
    """One table; exactly one of `file`, `delta`."""

    file: Word | None = entry("A CSV, JSONL or Parquet file, or a folder of such files.", default=None)
    format: FileFormat | None = entry("csv, jsonl or parquet.", default=None, shown="by the name; of a folder parquet")
    delta: Word | None = entry("The folder of a Delta table.", default=None)
    version: CountOrZero | None = entry("Of the Delta table.", default=None, shown="the newest")
    key: Columns = entry("The columns that tell its rows apart; no two rows have the same.")
    types: dict[str, ColumnType] | None = entry(
        "Column -> integer, number, text, boolean, date or timestamp; needed for CSV and JSONL, of Parquet and Delta "
        "checked.", default=None,
    )  # fmt: skip


class JoinEntry(StrictModel):
    """`join`."""

    source: Name = entry("The other source; its rows are found by its key.")
    on: Columns = entry("Columns here, in the order of that key.")
    how: JoinKind = entry("left keeps rows that find nothing; inner leaves them out.", default="left")
    keep: Columns = entry("Columns of the source.", default=(), shown="all but its key")


class WindowEntry(StrictModel):
    """`window`."""

    column: Word = entry("What the figure is of.")
    function: WindowFunction = entry("mean, sum, min, max, count, or previous (the value so many rows before).")
    by: Columns = entry("The group: columns with equal values.")
    order: Word = entry("The column that rows of a group follow one another by; ties by the key.")
    rows: Count = entry("How many rows before this one.")
    current: bool = entry("Whether this row counts too.", default=False)
    name: Word | None = entry("The new column.", default=None, shown="COLUMN_FUNCTION_ROWS")


class EncodeEntry(StrictModel):
    """`encode`."""

    column: Word = entry("The categories.")
    how: Encoding = entry("one-hot (a column each), ordinal (their place, -1 for others), frequency (their share).")
    categories: Categories | None = entry("Those there are; others are unknown.", default=None, shown="found")
    most: Most = entry("More categories than this are an error.", default=100)


class TokensEntry(StrictModel):
    """`tokens`."""

    column: Word = entry("The texts.")
    tokenizer: Word = entry("A folder with tokenizer.json, or pkg://package/folder.")
    most: TokenCount = entry("Texts are cut here.", default=512)
    name: Word | None = entry("The new column.", default=None, shown="COLUMN_tokens")


class StepEntry(StrictModel):
    """One step: exactly one of these keys."""

    join: JoinEntry | None = entry("Columns of another source.", default=None)
    window: WindowEntry | None = entry("A figure over the rows before.", default=None)
    encode: EncodeEntry | None = entry("Categories as numbers.", default=None)
    tokens: TokensEntry | None = entry("Texts as token numbers.", default=None)
    keep: Columns | None = entry("These columns alone.", default=None)
    drop: Columns | None = entry("Without these columns.", default=None)


class TargetEntry(StrictModel):
    """Exactly one of `file`, `delta`."""

    file: Word | None = entry("A .parquet or .csv file (of Spark a folder of parts).", default=None)
    delta: Word | None = entry("The folder of a Delta table, of which the result is a new version.", default=None)
    partition_by: Columns = entry("Of the Delta table: columns with a folder for each value.", default=())


class StreamEntry(StrictModel):
    """`stream`: how `--stream` reads the folder of `from`."""

    checkpoint: Word = entry("A folder that keeps which files are done; of this preparation alone.")
    every: Duration | None = entry(
        "From one micro-batch to the next, until interrupted.", default=None, shown="what is there now, then the end"
    )
    files_at_once: Count = entry("Files of a micro-batch at most.", default=100)
    fitted: Word | None = entry("The JSON answer of a batch, whose categories are used.", default=None)


class PrepareEntry(StrictModel):
    """The section `prepare:`."""

    name: Name = entry("How it is called in the report.")
    sources: dict[Name, TableSourceEntry] = entry("Name -> table.")
    base: Name = entry("The source whose rows are prepared.", alias="from")
    steps: Annotated[tuple[StepEntry, ...], BeforeValidator(_as_list), Spelled("list")] = entry(
        "What is done, in order.", default=()
    )
    to: TargetEntry = entry("Where the result goes.")
    stream: StreamEntry | None = entry("For `--stream`.", default=None)


class PrepareFileEntry(StrictModel):
    """The file."""

    prepare: PrepareEntry = entry("The preparation.")
