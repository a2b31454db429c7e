"""What the offers of one machine cost from snapshot to snapshot."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from decimal import Decimal
from typing import Final

from tonnage.reports.blocks import Block, LineChart, Page, Paragraph
from tonnage.reports.listing import Field, Fields, field_table, field_values, fields_report
from tonnage.reports.plain import plain_price
from tonnage.reports.rendering import Report
from tonnage.reports.wording import UNKNOWN, plural, short
from tonnage.values import dataclass

MOST_LINES: Final = 6  # in the chart: those that moved most


@dataclass(frozen=True, slots=True, kw_only=True)
class PricePoint:
    """One offer in one snapshot. `region` "": one price everywhere; `read_on` None: not stated."""

    snapshot: str
    built_on: date
    provider: str
    region: str
    purchase: str
    usd_per_instance_hour: Decimal
    read_on: date | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    """The points of one offer, the oldest first."""

    points: tuple[PricePoint, ...]

    @property
    def first(self) -> PricePoint:
        return self.points[0]

    @property
    def last(self) -> PricePoint:
        return self.points[-1]

    @property
    def change_pct(self) -> float | None:
        """From the first snapshot that has it to the last; None with one snapshot."""
        if len(self.points) < 2:
            return None
        before, after = self.first.usd_per_instance_hour, self.last.usd_per_instance_hour
        return None if not before else float(100 * (after - before) / before)


def _usd(value: Decimal) -> str:
    return short(float(value), 4)


_POINT: Final[Fields[PricePoint]] = (
    Field("snapshot", lambda one: one.snapshot), Field("built_on", lambda one: one.built_on.isoformat()),
    Field("provider", lambda one: one.provider), Field("region", lambda one: one.region),
    Field("purchase", lambda one: one.purchase),
    Field("usd_per_instance_hour", lambda one: one.usd_per_instance_hour, json=plain_price),
    Field("read_on", lambda one: None if one.read_on is None else one.read_on.isoformat()),
)  # fmt: skip
_LINES: Final[Fields[_Line]] = (
    Field("", lambda one: one.first.provider, title="provider"),
    Field("", lambda one: one.first.region, title="region", show=lambda text: text or "all"),
    Field("", lambda one: one.first.purchase, title="bought as"),
    Field("", lambda one: one.first.usd_per_instance_hour, title="first USD/h", show=_usd, right=True),
    Field("", lambda one: one.first.built_on.isoformat(), title="on", folds=1),
    Field("", lambda one: one.last.usd_per_instance_hour, title="last USD/h", show=_usd, right=True),
    Field("", lambda one: one.last.built_on.isoformat(), title="on", folds=1),
    Field("", lambda one: one.change_pct, title="change", right=True,
          show=lambda value: UNKNOWN if value is None else f"{value:+.1f} %"),
    Field("", lambda one: len(one.points), title="snapshots", right=True, folds=2),
)  # fmt: skip


def history_report(machine: str, found: Sequence[PricePoint], *, remarks: Sequence[str] = ()) -> Report:
    """Every offer with its first and last price; a chart of those that moved most where two snapshots have them."""
    lines = _lines_of(found)

    def page() -> Page:
        snapshots = len({one.snapshot for one in found})
        blocks: list[Block] = [field_table(_LINES, lines)] if lines else [Paragraph(text="none")]
        moved = sorted((one for one in lines if one.change_pct), key=lambda one: -abs(one.change_pct or 0.0))
        if moved:
            blocks.append(_chart(moved[:MOST_LINES]))
        elif lines:
            said = "The prices are equal in all of them." if snapshots > 1 else "A second snapshot would show a change."
            blocks.append(Paragraph(text=said, tone="faint"))
        blocks += [Paragraph(text=one, tone="warning") for one in remarks]
        title = f"Prices of {machine} in {plural(snapshots, 'snapshot')}" if machine else "Price history"
        return Page(title=title, blocks=tuple(blocks))

    return fields_report(
        page,
        lambda: {"schema": "tonnage/price-history@1", "machine": machine,
                 "prices": [field_values(_POINT, one) for one in found]},
        _POINT, found,
    )  # fmt: skip


def _lines_of(found: Sequence[PricePoint]) -> list[_Line]:
    by_offer: dict[tuple[str, str, str], list[PricePoint]] = {}
    for one in found:
        by_offer.setdefault((one.provider, one.region, one.purchase), []).append(one)
    return [_Line(points=tuple(points)) for _, points in sorted(by_offer.items())]


def _chart(lines: Sequence[_Line]) -> LineChart:
    start = min(one.first.built_on for one in lines)

    def points(line: _Line) -> tuple[tuple[float, float], ...]:
        return tuple((float((one.built_on - start).days), float(one.usd_per_instance_hour)) for one in line.points)

    return LineChart(
        title="Price from snapshot to snapshot", x_title=f"days since {start.isoformat()}", y_title="USD an hour",
        series=tuple((f"{one.first.region or 'all'} {one.first.purchase}", points(one)) for one in lines),
    )  # fmt: skip
