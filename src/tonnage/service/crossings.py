"""Where two costs cross as the volume grows: every crossing, of staircases too, or none."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tonnage.sizing.estimates import Array
from tonnage.values import dataclass

Cost = Callable[[float], float]  # USD a month at a busy rate


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossing:
    """A volume at which the cheaper side changes. `low` to `high`: over the 80 % interval of the throughput.

    An end is None where, at that end of the interval, no crossing of this direction exists.
    """

    rate_per_s: float
    low_per_s: float | None
    high_per_s: float | None
    cheaper_above: str  # "own fleet" or "API"


def find_crossings(own: Cost, api: Cost, grid: Array) -> list[tuple[float, str]]:
    """(rate, who is cheaper above it) for each change of sign of own - api along `grid`.

    A jump of a staircase between two neighbours of the grid is bisected to its place; several changes between two
    neighbours show as one or none, so `grid` holds the stairs.

    >>> steps = lambda rate: 10.0 * np.ceil(rate)
    >>> found = find_crossings(steps, lambda rate: 8.0 * rate, np.array([0.1, 1.0, 1.01, 2.0]))
    >>> found
    []
    >>> found = find_crossings(steps, lambda rate: 12.0 * rate, np.array([0.1, 1.0, 1.0001, 2.0]))
    >>> [(round(rate, 3), above) for rate, above in found]
    [(0.833, 'own fleet'), (1.0, 'API'), (1.667, 'own fleet')]
    """
    differences = [own(float(rate)) - api(float(rate)) for rate in grid]
    out = []
    for left, right, before, after in zip(grid[:-1], grid[1:], differences[:-1], differences[1:], strict=True):
        if (before > 0) == (after > 0):
            continue
        out.append((_bisect(own, api, float(left), float(right), before > 0), "API" if after > 0 else "own fleet"))
    return out


def _bisect(own: Cost, api: Cost, low: float, high: float, dearer_at_low: bool) -> float:
    for _ in range(60):
        if high / low < 1.0 + 1e-7:
            break
        middle = float(np.sqrt(low * high))
        if (own(middle) - api(middle) > 0) == dearer_at_low:
            low = middle
        else:
            high = middle
    return high


def with_intervals(
    value: Sequence[tuple[float, str]], faster: Sequence[tuple[float, str]], slower: Sequence[tuple[float, str]]
) -> tuple[Crossing, ...]:
    """Crossings with those that the ends of the throughput's interval give: of the same direction and order.

    Where an end has fewer, the crossing's end is unknown (None): it may not happen at all.
    """
    out = []
    seen = {"own fleet": 0, "API": 0}
    for rate, above in value:
        place = seen[above]
        seen[above] += 1
        ends = [_nth(found, above, place) for found in (faster, slower)]
        known = [end for end in (rate, *ends) if end is not None]
        out.append(
            Crossing(
                rate_per_s=rate,
                low_per_s=None if ends[0] is None else min(known),
                high_per_s=None if ends[1] is None else max(known),
                cheaper_above=above,
            )
        )
    return tuple(out)


def _nth(found: Sequence[tuple[float, str]], above: str, place: int) -> float | None:
    rates = [rate for rate, direction in found if direction == above]
    return rates[place] if place < len(rates) else None


def volume_grid(around: float, stairs: Sequence[float], *, top: float = 0.0, per_decade: int = 16) -> Array:
    """Rates from `around` / 10⁴ to the larger of · 10⁴ and `top`, and both sides of each stair inside."""
    low, high = around * 1e-4, max(around * 1e4, top)
    grid = np.geomspace(low, high, int(np.log10(high / low) * per_decade) + 1)
    inside = np.array([stair for stair in stairs if low < stair < high])
    return np.unique(np.concatenate((grid, inside, inside * (1.0 + 1e-6))))
