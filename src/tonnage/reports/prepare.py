"""What a preparation came to (`tonnage/prepare@1`): rows in and out, columns, categories as they were used."""

from __future__ import annotations

from typing import Any, Final

from tonnage.preparing.carrying import PreparedTables
from tonnage.preparing.spec import Preparation
from tonnage.reports.blocks import Block, Page, Pairs
from tonnage.reports.plain import plain_number
from tonnage.reports.rendering import Report
from tonnage.values import dataclass

PREPARE_SCHEMA: Final = "tonnage/prepare@1"


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparationDone:
    """A preparation, the engine that did it, and its seconds, those of the engine's start apart.

    `batches`: the micro-batches of this run of a stream; None: no stream.
    """

    asked: Preparation
    engine: str
    made: PreparedTables
    batches: int | None = None
    start_s: float
    work_s: float


def prepare_report(done: PreparationDone) -> Report:
    """One row a source."""
    return Report(
        page=lambda: _page(done),
        document=lambda: _document(done),
        columns=("source", "format", "rows"),
        rows=lambda: [[name, one.format, done.made.rows_in.get(name)] for name, one in done.asked.sources.items()],
    )


def _page(done: PreparationDone) -> Page:
    made, target, sources = done.made, done.asked.target, done.asked.sources
    version = "" if made.version is None else f", version {made.version}"
    written = f"{made.rows_out:,} rows of {len(made.columns)} columns, {target.location}{version}"
    if done.batches == 0:
        written = f"nothing: no file has arrived since the last micro-batch; {target.location}"
    blocks: list[Block] = [
        Pairs(
            rows=(
                *((name, f"{_rows(made.rows_in.get(name))}, {one.location}") for name, one in sources.items()),
                ("written", written),
                *((("micro-batches", f"{done.batches:,} in this run"),) if done.batches is not None else ()),
                *((("columns", ", ".join(made.columns)),) if made.columns else ()),
                *((f"{name} is one of", ", ".join(found)) for name, found in made.categories.items() if found),
                ("engine", f"{done.engine}, {done.work_s:.1f} s (start {done.start_s:.1f} s)"),
            )
        )
    ]
    return Page(title=f"Prepared {done.asked.name}", blocks=tuple(blocks))


def _rows(count: int | None) -> str:
    return "not read" if count is None else f"{count:,} rows"


def _document(done: PreparationDone) -> dict[str, Any]:
    made = done.made
    return {
        "schema": PREPARE_SCHEMA,
        "name": done.asked.name,
        "engine": done.engine,
        "sources": {
            name: {"location": one.location, "format": one.format, "rows": made.rows_in.get(name)}
            for name, one in done.asked.sources.items()
        },
        "to": {"location": done.asked.target.location, "format": done.asked.target.format, "version": made.version},
        "rows": made.rows_out,
        **({"batches": done.batches} if done.batches is not None else {}),
        "columns": list(made.columns),
        "categories": {name: list(found) for name, found in made.categories.items()},
        "start_s": plain_number(done.start_s),
        "work_s": plain_number(done.work_s),
    }
