"""The ways to do one workload that no other way beats in both cost and time (of a service: in latency)."""

from __future__ import annotations

from collections.abc import Iterable

from tonnage.planning.plan import Option
from tonnage.sizing.estimates import Figure


def pace(option: Option) -> Figure | None:
    """The time of a job; of a service its promised latency. None: not known."""
    return option.time_s or latency(option)


def latency(option: Option) -> Figure | None:
    """The 95th percentile of a service's answers, or of their first token where that is what is known."""
    return option.latency_p95_s or option.ttft_p95_s


def pareto_front(options: Iterable[Option]) -> tuple[Option, ...]:
    """From the cheapest to the fastest; those whose pace is not known are left out."""
    known = [(option.cost_usd.value, pace_of.value, place, option) for place, option in enumerate(options)
             if (pace_of := pace(option)) is not None]  # fmt: skip
    out: list[Option] = []
    fastest = float("inf")
    for _, seconds, _, option in sorted(known, key=lambda one: one[:3]):
        if seconds < fastest:
            out.append(option)
            fastest = seconds
    return tuple(out)
