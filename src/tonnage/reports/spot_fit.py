"""`tonnage spot fit` as a report: lifetimes by zone and accelerator, and how well fits predict what was left out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import zip_longest
from typing import Any, Final, Literal

from tonnage.reports.blocks import Block, Column, Heading, Page, Pairs, Paragraph, Table
from tonnage.reports.listing import (
    Field,
    Fields,
    cell,
    field_table,
    field_values,
    fields_report,
    named_fields,
    part_fields,
)
from tonnage.reports.plain import plain_number
from tonnage.reports.rendering import Report
from tonnage.reports.wording import UNKNOWN, render_price, short
from tonnage.spot_instances.fitting import LeftOutFamily, Prices, RunStatistics, SpotFit, Weibull
from tonnage.spot_instances.hazards import AGES_H
from tonnage.spot_instances.model_file import model_document

SCHEMA: Final = "tonnage/spot-fit@1"
AGE_NAMES: Final = tuple(
    f"{begin:g}-{end:g} h" if end is not None else f"over {begin:g} h" for begin, end in zip_longest(AGES_H, AGES_H[1:])
)


def fit_report(found: SpotFit, file: str | None) -> Report:
    """The report in its three contents; `file` is where the model went."""
    lines = [*(("zone", line) for line in found.zones), *(("accelerator", line) for line in found.groups)]
    return fields_report(
        lambda: Page(title="Spot lifetimes", blocks=tuple(_blocks(found, file))),
        lambda: _document(found, file),
        (Field("scope", lambda row: row[0]), *part_fields("", lambda row: row[1], _FLAT)),
        lines,
    )


def _document(found: SpotFit, file: str | None) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "file": file,
        "model": model_document(found.model),
        "zones": [field_values(_NESTED, line) for line in found.zones],
        "accelerators": [field_values(_NESTED, line) for line in found.groups],
        "left_out": [field_values(_LEFT_OUT, line) for line in found.left_out],
    }


def _blocks(found: SpotFit, file: str | None) -> Iterator[Block]:
    if file is not None:
        yield Pairs(rows=(("model written to", file),))
    yield Heading(text="By zone")
    yield field_table(_LIFETIME, found.zones)
    yield Heading(text="By accelerator and nodes")
    yield field_table(_LIFETIME, found.groups)
    yield Heading(text="Preemptions an hour by age of the run")
    yield _hazards(found)
    priced = [(line.name, line.prices) for line in found.zones if line.prices is not None]
    if priced:
        yield Heading(text="Spot prices, an hour")
        yield field_table(_PRICED, priced)
    if found.left_out:
        yield Heading(text="Log-likelihood a preemption of a family left out, under fits on the others")
        yield field_table(_LEFT_OUT, found.left_out)
    yield Paragraph(
        text="Weibull shape under 1: the older the run, the safer. Runs whose start was not seen are left out, those "
        "cut by the end count as far as they were seen.",
        tone="faint",
    )


def _hazards(found: SpotFit) -> Table:
    columns = (Column(title="", wraps=True), *(Column(title=name, align="right") for name in AGE_NAMES))
    typical = tuple(short(value) for value in found.model.up.per_h)
    rows = [("model, before a zone's factor", *typical)]
    rows += [
        (line.name, *(UNKNOWN if value is None else short(value) for value in line.hazard_per_h))
        for line in found.groups
    ]
    return Table(columns=columns, rows=tuple(rows))


def _short(fitted: Weibull | None, name: Literal["shape", "mean_h"]) -> str:
    return UNKNOWN if fitted is None else short(getattr(fitted, name))


def _hazard(place: int) -> Callable[[RunStatistics], float | None]:
    return lambda line: line.hazard_per_h[place]


_WEIBULL: Final[Fields[Weibull]] = named_fields("shape", "scale_h", "mean_h")
_PRICES: Final[Fields[Prices]] = (
    Field("mean_usd_per_h", lambda one: one.mean),
    Field("low_usd_per_h", lambda one: one.low),
    Field("high_usd_per_h", lambda one: one.high),
    Field("changes", lambda one: one.changes),
)
_COMMON: Final[Fields[RunStatistics]] = named_fields(
    "name", "accelerator", "nodes", "zones", "hours", "availability", "up_runs", "preemptions", "preemptions_per_up_h",
)  # fmt: skip
_NESTED: Final[Fields[RunStatistics]] = (
    *_COMMON,
    Field("up_weibull", lambda line: line.up_weibull, json=lambda one: field_values(_WEIBULL, one)),
    Field("down_weibull", lambda line: line.down_weibull, json=lambda one: field_values(_WEIBULL, one)),
    Field("hazard_per_h", lambda line: [plain_number(value) for value in line.hazard_per_h]),
    Field("prices", lambda line: line.prices, json=lambda one: field_values(_PRICES, one)),
)
_FLAT: Final[Fields[RunStatistics]] = (
    *_COMMON,
    *part_fields("up_", lambda line: line.up_weibull, _WEIBULL[:2]),
    *part_fields("down_", lambda line: line.down_weibull, _WEIBULL[:2]),
    *(Field(f"hazard_per_h_from_{age:g}h", _hazard(place)) for place, age in enumerate(AGES_H)),
    *part_fields("", lambda line: line.prices, _PRICES[:1]),
)
_LIFETIME: Final[Fields[RunStatistics]] = (
    cell("", lambda line: line.name, wraps=True),
    cell("spot up %", lambda line: f"{100 * line.availability:.1f}", right=True),
    cell("preemptions", lambda line: f"{line.preemptions:,}", right=True),
    cell("per h up", lambda line: short(line.preemptions_per_up_h), right=True),
    cell("shape up", lambda line: _short(line.up_weibull, "shape"), right=True),
    cell("mean h up", lambda line: _short(line.up_weibull, "mean_h"), right=True, folds=2,
         fold_text="mean {} h up"),
    cell("shape down", lambda line: _short(line.down_weibull, "shape"), right=True, folds=3,
         fold_text="shape down {}"),
    cell("mean h down", lambda line: _short(line.down_weibull, "mean_h"), right=True, folds=1,
         fold_text="mean {} h down"),
)  # fmt: skip
_PRICED: Final[Fields[tuple[str, Prices]]] = (
    cell("", lambda row: row[0], wraps=True),
    cell("mean", lambda row: render_price(row[1].mean), right=True),
    cell("low", lambda row: render_price(row[1].low), right=True),
    cell("high", lambda row: render_price(row[1].high), right=True),
    cell("changes", lambda row: f"{row[1].changes:,}", right=True),
)
_LEFT_OUT: Final[Fields[LeftOutFamily]] = (
    Field("family", lambda line: line.family, title="family left out", wraps=True),
    Field("preemptions", lambda line: line.preemptions, title="preemptions", show="{:,}".format, right=True),
    Field("exponential", lambda line: line.exponential, title="exponential", show="{:.3f}".format, right=True),
    Field("weibull", lambda line: line.weibull, title="Weibull", show="{:.3f}".format, right=True),
    Field("buckets", lambda line: line.buckets, title="by age", show="{:.3f}".format, right=True),
    Field("zone_factors", lambda line: line.zone_factors, title="by age, zone's factor unknown", show="{:.3f}".format,
          right=True),
)  # fmt: skip
