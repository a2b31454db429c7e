"""Whether a price may be set against another: not across a price cut that is on record, and not years apart."""

from __future__ import annotations

from datetime import date
from typing import Final

from tonnage.values import dataclass

LONGEST_APART_DAYS: Final = 730  # a judgement: list prices of one generation of machines have held for about two years


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceCut:
    """The day from which the machines of some families of a provider cost less. `source`: who announced it."""

    provider: str
    families: frozenset[str]
    on: date
    source: str


PRICE_CUTS: Final = (
    PriceCut(
        provider="aws",
        families=frozenset({"p4d", "p4de", "p5", "p5e", "p5en"}),
        on=date(2025, 6, 5),
        source="https://aws.amazon.com/blogs/aws/"
        "announcing-up-to-45-price-reduction-for-amazon-ec2-nvidia-gpu-accelerated-instances/",
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PricesApart:
    """Two prices of one machine that cannot be compared. `cut_on` None: they were read more than two years apart."""

    first_on: date | None
    second_on: date | None
    cut_on: date | None


def prices_apart(provider: str, instance_type: str, first: date | None, second: date | None) -> PricesApart | None:
    """Why prices of one machine, read on two days, say nothing of each other; None where they may be compared.

    >>> prices_apart("aws", "p5.48xlarge", date(2025, 1, 26), date(2026, 7, 20)).cut_on
    datetime.date(2025, 6, 5)
    >>> prices_apart("aws", "g5.xlarge", date(2025, 1, 26), date(2026, 7, 20)) is None
    True
    """
    family = instance_type.partition(".")[0]
    for cut in PRICE_CUTS:
        if cut.provider == provider and family in cut.families and _sides(cut, first, second):
            return PricesApart(first_on=first, second_on=second, cut_on=cut.on)
    if first is not None and second is not None and abs((first - second).days) > LONGEST_APART_DAYS:
        return PricesApart(first_on=first, second_on=second, cut_on=None)
    return None


def _sides(cut: PriceCut, first: date | None, second: date | None) -> bool:
    """Whether the two days may lie on both sides of a cut: an unknown day may be on either."""
    return first is None or second is None or (first < cut.on) != (second < cut.on)
