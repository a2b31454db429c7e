"""Words for how far an option is from winning."""

from __future__ import annotations

from typing import Any, assert_never

from tonnage.planning.reasons import distances as kinds
from tonnage.planning.reasons.distances import Distance
from tonnage.reports.reasons.changes import times_words
from tonnage.reports.reasons.document import reason_document


def distance_document(distance: Distance | None) -> dict[str, Any] | None:
    """The distance as JSON; None for the winner."""
    return None if distance is None else reason_document(distance, distance_words(distance))


def distance_words(distance: Distance | None) -> str:
    """One clause whose subject is the option; empty for the winner."""
    match distance:
        case None:
            return ""
        case kinds.SlowerDistance(times=times):
            return f"takes {times:.2f}x the winner's time; wins if it ran {times_words(times)} as fast"
        case kinds.SameCostDistance():
            return "costs the same; the winner is faster or named first"
        case kinds.DoubtedDistance(times=times, wins_if_trusted=wins, host=host):
            costs = "costs" if times is None else f"costs {_times(times)} the winner"
            doubt = "with a host whose vCPUs are not stated" if host else "at a price not relied on"
            return f"{costs}, {doubt}{'; wins with trust: any' if wins else ''}"
        case kinds.DearerDistance():
            return _dearer(distance)
        case _:
            assert_never(distance)


def _dearer(distance: kinds.DearerDistance) -> str:
    faster = " (faster: on the Pareto front)" if distance.faster else ""
    more, now, wanted = distance.more_usd, distance.usd_per_instance_hour, distance.wins_below_usd_per_instance_hour
    costs = f"costs ${more:,.2f} more" if distance.times is None else f"costs {_times(distance.times)} the winner"
    if wanted is None or not now:
        return f"{costs}{faster}; wins if it cost ${more:,.2f} less"
    percent = f"-{100 * (1 - wanted / now):.0f} %" if wanted > 0.01 * now else f"{now / wanted:,.0f} times as much"
    return f"{costs}{faster}; wins below ${wanted:.4g} an instance-hour (now ${now:.4g}, {percent})"


def _times(times: float) -> str:
    """Three significant digits.

    >>> _times(1.337), _times(9.999), _times(10.25), _times(222.93)
    ('1.34x', '10.0x', '10.2x', '223x')
    """
    digits = 2 if times < 9.995 else 1 if times < 99.95 else 0
    return f"{times:,.{digits}f}x"
