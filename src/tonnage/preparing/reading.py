"""Preparation file -> `Preparation`: formats by name, what contradicts itself refused with its line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tonnage.comparison.door import parse_entries
from tonnage.errors import did_you_mean, nearest
from tonnage.preparing.entries import PrepareEntry, PrepareFileEntry, StepEntry, TableSourceEntry, TargetEntry
from tonnage.preparing.spec import (
    TEXT_FORMATS,
    Drop,
    Encode,
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
        stream=None if asked.stream is None else StreamTerms(
            checkpoint=absolute(asked.stream.checkpoint, place), every_s=asked.stream.every,
            files_at_once=asked.stream.files_at_once,
            fitted=None if asked.stream.fitted is None else absolute(asked.stream.fitted, place),
        ),
    )  # fmt: skip


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
    if one.join is not None:
        return Join(source=one.join.source, on=one.join.on, how=one.join.how, keep=one.join.keep)
    if one.window is not None:
        asked = one.window
        return Window(
            column=asked.column, function=asked.function, by=asked.by, order=asked.order, rows=asked.rows,
            current=asked.current, name=asked.name or f"{asked.column}_{asked.function}_{asked.rows}",
        )  # fmt: skip
    if one.encode is not None:
        return Encode(column=one.encode.column, how=one.encode.how, categories=one.encode.categories,
                      most=one.encode.most)  # fmt: skip
    if one.tokens is not None:
        return TokenColumns(column=one.tokens.column, tokenizer=absolute(one.tokens.tokenizer, folder),
                            most=one.tokens.most, name=one.tokens.name or f"{one.tokens.column}_tokens")  # fmt: skip
    if one.keep is not None:
        return Keep(columns=one.keep)
    assert one.drop is not None
    return Drop(columns=one.drop)
