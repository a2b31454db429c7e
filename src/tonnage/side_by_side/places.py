"""The same work at several places: its cells, the variation at each place, the differences between them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from tonnage.side_by_side.spread import PlaceDifference, RepeatSpread, place_difference, repeat_spread
from tonnage.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceCell:
    """One run at one place: its rate (samples a second), or why it has none."""

    place: str
    turn: int
    rate_per_s: float | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceResult:
    """All runs at one place."""

    place: str
    spread: RepeatSpread
    failed: int
    reason: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacesCompared:
    """Each place by itself, and every pair of those with two runs or more."""

    places: tuple[PlaceResult, ...]
    differences: tuple[PlaceDifference, ...]


def compare_places(cells: Sequence[PlaceCell], limit: float) -> PlacesCompared:
    """Places in the order they were run; failed runs count for no rate."""
    names = tuple(dict.fromkeys(one.place for one in cells))
    rates = {
        name: [one.rate_per_s for one in cells if one.place == name and one.rate_per_s is not None] for name in names
    }
    found = []
    for name in names:
        reasons = [one.reason for one in cells if one.place == name and one.reason is not None]
        found.append(
            PlaceResult(place=name, spread=repeat_spread(rates[name], limit), failed=len(reasons),
                        reason=reasons[0] if reasons else None)
        )  # fmt: skip
    pairs = (place_difference((one, rates[one]), (other, rates[other]), limit) for one, other in combinations(names, 2))
    return PlacesCompared(places=tuple(found), differences=tuple(one for one in pairs if one is not None))
