"""Vector operations by device: predicted beside measured, and beside the processor (`tonnage/vector-bench@1`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import exp, log
from statistics import median
from types import MappingProxyType
from typing import Any, Final

from tonnage.reports.blocks import Block, Bullets, Page, Paragraph
from tonnage.reports.listing import Field, Fields, cell, field_table, field_values, fields_report, figure_fields
from tonnage.reports.plain import plain_number
from tonnage.reports.rendering import Report
from tonnage.reports.wording import UNKNOWN, plural, render_scaled, short
from tonnage.side_by_side.vectors import VectorResult, VectorsCompared
from tonnage.sizing.estimates import Figure
from tonnage.sizing.vector_work import Origin

VECTOR_BENCH_SCHEMA: Final = "tonnage/vector-bench@1"
ORIGINS: Final[Mapping[Origin, str]] = MappingProxyType({
    "profile": "predicted by device profile",
    "units": "predicted by vector units and clock, its memory by judgement: `tonnage calibrate --local` measures it",
    "data sheet": "predicted by the data sheet of the catalog", "unknown": "no figure is known to predict from",
})  # fmt: skip
TIME_UNITS: Final = ((1.0, "s"), (1e3, "ms"), (1e6, "us"))
BUSY_FRACTION: Final = 0.15  # of the cores, taken by others, from which on the page warns


def vector_bench_report(found: VectorsCompared) -> Report:
    """One row a device, operation and size; below, what each prediction comes from and what of promises holds."""
    return fields_report(lambda: _page(found), lambda: _document(found), _row(found), found.rows)


def _page(found: VectorsCompared) -> Page:
    blocks: list[Block] = []
    for device in dict.fromkeys(one.device for one in found.rows):
        rows = [one for one in found.rows if one.device == device]
        blocks += [Paragraph(text=f"{device} ({_origin(found, device)})"), field_table(_cells(rows), rows)]
    lines = list(_lines(found))
    if lines:
        blocks.append(Bullets(items=tuple(lines)))
    text = (
        "Seconds of one call, operands from memory; predicted with the 80 % interval that all rates give together, "
        "measured as the median over repeats."
    )
    if any(one.predicted_times or one.measured_times for one in found.rows):
        text += " «times» is beside the processor at the same work."
    blocks.append(Paragraph(text=text, tone="faint"))
    return Page(title="Vector operations", blocks=tuple(blocks))


def _origin(found: VectorsCompared, device: str) -> str:
    origin, name = found.origins[device]
    return f"{ORIGINS[origin]} {name}" if name else ORIGINS[origin]


def _lines(found: VectorsCompared) -> Iterator[str]:
    for device in dict.fromkeys(one.device for one in found.rows):
        rows = [one for one in found.rows if one.device == device]
        ratios = [one.ratio for one in rows if one.ratio is not None]
        if ratios:
            off = median(abs(log(ratio)) for ratio in ratios)
            inside = sum(bool(one.inside) for one in rows)
            yield (f"{device}: {inside} of {len(ratios)} measured times lie within their interval; the middle row is "
                   f"off by a factor of {exp(off):.2f}")  # fmt: skip
        yield from _promise(device, rows)
    if found.others_cpu_fraction is not None and found.others_cpu_fraction > BUSY_FRACTION:
        yield f"other programs took {found.others_cpu_fraction:.0%} of the processor meanwhile: its times are too long"


def _promise(device: str, rows: list[VectorResult]) -> Iterator[str]:
    """Of how many operations the promised multiple is reached, as measured where it was and as predicted elsewhere."""
    promised = rows[0].promised_times
    known = [(one, one.measured_times or one.predicted_times) for one in rows]
    times = [(one, figure) for one, figure in known if figure is not None]
    if promised is None or not times:
        return
    reached = [one for one, figure in times if figure.value >= promised]
    how = "measured" if any(one.measured_times is not None for one in rows) else "predicted"
    least, most = (pick(times, key=lambda one: one[1].value) for pick in (min, max))
    yield (
        f"{device}: «{promised:g}x a processor» is reached by {len(reached)} of {plural(len(times), 'operation')} as "
        f"{how}: {least[1].value:.3g}x ({_work(least[0])}) to {most[1].value:.3g}x ({_work(most[0])})"
    )


def _work(one: VectorResult) -> str:
    return f"{one.work.name} {one.work.precision} of {one.work.size:,}"


def _cells(rows: list[VectorResult]) -> Fields[VectorResult]:
    cells: list[Field[VectorResult]] = [
        cell("operation", lambda one: one.work.name), cell("format", lambda one: one.work.precision),
        cell("size", lambda one: f"{one.work.size:,}", right=True),
        cell("predicted (80 %)", lambda one: _interval(one.predicted_s), right=True),
    ]  # fmt: skip
    if any(one.measured_s is not None for one in rows):
        cells += [
            cell("measured", _measured, right=True),
            cell("ratio", lambda one: UNKNOWN if one.ratio is None else f"{one.ratio:.2f}", right=True),
            cell("rate", _rate, right=True),
        ]  # fmt: skip
    if any(one.predicted_times is not None for one in rows):
        cells.append(cell("times, predicted", lambda one: _times(one.predicted_times), right=True))
    if any(one.measured_times is not None for one in rows):
        cells.append(cell("times, measured", lambda one: _times(one.measured_times), right=True))
    return tuple(cells)


def _measured(one: VectorResult) -> str:
    return UNKNOWN if one.measured_s is None else _time(one.measured_s.value)


def _rate(one: VectorResult) -> str:
    """What the operation is bound by: FLOP/s of products, bytes a second of the others."""
    value, unit = (one.flop_per_s, "FLOP/s") if one.work.name == "gemm" else (one.bytes_per_s, "B/s")
    return UNKNOWN if value is None else render_scaled(value, unit)


def _interval(figure: Figure | None) -> str:
    if figure is None:
        return UNKNOWN
    return f"{_time(figure.value)} ({_time(figure.low)}–{_time(figure.high)})"


def _time(seconds: float) -> str:
    factor, unit = next((one for one in TIME_UNITS if seconds * one[0] >= 1), TIME_UNITS[-1])
    return f"{short(seconds * factor)} {unit}"


def _times(figure: Figure | None) -> str:
    return UNKNOWN if figure is None else f"{figure.value:.3g}x ({figure.low:.3g}–{figure.high:.3g})"


def _row(found: VectorsCompared) -> Fields[VectorResult]:
    return (
        Field("device", lambda one: one.device),
        Field("kind", lambda one: one.kind),
        Field("operation", lambda one: one.work.name),
        Field("precision", lambda one: one.work.precision),
        Field("size", lambda one: one.work.size),
        Field("threads", lambda one: found.threads if one.kind == "cpu" else None),
        Field("bytes", lambda one: one.work.counted_bytes),
        Field("flop", lambda one: one.work.flop),
        *figure_fields("predicted_s{}", lambda one: one.predicted_s),
        *figure_fields("measured_s{}", lambda one: one.measured_s),
        Field("ratio", lambda one: one.ratio, json=plain_number),
        Field("repeats", lambda one: one.repeats or None),
        Field("disturbed", lambda one: one.disturbed if one.repeats else None),
        *figure_fields("predicted_times{}", lambda one: one.predicted_times),
        *figure_fields("measured_times{}", lambda one: one.measured_times),
        Field("promised_times", lambda one: one.promised_times, json=plain_number),
        Field("torch", lambda _: found.torch_version),
        Field("others_cpu_fraction", lambda _: found.others_cpu_fraction, json=plain_number),
        Field("measured_on", lambda _: found.measured_on if found.torch_version else None),
    )


def _document(found: VectorsCompared) -> dict[str, Any]:
    fields = _row(found)
    return {
        "schema": VECTOR_BENCH_SCHEMA,
        "devices": [
            {"name": device, "prediction": origin, "profile": name} for device, (origin, name) in found.origins.items()
        ],
        "rows": [field_values(fields, one) for one in found.rows],
    }
