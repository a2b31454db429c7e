"""How far a run lies from the data: what of it no fitted row had. Plans and judged rows count it alike."""

from __future__ import annotations

from collections.abc import Container
from typing import Final

from tonnage.values import dataclass
from tonnage.workload.shapes import ModelShape

# What a model may have that dense ones with keys of their own lack. No row of the packaged calibration has them.
STRUCTURES: Final = ("mixture of experts", "latent attention")
SEEN_STRUCTURES: Final[frozenset[str]] = frozenset()


def structures_of(shape: ModelShape) -> frozenset[str]:
    """Which of `STRUCTURES` a model has."""
    has = (shape.experts > 0, shape.kv_latent > 0)
    return frozenset(name for name, there in zip(STRUCTURES, has, strict=True) if there)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnseenFactors:
    """What no fitted row had, in words. Intervals widen with each.

    `near`: left-out rows say by how much (a device, an engine). `foreign`: none does (generation or vendor of the
    device, number format, structure of the
    model, a way to spread it).
    """

    near: tuple[str, ...] = ()
    foreign: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """All of them, what is near first."""
        return (*self.near, *self.foreign)


def unseen(*factors: tuple[str, str, Container[str] | None]) -> tuple[str, ...]:
    """The words of those factors (words, value, values that rows had) that no row had; None: nothing is known of it.

    >>> unseen(("precision fp8", "fp8", {"bf16"}), ("A100", "A100", {"A100"}), ("T4", "T4", None))
    ('precision fp8',)
    """
    return tuple(words for words, value, had in factors if had is not None and value not in had)
