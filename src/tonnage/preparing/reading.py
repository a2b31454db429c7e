"""Preparation file -> `Preparation`: its keys with their meaning, formats by name, what contradicts itself refused with
its line.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import BeforeValidator

from tonnage.comparison.user_files import Name, parse_entries
from tonnage.errors import did_you_mean, nearest
from tonnage.preparing.spec import (
    TEXT_FORMATS,
    Columns,
    ColumnType,
    Drop,
    Encode,
    FileFormat,
    Join,
    Keep,
    Preparation,
    SourceFormat,
    Step,
    StreamTerms,
    TableSource,
    TableTarget,
    TokenColumns,
    Window,
)
from tonnage.runs.locations import absolute
from tonnage.workload.file.fields import CountOrZero, Spelled, StrictModel, Word
from tonnage.workload.file.fields import key as entry
from tonnage.workload.file.problems import Problem, raise_problems
from tonnage.workload.file.text import load_text
from tonnage.workload.file.yaml_lines import KeyPath

PAGE: Final = "docs/prepare.md"
SUFFIXES: Final[dict[str, SourceFormat]] = {
    ".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet", "": "parquet",
}  # fmt: skip
STEPS: Final = ("join", "window", "encode", "tokens", "keep", "drop")


def load_preparation(path: Path) -> Preparation:
    """The preparation of a file. WorkloadError names line and key of all that cannot be used."""
    return read_preparation(load_text(path), file=str(path), folder=path.resolve().parent)


def read_preparation(text: str, *, file: str | None = None, folder: Path | None = None) -> Preparation:
    """The preparation of a text; paths in it start from `folder`. WorkloadError as for a file."""
    entries, document = parse_entries(text, PrepareFileEntry, file=file, page=PAGE)
    asked, place = entries.prepare, folder or Path()
    raise_problems(_problems(asked), document)
    return Preparation(
        name=asked.name, base=asked.base, target=_target(asked.to, place),
        sources={name: _source(name, one, place) for name, one in asked.sources.items()},
        steps=tuple(_step(one, place) for one in asked.steps),
        stream=None if asked.stream is None else asked.stream.model_copy(update={
            "checkpoint": absolute(asked.stream.checkpoint, place),
            "fitted": None if asked.stream.fitted is None else absolute(asked.stream.fitted, place),
        }),
    )  # fmt: skip


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


class StepEntry(StrictModel):
    """One step: exactly one of these keys."""

    join: Join | None = entry("Columns of another source.", default=None)
    window: Window | None = entry("A figure over the rows before.", default=None)
    encode: Encode | None = entry("Categories as numbers.", default=None)
    tokens: TokenColumns | None = entry("Texts as token numbers.", default=None)
    keep: Columns | None = entry("These columns alone.", default=None)
    drop: Columns | None = entry("Without these columns.", default=None)


class TargetEntry(StrictModel):
    """Exactly one of `file`, `delta`."""

    file: Word | None = entry("A .parquet or .csv file (of Spark a folder of parts).", default=None)
    delta: Word | None = entry("The folder of a Delta table, of which the result is a new version.", default=None)
    partition_by: Columns = entry("Of the Delta table: columns with a folder for each value.", default=())


class PrepareEntry(StrictModel):
    """The section `prepare:`."""

    name: Name = entry("How it is called in the report.")
    sources: dict[Name, TableSourceEntry] = entry("Name -> table.")
    base: Name = entry("The source whose rows are prepared.", alias="from")
    steps: Annotated[tuple[StepEntry, ...], BeforeValidator(_as_list), Spelled("list")] = entry(
        "What is done, in order.", default=()
    )
    to: TargetEntry = entry("Where the result goes.")
    stream: StreamTerms | None = entry("For `--stream`.", default=None)


class PrepareFileEntry(StrictModel):
    """The file."""

    prepare: PrepareEntry = entry("The preparation.")


def _problems(asked: PrepareEntry) -> Iterator[Problem]:
    names = list(asked.sources)
    if asked.base not in names:
        yield Problem(("prepare", "from"), f"no source is named '{asked.base}'", _known(asked.base, names))
    for name, source in asked.sources.items():
        yield from _source_problems(("prepare", "sources", name), source)
    for index, step in enumerate(asked.steps):
        yield from _step_problems(("prepare", "steps", index), step, asked)
    to = asked.to
    if (to.file is None) == (to.delta is None):
        yield Problem(("prepare", "to"), "needs one of `file`, `delta`", "file: prepared.parquet")
    if to.file is not None and Path(to.file).suffix not in (".csv", ".parquet"):
        yield Problem(("prepare", "to", "file"), f"'{to.file}' ends in no known format", ".parquet or .csv, or `delta`")
    if to.file is not None and to.partition_by:
        yield Problem(("prepare", "to", "partition_by"), "a file has no partitions", "`delta`, or leave it out")
    if to.file is not None and to.file.endswith(".csv"):
        for index, step in enumerate(asked.steps):
            if step.tokens is not None:
                yield Problem(("prepare", "steps", index, "tokens"), "lists of numbers do not go into CSV",
                              "to: {file: prepared.parquet}")  # fmt: skip


def _known(name: str, names: list[str]) -> str:
    return did_you_mean(nearest(name, names, count=1), f"sources: {', '.join(names)}")


def _source_problems(here: KeyPath, source: TableSourceEntry) -> Iterator[Problem]:
    if (source.file is None) == (source.delta is None):
        yield Problem(here, "needs one of `file`, `delta`", "file: rows.csv")
        return
    if source.version is not None and source.delta is None:
        yield Problem((*here, "version"), "a file has no versions", "leave it out, or read a Delta table")
    if source.format is not None and source.file is None:
        yield Problem((*here, "format"), "a Delta table has its own", "leave it out")
    elif source.file is not None and source.format is None and Path(source.file).suffix not in SUFFIXES:
        yield Problem(
            (*here, "file"), f"'{source.file}' ends in no known format", ".csv, .jsonl or .parquet, or `format`"
        )
    elif _format(source) in TEXT_FORMATS and source.types is None:
        yield Problem(here, "a file of texts needs `types`", "types: {id: integer, amount: number, note: text}")
    if source.types is not None:
        for one in source.key:
            if one not in source.types:
                yield Problem((*here, "key"), f"'{one}' is not among `types`", f"types: {{{one}: integer}}")
    if not source.key:
        yield Problem((*here, "key"), "is empty", "name the columns that tell rows apart")


def _step_problems(here: KeyPath, step: StepEntry, asked: PrepareEntry) -> Iterator[Problem]:
    given = [name for name in STEPS if getattr(step, name) is not None]
    if len(given) != 1:
        yield Problem(here, f"has {' and '.join(given) or 'no step'}", f"one of {', '.join(STEPS)}")
        return
    if step.join is not None:
        other = asked.sources.get(step.join.source)
        if other is None:
            hint = _known(step.join.source, list(asked.sources))
            yield Problem((*here, "join", "source"), f"no source is named '{step.join.source}'", hint)
        elif len(other.key) != len(step.join.on):
            yield Problem((*here, "join", "on"), f"the key of '{step.join.source}' is {', '.join(other.key)}",
                          "as many columns, in its order")  # fmt: skip
    if step.window is not None and not step.window.by:
        yield Problem((*here, "window", "by"), "is empty", "name the columns of a group")


def _format(source: TableSourceEntry) -> SourceFormat:
    if source.delta is not None:
        return "delta"
    return source.format or SUFFIXES[Path(source.file or "").suffix]


def _source(name: str, one: TableSourceEntry, folder: Path) -> TableSource:
    return TableSource(
        name=name, location=absolute(one.file or one.delta or "", folder), format=_format(one), key=one.key,
        types=None if one.types is None else dict(one.types), version=one.version,
    )  # fmt: skip


def _target(one: TargetEntry, folder: Path) -> TableTarget:
    if one.delta is not None:
        return TableTarget(location=absolute(one.delta, folder), format="delta", partition_by=one.partition_by)
    assert one.file is not None
    return TableTarget(location=absolute(one.file, folder), format="csv" if one.file.endswith(".csv") else "parquet")


def _step(one: StepEntry, folder: Path) -> Step:
    """The one that is given, its name and its paths in full."""
    if one.window is not None:
        asked = one.window
        return asked.model_copy(update={"name": asked.name or f"{asked.column}_{asked.function}_{asked.rows}"})
    if one.tokens is not None:
        name, tokenizer = one.tokens.name or f"{one.tokens.column}_tokens", absolute(one.tokens.tokenizer, folder)
        return one.tokens.model_copy(update={"name": name, "tokenizer": tokenizer})
    if one.keep is not None:
        return Keep(columns=one.keep)
    if one.drop is not None:
        return Drop(columns=one.drop)
    step = one.join or one.encode
    assert step is not None
    return step
