"""Tables whose columns are the things compared (`| | T4 | V100 |`), turned so that a row is one thing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tonnage.claims.document import DocumentTable
from tonnage.claims.names import Names

FEWEST_COLUMNS = 2  # so many headers must name a GPU or a machine before a table counts as turned


def upright_tables(table: DocumentTable, names: Names) -> Iterator[DocumentTable]:
    """The table itself; or, turned, one table of one row for each of its cells, which keeps the cell's line."""
    heads = {column: _kind(cell, names) for column, cell in enumerate(table.header) if column}
    named = {column: kind for column, kind in heads.items() if kind}
    if len(named) < FEWEST_COLUMNS:
        yield table
        return
    for row in table.rows:
        for column, kind in named.items():
            if column < len(row.cells):
                cells = (table.header[column], row.cells[column])
                yield replace(table, header=(kind, row.cells[0]), rows=(replace(row, cells=cells),))


def _kind(cell: str, names: Names) -> str:
    """What a header cell names alone: a machine, a GPU, or nothing."""
    machine = names.machine(cell)
    if machine is not None and machine.kind != "unknown":
        return "instance"
    found = names.gpus_in(cell)
    covered = len(found) == 1 and found[0].end - found[0].start >= len(cell.strip()) - 2
    return "gpu" if covered and found[0].count is None else ""
