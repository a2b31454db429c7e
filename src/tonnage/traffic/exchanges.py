"""What came back of one request, and the figures of many: percentiles, errors by kind, goodput under a promise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from math import inf
from typing import Final

import numpy as np

from tonnage.values import dataclass

SHARES: Final = (0.50, 0.90, 0.95, 0.99)
MOST_LATE_S: Final = 0.010  # a client that sends this late at its 95th percentile is not measuring the service
LATE_FRACTION: Final = 0.10  # of the median latency, above which lateness counts where that is more


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """One request. Times in seconds: `due_s` and `ended_s` from the start of the run, the others from `due_s`.

    `fault`: what went wrong, in one word or two; "" where an answer came. `ttft_s`, `tpot_s`: of streamed answers.
    """

    due_s: float
    late_s: float  # sent so much after it was due
    latency_s: float
    fault: str = ""
    ttft_s: float | None = None
    tpot_s: float | None = None  # after the first token
    input_tokens: int | None = None  # as the service counted them
    output_tokens: int | None = None
    gaps_s: tuple[float, ...] = ()  # between pieces of a streamed answer

    @property
    def ended_s(self) -> float:
        return self.due_s + self.latency_s

    def shown(self, name: str) -> float:
        """A figure as its user sees it, for a promise: without a stream nothing is seen before the end. Infinite where
        it is not known."""
        value: float | None = getattr(self, name)
        if value is not None:
            return value
        if name == "ttft_s":
            return self.latency_s
        if self.output_tokens is None:
            return inf
        return self.latency_s / (self.output_tokens - 1) if self.output_tokens > 1 else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyPromise:
    """What 95 % of requests must keep; None: nothing is promised."""

    ttft_s: float | None = None
    tpot_s: float | None = None
    latency_s: float | None = None

    @property
    def limits(self) -> dict[str, float]:
        """Limit by the figure it is for."""
        named = {"ttft_s": self.ttft_s, "tpot_s": self.tpot_s, "latency_s": self.latency_s}
        return {name: limit for name, limit in named.items() if limit is not None}

    def kept_by(self, one: Exchange) -> bool:
        """Whether an answer came, inside every limit. One token has no time per further token, which breaks no limit;
        an answer that did not stream shows its first token at its end."""
        if one.fault:
            return False
        return all(one.shown(name) <= limit for name, limit in self.limits.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class TimingSummary:
    """A figure over requests, in seconds."""

    count: int
    mean: float
    p50: float
    p90: float
    p95: float
    p99: float
    longest: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadResult:
    """The figures of one run against a service. Warm-up is left out of all but `sent_in_all`.

    `void`: why the run says nothing of the service; "" where it does. `tail_is_late`: its 99th percentiles do not, the
    others do. `holds`: None where nothing is promised.
    """

    offered_per_s: float
    window_s: float  # that was measured, of sending
    sent_in_all: int
    sent: int
    answered: int
    faults: tuple[tuple[str, int], ...]  # kind, how many; the most frequent first
    latency: TimingSummary | None
    ttft: TimingSummary | None
    tpot: TimingSummary | None
    gaps: TimingSummary | None  # between pieces: inter-token latency
    lateness: TimingSummary
    requests_per_s: float  # answers that came in the window
    output_tokens_per_s: float | None
    input_tokens: float | None  # mean, as the service counted
    output_tokens: float | None
    in_flight: float  # mean
    kept_fraction: float | None  # of all sent: answered inside every limit
    goodput_per_s: float | None
    broken: tuple[str, ...]  # figures of the promise that 95 % did not keep
    holds: bool | None
    void: str
    tail_is_late: bool


def spread_of(values: Sequence[float]) -> TimingSummary | None:
    """Mean and percentiles; None of nothing.

    >>> spread_of([1.0, 2.0, 3.0]).p50
    2.0
    """
    if not len(values):
        return None
    found = np.asarray(values, dtype=float)
    p50, p90, p95, p99 = (float(one) for one in np.quantile(found, SHARES))
    return TimingSummary(
        count=len(found), mean=float(found.mean()), p50=p50, p90=p90, p95=p95, p99=p99, longest=float(found.max())
    )


def summarise(
    exchanges: Iterable[Exchange],
    promise: LatencyPromise,
    *,
    sending_s: float,
    warm_up_s: float,
    most_late_s: float | None = None,
) -> LoadResult:
    """The figures of a run that sent for `sending_s`. ValueError where no request was due after the warm-up.

    A request without an answer counts as one that never ends: it breaks every limit. `most_late_s`: lateness (p95)
    above which the run is void; else 10 ms, or a tenth of the median latency where that is more.
    """
    everything = list(exchanges)
    sent = [one for one in everything if one.due_s >= warm_up_s]
    if not sent:
        raise ValueError("no request was due after the warm-up")
    window_s = sending_s - warm_up_s
    answers = [one for one in sent if not one.fault]
    inside = [one for one in everything if not one.fault and warm_up_s <= one.ended_s < sending_s]
    latency = spread_of([one.latency_s for one in answers])
    lateness = spread_of([one.late_s for one in sent])
    assert lateness is not None
    if most_late_s is None:
        most_late_s = max(MOST_LATE_S, LATE_FRACTION * latency.p50 if latency else 0.0)
    kept = sum(map(promise.kept_by, sent)) if promise.limits else None
    broken = tuple(name for name, limit in promise.limits.items() if _p95_with_faults(sent, name) > limit)
    read = [one.input_tokens for one in answers if one.input_tokens is not None]
    written = [one.output_tokens for one in answers if one.output_tokens is not None]
    return LoadResult(
        offered_per_s=len(sent) / window_s, window_s=window_s, sent_in_all=len(everything), sent=len(sent),
        answered=len(answers), faults=tuple(Counter(one.fault for one in sent if one.fault).most_common()),
        latency=latency, ttft=_spread_known(one.ttft_s for one in answers),
        tpot=_spread_known(one.tpot_s for one in answers),
        gaps=spread_of([gap for one in answers for gap in one.gaps_s]), lateness=lateness,
        requests_per_s=len(inside) / window_s,
        output_tokens_per_s=sum(one.output_tokens or 0 for one in inside) / window_s if written else None,
        input_tokens=sum(read) / len(read) if read else None,
        output_tokens=sum(written) / len(written) if written else None,
        in_flight=sum(one.latency_s for one in sent) / window_s,
        kept_fraction=None if kept is None else kept / len(sent),
        goodput_per_s=None if kept is None else kept / window_s,
        broken=broken, holds=not broken if promise.limits else None,
        void=_void(lateness, most_late_s), tail_is_late=lateness.p99 > most_late_s,
    )  # fmt: skip


def _spread_known(values: Iterable[float | None]) -> TimingSummary | None:
    return spread_of([value for value in values if value is not None])


def _p95_with_faults(sent: Sequence[Exchange], name: str) -> float:
    """The 95th percentile of a figure; what got no answer counts as infinite."""
    values = sorted(inf if one.fault else one.shown(name) for one in sent)
    return values[min(int(0.95 * len(values)), len(values) - 1)] if values else 0.0


def _void(lateness: TimingSummary, limit_s: float) -> str:
    if lateness.p95 <= limit_s:
        return ""
    return (
        f"1 in 20 requests was sent over {1000 * lateness.p95:.1f} ms late, more than {1000 * limit_s:.1f} ms: the "
        "client was too slow, and the figures are not the service's"
    )
