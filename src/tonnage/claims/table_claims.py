"""The claims of tables: machines with their figures and prices, GPUs with theirs, models with sizes and memory."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from math import prod
from typing import Final

from tonnage.catalog import Purchase
from tonnage.claims.document import DocumentTable, TableRow
from tonnage.claims.figures import Amount, is_blank, parse_alternatives, parse_amount
from tonnage.claims.headers import Header, read_headers
from tonnage.claims.model_names import find_models
from tonnage.claims.names import FoundGpu, MachineName, Names, provider_named
from tonnage.claims.statements import (
    ArithmeticClaim,
    Claim,
    GpuClaim,
    GpuPriceClaim,
    InstanceClaim,
    MemoryNeedClaim,
    ModelSizeClaim,
    Place,
    PriceClaim,
    purpose_of,
)
from tonnage.values import dataclass

GPU_QUANTITIES: Final[Mapping[str, str]] = {
    "gpu_memory": "memory_gib",
    "memory": "memory_gib",
    "bandwidth": "memory_bandwidth_gb_per_s",
    "cuda_cores": "cuda_cores",
    "tensor_cores": "tensor_cores",
    "tdp": "tdp_w",
}
_HOURLY_CELL: Final = re.compile(r"/\s?h(?:r|our)?\b|\bper\s+h(?:ou)?r\b", re.IGNORECASE)
_EACH: Final = re.compile(r"\beach\b|(?:\bper\s+|/\s?)(?:gpu|card|device)\b", re.IGNORECASE)
_UNIT_OF_HEADER: Final = re.compile(r"\b([TGM]i?B(?:/s)?|[TGM]bps|[TGM]bit/s)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class _ClaimRow:
    """A row with its cells by meaning (the first column of each)."""

    place: Place
    headers: tuple[Header, ...]
    cells: tuple[str, ...]

    def cell(self, meaning: str) -> str:
        found = (cell for header, cell in zip(self.headers, self.cells, strict=False) if header.meaning == meaning)
        text = next(found, "")
        return "" if is_blank(text) else text

    def amount(self, meaning: str) -> Amount | None:
        """The amount of a cell, with the unit of the header where the cell has none."""
        found = self.amounts(meaning)
        return found[0] if found else None

    def amounts(self, meaning: str) -> tuple[Amount, ...]:
        cell = self.cell(meaning)
        header = next((one for one in self.headers if one.meaning == meaning), None)
        unit = _UNIT_OF_HEADER.search(header.text) if header else None
        if cell and unit and not _UNIT_OF_HEADER.search(cell):
            cell = f"{cell} {unit[1]}"
        return parse_alternatives(cell) if cell else ()


def table_claims(table: DocumentTable, names: Names) -> Iterator[Claim]:
    """Every claim of one table; a table of none of the three kinds has none."""
    for part in upright_tables(table, names):
        yield from _upright_claims(part, names)


def _upright_claims(table: DocumentTable, names: Names) -> Iterator[Claim]:
    headers = _with_machine_column(read_headers(table.header), table, names)
    meanings = {header.meaning for header in headers}
    provider = provider_named(*table.headings)
    for line in table.rows:
        row = _ClaimRow(_place(line, table), headers, line.cells)
        machine = _machine(row, names, provider) if "machine" in meanings else None
        if machine is not None:
            yield from _machine_claims(row, machine, names)
        elif "gpu" in meanings:
            yield from _gpu_claims(row, names)
        if meanings & {"models"}:
            yield from _model_claims(row)


def _with_machine_column(headers: tuple[Header, ...], table: DocumentTable, names: Names) -> tuple[Header, ...]:
    """A column of bare numbers (`Nodes`) counts machines. A first column of machines' names is one, whatever its
    header says, where no other header tells a kind."""
    headers = tuple(
        replace(header, meaning="count") if header.meaning == "machine" and _is_count(table, column) else header
        for column, header in enumerate(headers)
    )
    if not headers or {"machine", "gpu", "models"} & {header.meaning for header in headers}:
        return headers
    cells = [row.cells[0] for row in table.rows if row.cells]
    named = [name for cell in cells if (name := names.machine(cell)) and name.kind in ("machine", "mistaken")]
    return (replace(headers[0], meaning="machine"), *headers[1:]) if named else headers


def _is_count(table: DocumentTable, column: int) -> bool:
    cells = [row.cells[column] for row in table.rows if column < len(row.cells)]
    return bool(cells) and all(re.fullmatch(r"\s*\d{1,5}\s*[x×]?\s*", cell) for cell in cells)


def _place(row: TableRow, table: DocumentTable) -> Place:
    return Place(line=row.number, text=row.text, headings=(*table.headings, *table.header))


def _gpu_of(row: _ClaimRow, names: Names) -> tuple[FoundGpu | None, float | None]:
    """The GPU of the row and how many, from its own column or from the number beside the name."""
    found = names.gpus_in(row.cell("gpu"))
    gpu = found[0] if len(found) == 1 else None
    counted = row.amount("gpus")
    if counted is None:
        return gpu, gpu.count if gpu else None
    if gpu is None:
        beside = names.gpus_in(row.cell("gpus"))
        gpu = beside[0] if len(beside) == 1 else None
    return gpu, _count(row.cell("gpus"), counted)


def _count(cell: str, amount: Amount) -> float:
    """A count; `1/6` is a fraction."""
    share = re.fullmatch(r"\s*(\d+)\s*/\s*(\d+)\s*", cell)
    return int(share[1]) / int(share[2]) if share and int(share[2]) else amount.low


def _machine(row: _ClaimRow, names: Names, provider: str | None) -> MachineName | None:
    text = row.cell("machine")
    gpu, count = _gpu_of(row, names)
    found = names.machine(text, provider=provider, gpu=gpu.name if gpu else None, gpus=count)
    if found is None:
        inside = names.machines_in(text, provider=provider)
        found = inside[0].name if len(inside) == 1 else None
    return found


def _machine_claims(row: _ClaimRow, machine: MachineName, names: Names) -> Iterator[Claim]:
    gpu, count = _gpu_of(row, names)
    each = _EACH.search(row.cell("gpu_memory")) is not None
    yield InstanceClaim(
        place=row.place,
        machine=machine,
        gpu=gpu.name if gpu else None,
        gpus=count,
        vcpus=row.amount("vcpus"),
        memory=row.amount("memory"),
        gpu_memory=None if each else row.amount("gpu_memory"),
        gpu_memory_each=row.amount("gpu_memory") if each else None,
        network=row.amount("network"),
    )
    yield from row_sums(row.place, row.headers, row.cells)
    machines = row.amount("count")
    used_in_part = bool({"count", "hours"} & {header.meaning for header in row.headers})
    for header, cell in zip(row.headers, row.cells, strict=False):
        amount = parse_amount(cell)
        if header.meaning != "price" or amount is None or (header.is_bare and not amount.is_price):
            continue
        hourly = header.is_hourly or _HOURLY_CELL.search(cell) is not None
        if not (hourly or header.is_monthly) or (used_in_part and not hourly):
            continue
        yield PriceClaim(
            place=row.place, machine=machine, amount=amount, purchase=purchase_of(f"{header.text} {cell}"),
            is_per_gpu=header.is_per_gpu,
            count=machines.low if machines else 1.0,
            is_monthly=not hourly, claimed=cell, gpu=gpu.name if gpu else None, gpus=count,
        )  # fmt: skip


def purchase_of(text: str) -> Purchase:
    """How a price is bought, by the words beside it; on demand unless they say otherwise."""
    lowered = text.casefold()
    if re.search(r"\bspot\b|\bpreemptible\b", lowered):
        return "spot"
    if re.search(r"\breserv(?:e|ed|es|ation)\b|\bcommit|\bsavings plan", lowered):
        return "reserved_3y" if re.search(r"\b3[\s-]*y", lowered) else "reserved_1y"
    return "on_demand"


def _gpu_claims(row: _ClaimRow, names: Names) -> Iterator[Claim]:
    found = names.gpus_in(row.cell("gpu"))
    if len(found) != 1:
        return
    gpu = found[0].name
    for meaning, quantity in GPU_QUANTITIES.items():
        amounts = row.amounts(meaning)
        if amounts and (found[0].count or 1) == 1:
            yield GpuClaim(place=row.place, gpu=gpu, quantity=quantity, amounts=amounts, claimed=row.cell(meaning))
    for header, cell in zip(row.headers, row.cells, strict=False):
        amount = parse_amount(cell)
        hourly = header.is_hourly or _HOURLY_CELL.search(cell) is not None
        on_demand = purchase_of(f"{header.text} {cell}") == "on_demand"
        if header.meaning == "price" and amount and hourly and on_demand and (found[0].count or 1) == 1:
            yield GpuPriceClaim(place=row.place, gpu=gpu, amount=amount, claimed=cell)


def _model_claims(row: _ClaimRow) -> Iterator[Claim]:
    models = tuple(dict.fromkeys(found.name for found in find_models(row.cell("models"))))
    parameters = row.amount("parameters")
    for model in models:
        if parameters is not None and parameters.high >= 1e6 and "param" in _header_text(row, "parameters"):
            yield ModelSizeClaim(place=row.place, model=model, parameters=parameters)
        for header, cell in zip(row.headers, row.cells, strict=False):
            memory = parse_amount(cell)
            if header.meaning in ("memory", "gpu_memory") and header.number_format and memory is not None:
                yield MemoryNeedClaim(
                    place=row.place, model=model, precision=header.number_format,  # type: ignore[arg-type]
                    purpose=purpose_of(" ".join(row.place.headings)), memory=memory,
                )  # fmt: skip


def _header_text(row: _ClaimRow, meaning: str) -> str:
    return next((header.text.casefold() for header in row.headers if header.meaning == meaning), "")


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


def row_sums(place: Place, headers: Sequence[Header], cells: Sequence[str]) -> Iterator[ArithmeticClaim]:
    """The monthly cost of a row that states hours of a month and one price an hour; a count where it has one."""
    found = {name: _only(headers, cells, name) for name in ("count", "hours")}
    rate = _price(headers, cells, monthly=False)
    total = _price(headers, cells, monthly=True)
    hours = found["hours"]
    if rate is None or total is None or hours is None or total.is_range or rate.is_range:
        return
    factors = [amount for amount in (found["count"], hours, rate) if amount is not None]
    text = " × ".join(f"{'$' if amount is rate else ''}{amount.low:g}" for amount in factors)
    yield ArithmeticClaim(
        place=place,
        expression=text,
        value=prod((Decimal(str(amount.low)) for amount in factors), start=Decimal(1)),
        result=total,
        claimed=f"{text} = {total.text}",
    )


def _only(headers: Sequence[Header], cells: Sequence[str], meaning: str) -> Amount | None:
    found = [cell for header, cell in zip(headers, cells, strict=False) if header.meaning == meaning]
    return parse_amount(found[0]) if len(found) == 1 else None


def _price(headers: Sequence[Header], cells: Sequence[str], *, monthly: bool) -> Amount | None:
    found = [
        cell
        for header, cell in zip(headers, cells, strict=False)
        if header.meaning == "price" and (header.is_monthly if monthly else header.is_hourly)
    ]
    return parse_amount(found[0]) if len(found) == 1 else None
