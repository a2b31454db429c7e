"""What every refusal says: which limit binds, how far off the candidate is, what would lift the limit."""

from __future__ import annotations

from math import inf
from typing import Literal

from tonnage.planning.reasons.changes import AnyChange
from tonnage.reason import Reason
from tonnage.values import dataclass

Binding = Literal[
    "memory",
    "deadline",
    "budget",
    "provider",
    "region",
    "residency",
    "gpu",
    "max_gpus",
    "purchase",
    "interruptible",
    "latency",
    "rate",
    "hardware",
    "network",
    "shared gpu",
    "no price",
    "price",
    "platform",
    "time",
    "host memory",
    "layout",
    "excluded",
    "quota",
    "max_nodes",
]
Unknown = Literal["p95 latency", "p95 TTFT", "throughput", "host memory"]  # what keeps a candidate out


@dataclass(frozen=True, slots=True, kw_only=True)
class AnyMiss(Reason):
    """One limit that a candidate breaks.

    `lifted_by`: changes each of which alone lifts this limit (another may bind then); the first is the one to try.
    """

    binding: Binding
    lifted_by: tuple[AnyChange, ...] = ()

    @property
    def shortfall(self) -> float:
        """What is needed over what there is; infinity where one of them is no number."""
        return inf

    @property
    def risky(self) -> bool:
        """Whether the expected figure fits, and the upper end of its interval does not."""
        return False

    @property
    def unknown(self) -> Unknown | None:
        """The unknown figure, where that alone keeps the candidate out."""
        return None

    @property
    def would_cost_usd(self) -> float | None:
        """What the candidate would cost, were that known and good; None: nothing is unknown, or so is the cost."""
        return None
