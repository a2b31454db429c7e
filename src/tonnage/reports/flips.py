"""Changes that flip losers, as a table and as JSON: each was tried before it is shown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from tonnage.planning.plan import Option, Refusal
from tonnage.planning.reasons.flips import Flip
from tonnage.reports.blocks import Block, Heading, Paragraph
from tonnage.reports.listing import Field, Fields, cell, field_table, field_values
from tonnage.reports.reasons import change_document, changes_words
from tonnage.reports.wording import plural, render_bought, render_machines, render_money

Flipped = tuple[Option | Refusal, tuple[Flip, ...]]


def flip_blocks(flipped: Sequence[Flipped]) -> Iterator[Block]:
    """One row a change; losers that nothing tried flips are counted below."""
    if not flipped:
        return
    yield Heading(text="What would have flipped it: each change alone, tried")
    if rows := _rows(flipped):
        yield field_table(_FIELDS, rows)
    stuck = sum(not flips for _, flips in flipped)
    if stuck:
        yield Paragraph(text=f"No change that was tried flips {plural(stuck, 'candidate')}.", tone="faint")


def flips_document(flipped: Sequence[Flipped]) -> list[dict[str, Any]]:
    """One entry a change, under the identity of its loser."""
    return [field_values(_FIELDS, row) for row in _rows(flipped)]


def _rows(flipped: Sequence[Flipped]) -> list[tuple[Option | Refusal, Flip]]:
    return [(loser, flip) for loser, flips in flipped for flip in flips]


def _bought(loser: Option | Refusal) -> str:
    return "" if loser.purchase is None else render_bought(loser.purchase, loser.platform)


def _name(loser: Option | Refusal) -> str:
    return f"{loser.provider} {render_machines(loser.count, loser.instance_type)}"


_FIELDS: Final[Fields[tuple[Option | Refusal, Flip]]] = (
    cell("machines", lambda row: _name(row[0]), wraps=True),
    cell("bought", lambda row: _bought(row[0]), folds=2),
    Field("provider", lambda row: row[0].provider),
    Field("instance_type", lambda row: row[0].instance_type),
    Field("purchase", lambda row: row[0].purchase),
    Field("platform", lambda row: row[0].platform),
    Field("limit", lambda row: row[1].dimension, title="limit", folds=1),
    Field("change", lambda row: changes_words(row[1].changes), title="change", show=str, wraps=True),
    Field("changes", lambda row: [change_document(one) for one in row[1].changes]),
    Field("becomes", lambda row: row[1].becomes, title="makes it",
          show=lambda becomes: "the winner" if becomes == "winner" else "an option"),
    Field("cost_usd", lambda row: row[1].cost_usd, title="then", show=render_money, right=True),
    Field("time_s", lambda row: row[1].time_s),
)  # fmt: skip
