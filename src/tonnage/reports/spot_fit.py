"""`tonnage spot fit` as a report: lifetimes by zone and accelerator, and how well fits predict what was left out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from itertools import zip_longest
from typing import Any, Final

from tonnage.reports.blocks import Block, Column, Heading, Page, Pairs, Paragraph, Table
from tonnage.reports.plain import plain_number
from tonnage.reports.rendering import Report
from tonnage.reports.wording import UNKNOWN, render_price, short
from tonnage.spot_instances.fitting import RunStatistics, SpotFit, Weibull
from tonnage.spot_instances.hazards import AGES_H
from tonnage.spot_instances.model_file import model_document

SCHEMA: Final = "tonnage/spot-fit@1"
AGE_NAMES: Final = tuple(
    f"{begin:g}-{end:g} h" if end is not None else f"over {begin:g} h" for begin, end in zip_longest(AGES_H, AGES_H[1:])
)


def fit_report(found: SpotFit, file: str | None) -> Report:
    """The report in its three contents; `file` is where the model went."""
    lines = [*((line, "zone") for line in found.zones), *((line, "accelerator") for line in found.groups)]
    keys = list(_flat(found.zones[0]))
    return Report(
        page=lambda: Page(title="Spot lifetimes", blocks=tuple(_blocks(found, file))),
        document=lambda: _document(found, file),
        columns=["scope", *keys],
        rows=lambda: [[scope, *_flat(line).values()] for line, scope in lines],
    )


def _document(found: SpotFit, file: str | None) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "file": file,
        "model": model_document(found.model),
        "zones": [_nested(line) for line in found.zones],
        "accelerators": [_nested(line) for line in found.groups],
        "left_out": [
            {key: plain_number(value) if isinstance(value, float) else value for key, value in asdict(line).items()}
            for line in found.left_out
        ],
    }


def _common(line: RunStatistics) -> dict[str, Any]:
    return {
        "name": line.name,
        "accelerator": line.accelerator,
        "nodes": line.nodes,
        "zones": line.zones,
        "hours": plain_number(line.hours),
        "availability": plain_number(line.availability),
        "up_runs": line.up_runs,
        "preemptions": line.preemptions,
        "preemptions_per_up_h": plain_number(line.preemptions_per_up_h),
    }


def _weibull(fitted: Weibull | None) -> dict[str, Any] | None:
    if fitted is None:
        return None
    return {
        "shape": plain_number(fitted.shape),
        "scale_h": plain_number(fitted.scale_h),
        "mean_h": plain_number(fitted.mean_h),
    }


def _nested(line: RunStatistics) -> dict[str, Any]:
    prices = None
    if line.prices is not None:
        prices = {
            "mean_usd_per_h": plain_number(line.prices.mean),
            "low_usd_per_h": plain_number(line.prices.low),
            "high_usd_per_h": plain_number(line.prices.high),
            "changes": line.prices.changes,
        }
    return _common(line) | {
        "up_weibull": _weibull(line.up_weibull),
        "down_weibull": _weibull(line.down_weibull),
        "hazard_per_h": [plain_number(value) for value in line.hazard_per_h],
        "prices": prices,
    }


def _flat(line: RunStatistics) -> dict[str, Any]:
    hazards = {
        f"hazard_per_h_from_{age:g}h": plain_number(value) for age, value in zip(AGES_H, line.hazard_per_h, strict=True)
    }
    return (
        _common(line)
        | {
            "up_shape": None if line.up_weibull is None else plain_number(line.up_weibull.shape),
            "up_scale_h": None if line.up_weibull is None else plain_number(line.up_weibull.scale_h),
            "down_shape": None if line.down_weibull is None else plain_number(line.down_weibull.shape),
            "down_scale_h": None if line.down_weibull is None else plain_number(line.down_weibull.scale_h),
        }
        | hazards
        | {"mean_usd_per_h": None if line.prices is None else plain_number(line.prices.mean)}
    )


def _blocks(found: SpotFit, file: str | None) -> Iterator[Block]:
    if file is not None:
        yield Pairs(rows=(("model written to", file),))
    yield Heading(text="By zone")
    yield _lifetimes(found.zones)
    yield Heading(text="By accelerator and nodes")
    yield _lifetimes(found.groups)
    yield Heading(text="Preemptions an hour by age of the run")
    yield _hazards(found)
    priced = [line for line in found.zones if line.prices is not None]
    if priced:
        yield Heading(text="Spot prices, an hour")
        yield _prices(priced)
    if found.left_out:
        yield Heading(text="Log-likelihood a preemption of a family left out, under fits on the others")
        yield _left_out(found)
    yield Paragraph(
        text="Weibull shape under 1: the older the run, the safer. Runs whose start was not seen are left out, those "
        "cut by the end count as far as they were seen.",
        tone="faint",
    )


def _lifetimes(lines: tuple[RunStatistics, ...]) -> Table:
    columns = (
        Column(title="", wraps=True),
        Column(title="spot up %", align="right"),
        Column(title="preemptions", align="right"),
        Column(title="per h up", align="right"),
        Column(title="shape up", align="right"),
        Column(title="mean h up", align="right", folds=2, fold_text="mean {} h up"),
        Column(title="shape down", align="right", folds=3, fold_text="shape down {}"),
        Column(title="mean h down", align="right", folds=1, fold_text="mean {} h down"),
    )
    return Table(columns=columns, rows=tuple(_lifetime_cells(line) for line in lines))


def _lifetime_cells(line: RunStatistics) -> tuple[str, ...]:
    up, down = line.up_weibull, line.down_weibull
    return (
        line.name,
        f"{100 * line.availability:.1f}",
        f"{line.preemptions:,}",
        short(line.preemptions_per_up_h),
        *(UNKNOWN if one is None else short(value) for one, value in _shape_and_mean(up)),
        *(UNKNOWN if one is None else short(value) for one, value in _shape_and_mean(down)),
    )


def _shape_and_mean(fitted: Weibull | None) -> list[tuple[Weibull | None, float]]:
    if fitted is None:
        return [(None, 0.0), (None, 0.0)]
    return [(fitted, fitted.shape), (fitted, fitted.mean_h)]


def _hazards(found: SpotFit) -> Table:
    columns = (Column(title="", wraps=True), *(Column(title=name, align="right") for name in AGE_NAMES))
    typical = tuple(short(value) for value in found.model.up.per_h)
    rows = [("model, before a zone's factor", *typical)]
    rows += [
        (line.name, *(UNKNOWN if value is None else short(value) for value in line.hazard_per_h))
        for line in found.groups
    ]
    return Table(columns=columns, rows=tuple(rows))


def _prices(lines: list[RunStatistics]) -> Table:
    columns = (
        Column(title="", wraps=True),
        *(Column(title=title, align="right") for title in ("mean", "low", "high", "changes")),
    )
    return Table(
        columns=columns,
        rows=tuple(
            (
                line.name,
                render_price(line.prices.mean),
                render_price(line.prices.low),
                render_price(line.prices.high),
                f"{line.prices.changes:,}",
            )
            for line in lines
            if line.prices is not None
        ),
    )


def _left_out(found: SpotFit) -> Table:
    titles = ("preemptions", "exponential", "Weibull", "by age", "by age, zone's factor unknown")
    return Table(
        columns=(Column(title="family left out", wraps=True), *(Column(title=t, align="right") for t in titles)),
        rows=tuple(
            (
                line.family,
                f"{line.preemptions:,}",
                *(f"{value:.3f}" for value in (line.exponential, line.weibull, line.buckets, line.zone_factors)),
            )
            for line in found.left_out
        ),
    )
