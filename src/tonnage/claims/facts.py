"""Figures that only the check of documents needs: data-sheet counts, earlier prices, models without a shape."""

from __future__ import annotations

from datetime import date
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

from tonnage.catalog.hardware import Source
from tonnage.catalog.rows import Row, read_rows
from tonnage.values import dataclass

_GPU_COLUMNS = ("accelerator", "quantity", "figure", "source", "read_on")
_PRICE_COLUMNS = (
    "provider", "instance_type", "region", "usd_per_instance_hour", "last_seen", "gone_by", "source",
)  # fmt: skip
_MODEL_COLUMNS = ("model", "aliases", "parameters", "source")


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuFigure:
    """A published count, or a second published value of a figure of the accelerator table."""

    accelerator: str
    quantity: str
    figure: float
    source: Source


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierPrice:
    """An on-demand price that no longer holds: seen on `last_seen`, gone on `gone_by`."""

    provider: str
    instance_type: str
    region: str
    usd_per_instance_hour: float
    last_seen: date | None
    gone_by: date | None
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSize:
    """A model whose size is published and whose shape is not among the known ones."""

    model: str
    aliases: tuple[str, ...]
    parameters: float
    source: str


@cache
def gpu_figures() -> tuple[GpuFigure, ...]:
    """Every row of `data/gpu_figures.csv`."""
    return tuple(_gpu_figure(row) for row in read_rows(_table("gpu_figures.csv"), _GPU_COLUMNS))


@cache
def earlier_prices() -> tuple[EarlierPrice, ...]:
    """Every row of `data/earlier_prices.csv`."""
    return tuple(_earlier_price(row) for row in read_rows(_table("earlier_prices.csv"), _PRICE_COLUMNS))


@cache
def model_sizes() -> tuple[ModelSize, ...]:
    """Every row of `data/model_sizes.csv`."""
    return tuple(_model_size(row) for row in read_rows(_table("model_sizes.csv"), _MODEL_COLUMNS))


def _table(name: str) -> Traversable:
    return files("tonnage.claims") / "data" / name


def _gpu_figure(row: Row) -> GpuFigure:
    return GpuFigure(
        accelerator=row.text("accelerator"),
        quantity=row.text("quantity"),
        figure=row.required("figure", 1, 1e6),
        source=row.source(),
    )


def _earlier_price(row: Row) -> EarlierPrice:
    return EarlierPrice(
        provider=row.text("provider"),
        instance_type=row.text("instance_type"),
        region=row.text("region"),
        usd_per_instance_hour=float(row.price("usd_per_instance_hour", 1000)),
        last_seen=row.day("last_seen"),
        gone_by=row.day("gone_by"),
        source=row.text("source"),
    )


def _model_size(row: Row) -> ModelSize:
    return ModelSize(
        model=row.text("model"),
        aliases=tuple(row.text("aliases").split(";")),
        parameters=row.required("parameters", 1e6, 1e14),
        source=row.text("source"),
    )
