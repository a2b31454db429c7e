"""Scaling over workers on the page of a bench: efficiency with its interval, and what limits it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tonnage.reports.blocks import Block, Column, Heading, LineChart, Paragraph, Table
from tonnage.reports.plain import plain_figure, plain_number
from tonnage.reports.wording import UNKNOWN, render_count
from tonnage.side_by_side.scaling import PARTS, ScalingPoint
from tonnage.sizing.estimates import Figure


def scaling_blocks(points: Sequence[ScalingPoint]) -> Iterator[Block]:
    """A table and a chart for each data set; nothing where no engine was measured over workers."""
    for data in dict.fromkeys(one.data for one in points):
        mine = [one for one in points if one.data == data]
        yield Heading(text=f"{data}: scaling over workers")
        titles = ("engine", "scaling", "workers", "training rows", "rows/s", "efficiency (80 %)", "limited by", *PARTS)
        columns = tuple(
            Column(title=title, align="right" if 2 <= place != 6 else "left", folds=max(place - 6, 0),
                   fold_text=title + " {}")
            for place, title in enumerate(titles)
        )  # fmt: skip
        yield Table(columns=columns, rows=tuple(_row(one) for one in mine))
        curves = {(one.group, one.kind): [] for one in mine}  # type: dict[tuple[str, str], list[tuple[float, float]]]
        for one in mine:
            if one.efficiency is not None:
                curves[one.group, one.kind].append((float(one.workers), one.efficiency.value))
        lines = tuple((f"{group}, {kind}", tuple(at)) for (group, kind), at in curves.items() if len(at) > 1)
        if lines:
            yield LineChart(title=f"{data}: efficiency", x_title="workers",
                            y_title="rows/s of n workers over n times those of one", series=lines)  # fmt: skip
    if points:
        yield Paragraph(tone="faint", text=(
            "Efficiency is rows/s over the workers times the rows/s of one. Strong: all rows; weak: as many rows and "
            "as large a batch for each worker. The columns after it are what each part of a step takes from the "
            "efficiency (below zero: gives), from steps looked at after the training: «cores shared» is time that a "
            "worker was ready and waited for a processor, «computing» what the same rows take longer. Without an "
            "interval there was one repeat."
        ))  # fmt: skip


def _row(one: ScalingPoint) -> tuple[str, ...]:
    alone = one.workers == 1
    limit = "" if alone else UNKNOWN if one.limited_by is None else one.limited_by or "nothing above 2 %"
    return (
        one.group, one.kind, str(one.workers), f"{one.train_rows:,}", render_count(one.rows_per_s.value),
        "1" if alone else _efficiency(one.efficiency), limit,
        *("" if alone else _share(one.losses.get(part)) for part in PARTS),
    )  # fmt: skip


def _efficiency(figure: Figure | None) -> str:
    if figure is None:
        return UNKNOWN
    spread = "" if figure.low == figure.high else f" ({figure.low:.2f}–{figure.high:.2f})"
    return f"{figure.value:.2f}{spread}"


def _share(loss: float | None) -> str:
    return UNKNOWN if loss is None else f"{loss:.0%}".replace("%", " %")


def scaling_document(points: Sequence[ScalingPoint]) -> list[dict[str, Any]]:
    """The points for JSON; `limited_by` null: not measured, "": nothing above 2 %."""
    return [
        {
            "data": one.data, "name": one.group, "scaling": one.kind, "workers": one.workers,
            "train_rows": one.train_rows, "repeats": one.repeats, "rows_per_s": plain_figure(one.rows_per_s),
            "efficiency": plain_figure(one.efficiency), "limited_by": None if one.workers == 1 else one.limited_by,
            "losses": {part.replace(" ", "_"): plain_number(loss) for part, loss in one.losses.items()},
        }
        for one in points
    ]  # fmt: skip
