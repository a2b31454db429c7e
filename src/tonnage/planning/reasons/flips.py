"""What would have made a loser win, or let a refused candidate in: changes that were tried, and what came of them."""

from __future__ import annotations

from dataclasses import field
from typing import Literal

from tonnage.planning.reasons.changes import AnyChange
from tonnage.planning.whatif.scenario import Edit
from tonnage.values import dataclass

Dimension = Literal["price", "memory", "speed", "deadline", "budget", "rate", "latency", "constraint"]
Becomes = Literal["winner", "option"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Flip:
    """Changes that together turn an option that lost into the winner, or a refused candidate into an option.

    `edit` does to a scenario what `changes` say; planning the edited scenario was tried, and gave `cost_usd`.
    """

    dimension: Dimension
    changes: tuple[AnyChange, ...]
    becomes: Becomes
    cost_usd: float
    time_s: float | None
    count: int | None = None  # machines of the option that comes of it; None for one on tokens
    edit: Edit = field(compare=False, repr=False)
