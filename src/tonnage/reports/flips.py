"""Changes that flip losers, as a table and as JSON: each was tried before it is shown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tonnage.planning.plan import Option, Refusal
from tonnage.planning.reasons.flips import Flip
from tonnage.reports.blocks import Block, Column, Heading, Paragraph, Table
from tonnage.reports.plain import plain_number
from tonnage.reports.reasons import change_document, changes_words
from tonnage.reports.wording import plural, render_bought, render_machines, render_money

Flipped = tuple[Option | Refusal, tuple[Flip, ...]]


def flip_blocks(flipped: Sequence[Flipped]) -> Iterator[Block]:
    """One row a change; losers that nothing tried flips are counted below."""
    if not flipped:
        return
    yield Heading(text="What would have flipped it: each change alone, tried")
    rows = [_row(loser, flip) for loser, flips in flipped for flip in flips]
    columns = (
        Column(title="machines", wraps=True),
        Column(title="bought", folds=2),
        Column(title="limit", folds=1),
        Column(title="change", wraps=True),
        Column(title="makes it"),
        Column(title="then", align="right"),
    )
    if rows:
        yield Table(columns=columns, rows=tuple(rows))
    stuck = sum(not flips for _, flips in flipped)
    if stuck:
        yield Paragraph(text=f"No change that was tried flips {plural(stuck, 'candidate')}.", tone="faint")


def _row(loser: Option | Refusal, flip: Flip) -> tuple[str, ...]:
    bought = "" if loser.purchase is None else render_bought(loser.purchase, loser.platform)
    becomes = "the winner" if flip.becomes == "winner" else "an option"
    name = f"{loser.provider} {render_machines(loser.count, loser.instance_type)}"
    return (name, bought, flip.dimension, changes_words(flip.changes), becomes, render_money(flip.cost_usd))


def flips_document(flipped: Sequence[Flipped]) -> list[dict[str, Any]]:
    """One entry a change, under the identity of its loser."""
    return [
        {
            "provider": loser.provider,
            "instance_type": loser.instance_type,
            "purchase": loser.purchase,
            "platform": loser.platform,
            "limit": flip.dimension,
            "change": changes_words(flip.changes),
            "changes": [change_document(one) for one in flip.changes],
            "becomes": flip.becomes,
            "cost_usd": plain_number(flip.cost_usd),
            "time_s": None if flip.time_s is None else plain_number(flip.time_s),
        }
        for loser, flips in flipped
        for flip in flips
    ]
