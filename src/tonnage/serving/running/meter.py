"""What a service costs: dollars by the hours its machines are held, set against what it answered in them."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from typing import Any, Final

from tonnage.metric_names import REGISTRY
from tonnage.units import SECONDS_PER_HOUR
from tonnage.values import dataclass

WINDOW_S: Final = 60.0
PER_REQUESTS: Final = 1000
MILLION: Final = 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceCounts:
    """What replicas have answered, since each began. None: their engine does not count it."""

    requests: float | None = None
    input_tokens: float | None = None
    output_tokens: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanCost:
    """A span of time: what it cost, and what was answered in it. None: no price was given, or it is not counted."""

    seconds: float
    usd: float | None
    requests: float | None
    input_tokens: float | None
    output_tokens: float | None

    @property
    def requests_per_s(self) -> float | None:
        return _over(self.requests, self.seconds)

    @property
    def usd_per_1000_requests(self) -> float | None:
        """None where nothing was answered: no price is one per request then."""
        return None if self.usd is None else _over(PER_REQUESTS * self.usd, self.requests)

    @property
    def usd_per_million_tokens(self) -> float | None:
        """Over input and output together."""
        if self.usd is None or self.input_tokens is None or self.output_tokens is None:
            return None
        return _over(MILLION * self.usd, self.input_tokens + self.output_tokens)

    def document(self) -> dict[str, Any]:
        """As JSON carries it."""
        return {
            "seconds": self.seconds, "usd": self.usd, "requests": self.requests, "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens, "requests_per_s": self.requests_per_s,
            "usd_per_1000_requests": self.usd_per_1000_requests,
            "usd_per_million_tokens": self.usd_per_million_tokens,
        }  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class _Point:
    at: float
    usd: float
    counts: ServiceCounts


class CostMeter:
    """Adds up dollars and answers. `usd_per_machine_hour` None: no price is known, and unknown is not free.

    `replicas_per_machine` None: all share one machine, which is held whether replicas run or none does.
    """

    def __init__(self, *, usd_per_machine_hour: float | None, replicas_per_machine: int | None = 1) -> None:
        self.usd_per_machine_hour, self.replicas_per_machine = usd_per_machine_hour, replicas_per_machine
        self.machines = 0
        self._usd = 0.0
        self._points: deque[_Point] = deque()
        self._first: _Point | None = None

    def tick(self, at: float, *, replicas: int, counts: ServiceCounts) -> None:
        """What holds now: replicas that are held, starting and draining ones among them, and their counters.

        The machines of the tick before are paid for until this one.
        """
        if self._points:
            held_s = max(at - self._points[-1].at, 0.0)
            self._usd += self.machines * (self.usd_per_machine_hour or 0.0) * held_s / SECONDS_PER_HOUR
        each = self.replicas_per_machine
        self.machines = 1 if each is None else math.ceil(replicas / each)
        point = _Point(at=at, usd=self._usd, counts=counts)
        if self._first is None:
            self._first = point
        self._points.append(point)
        while len(self._points) > 2 and self._points[1].at <= at - WINDOW_S:
            self._points.popleft()

    @property
    def usd_per_hour(self) -> float | None:
        """Of the machines that are held now."""
        return None if self.usd_per_machine_hour is None else self.machines * self.usd_per_machine_hour

    @property
    def now(self) -> SpanCost | None:
        """The last minute; None before the second tick."""
        return self._span(self._points[0]) if len(self._points) > 1 else None

    @property
    def whole(self) -> SpanCost | None:
        """Since the first tick."""
        return None if self._first is None or len(self._points) < 2 else self._span(self._first)

    def _span(self, first: _Point) -> SpanCost:
        last = self._points[-1]
        return SpanCost(
            seconds=last.at - first.at,
            usd=None if self.usd_per_machine_hour is None else last.usd - first.usd,
            requests=_more(last.counts.requests, first.counts.requests),
            input_tokens=_more(last.counts.input_tokens, first.counts.input_tokens),
            output_tokens=_more(last.counts.output_tokens, first.counts.output_tokens),
        )

    def document(self) -> dict[str, Any]:
        """As JSON carries it: what is held, the last minute, and since the start."""
        now, whole = self.now, self.whole
        return {
            "machines": self.machines,
            "usd_per_hour": self.usd_per_hour,
            "now": None if now is None else now.document(),
            "since_start": None if whole is None else whole.document(),
        }

    def metrics(self) -> Iterator[tuple[str, str, float]]:
        """(name, type, value) for Prometheus; what is not known is left out."""
        now, whole = self.now, self.whole
        found = {
            "tonnage_service_machines": float(self.machines),
            "tonnage_service_cost_usd_per_hour": self.usd_per_hour,
            "tonnage_service_usd_total": None if whole is None else whole.usd,
            "tonnage_service_usd_per_1000_requests": None if now is None else now.usd_per_1000_requests,
            "tonnage_service_usd_per_million_tokens": None if now is None else now.usd_per_million_tokens,
            "tonnage_service_input_tokens_total": None if whole is None else whole.input_tokens,
            "tonnage_service_output_tokens_total": None if whole is None else whole.output_tokens,
        }
        yield from ((name, REGISTRY[name].kind, value) for name, value in found.items() if value is not None)


class ReplicaCounts:
    """Counters of replicas that come and go, added up: what a replica had counted when it went stays counted."""

    def __init__(self) -> None:
        self._seen: dict[str, ServiceCounts] = {}

    def see(self, replica: str, counts: ServiceCounts) -> None:
        """The newest counters of a replica; a name stands for one process."""
        self._seen[replica] = counts

    def total(self, *, requests: float | None = None) -> ServiceCounts:
        """Over all replicas that ever were. `requests`: as somebody else counts them, the balancer."""
        every = list(self._seen.values())
        return ServiceCounts(
            requests=requests if requests is not None else _sum([one.requests for one in every]),
            input_tokens=_sum([one.input_tokens for one in every]),
            output_tokens=_sum([one.output_tokens for one in every]),
        )


def _sum(found: list[float | None]) -> float | None:
    """None where one is not known: a part is no sum."""
    known = [one for one in found if one is not None]
    return sum(known) if known and len(known) == len(found) else None


def _more(last: float | None, first: float | None) -> float | None:
    """A counter that was not read at first counts from 0."""
    return None if last is None else max(last - (first or 0.0), 0.0)


def _over(amount: float | None, by: float | None) -> float | None:
    return None if amount is None or not by else amount / by
