"""The gateway's decisions on logged requests, one after another in simulated time.

Deployments hold as many requests at a time as the file says, each for the first byte and its output tokens at the
speed that the ledger measured. Allowances are taken at what a request costs; the gateway itself holds a bound while a
request is under way, so close to a cap it refuses a little earlier. With a queue, requests wait for places by priority
and then in the order they came, in one line (the gateway has one for each limit and worker, takes turns among keys and
refuses at once who would be too late). A guardrail or classifier that a deployment decides costs its tokens and its
time before each request; what guardrails find is in the texts, which no log has; rules on languages, words and labels
hold as the log has them.
"""

from __future__ import annotations

from bisect import insort
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from heapq import heappop, heappush
from math import inf
from random import Random
from typing import Final, Literal, NamedTuple

from tonnage.gateway.dialects.usage import Usage
from tonnage.gateway.file.described import ANYBODY, Caller, Gateway, Route
from tonnage.gateway.money.allowances import Allowance
from tonnage.gateway.replayed import LoggedRequest
from tonnage.gateway.routing.choosing import Facts, deployments_of, order
from tonnage.gateway.routing.classes import wanted_classes
from tonnage.gateway.routing.health import DeploymentHealth
from tonnage.values import dataclass

QUEUE_FULL: Final = "a full queue"
QUEUE_LATE: Final = "the longest wait in the queue"
DEAREST: Final = "the most that a request of its route may cost"


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """Of a deployment, in seconds; None: not measured and not stated."""

    first_byte_s: float | None
    per_output_token_s: float | None
    output_tokens: float | None = None  # a mean of its answers


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulated:
    """`usd_pico`, `requests` by deployment; `refused` by allowance; `unserved`: no deployment took them."""

    requests: Mapping[str, int]
    usd_pico: Mapping[str, int]
    latencies_s: tuple[float, ...]  # of those whose deployments have a known speed, in order of size; waits included
    waits_s: tuple[float, ...]  # of those that waited in the queue and were taken, in order of size
    refused: Mapping[str, int]
    unserved: int
    left_out: int = 0  # requests of the log that have no count of tokens: refused, or lost
    share: float = 1.0  # of the requests that came, as many as the log has kept


class _Waiting(NamedTuple):
    """A request in the line: the highest priority first, then in the order they came."""

    rank: int
    number: int
    since_s: float
    until_s: float
    one: LoggedRequest


class _LimitReached(Exception):
    """By what. `place`: it is a limit of requests at a time, for which a request may wait."""

    def __init__(self, name: str, *, place: bool) -> None:
        super().__init__(name)
        self.name, self.place = name, place


class RequestReplay:
    """The state of a replay: what is under way, what waits, and what of each allowance is taken."""

    def __init__(self, gateway: Gateway, speeds: Mapping[str, Speed], random: Random) -> None:
        self.gateway, self.speeds, self.random = gateway, speeds, random
        self._callers: dict[str, Caller] = {one.name: one for one in gateway.callers.values()}
        self._healths = {name: _health(found) for name, found in speeds.items()}
        self._ends: list[tuple[float, int, str, tuple[Allowance, ...]]] = []
        self._waiting: list[_Waiting] = []
        self._taken: Counter[tuple[str, int]] = Counter()
        self._requests: Counter[str] = Counter()
        self._usd_pico: Counter[str] = Counter()
        self._refused: Counter[str] = Counter()
        self._latencies_s: list[float] = []
        self._waits_s: list[float] = []
        self._unserved = 0
        self._number = 0

    def request(self, one: LoggedRequest, now_s: float) -> None:
        """A request comes; `now_s` never falls."""
        self._until(now_s)
        queue = self.gateway.queue
        answered = self._answer(one, now_s, 0.0)
        if answered is None:
            return
        if queue is None or not answered.place:
            self._refuse(answered)
        elif len(self._waiting) >= queue.places:
            self._refused[QUEUE_FULL] += 1
        else:
            self._number += 1
            rank = -self._callers.get(one.key, ANYBODY).priority
            insort(self._waiting, _Waiting(rank, self._number, now_s, now_s + queue.longest, one))

    def finish(self) -> Simulated:
        """What became of them, once all have ended."""
        self._until(inf)
        return Simulated(
            requests=dict(self._requests), usd_pico=dict(self._usd_pico), latencies_s=tuple(sorted(self._latencies_s)),
            waits_s=tuple(sorted(self._waits_s)), refused=dict(self._refused), unserved=self._unserved,
        )  # fmt: skip

    def _until(self, now_s: float) -> None:
        """End what ends by then; places that are given back go to those who wait."""
        while self._ends and self._ends[0][0] <= now_s:
            at_s, _, name, places = heappop(self._ends)
            self._healths[name].under_way -= 1
            for place in places:
                self._taken[place.id, 0] -= 1
            self._hand_on(at_s)
        if self._waiting:
            self._hand_on(now_s)

    def _hand_on(self, now_s: float) -> None:
        still = []
        for waiting in self._waiting:
            if waiting.until_s < now_s:
                self._refused[QUEUE_LATE] += 1
                continue
            waited_s = now_s - waiting.since_s
            answered = self._answer(waiting.one, now_s, waited_s)
            if answered is None:
                self._waits_s.append(waited_s)
            elif answered.place:
                still.append(waiting)
            else:
                self._refuse(answered)
        self._waiting = still

    def _refuse(self, refused: _LimitReached) -> None:
        if refused.name:
            self._refused[refused.name] += 1
        else:
            self._unserved += 1

    def _answer(self, one: LoggedRequest, now_s: float, waited_s: float) -> _LimitReached | None:
        """None: a deployment takes it; else what keeps it from one."""
        caller = self._callers.get(one.key, ANYBODY)
        facts = Facts(surface="chat", input_tokens=one.input_tokens, caller=caller, classes=one.classes)
        base = self.gateway.allowances_of(caller, one.route)
        route: Route | None = self.gateway.routes[one.route]
        place = False
        try:
            while route is not None:  # as the gateway itself: a route whose deployments take nothing hands on
                found = self._on(route, facts, base, one, now_s, waited_s)
                if found == "taken":
                    return None
                place = place or found == "full"
                facts = facts._replace(regions=deployments_of(route, facts)[1])
                route = None if route.fallback is None else self.gateway.routes[route.fallback]
        except _LimitReached as refused:
            return refused
        return _LimitReached("", place=place)

    def _on(
        self, route: Route, facts: Facts, base: tuple[Allowance, ...], one: LoggedRequest, now_s: float,
        waited_s: float,
    ) -> Literal["taken", "full", "none"]:  # fmt: skip
        """Whether a route's deployments take it, would once they have a place, or do not. Raises _LimitReached."""
        full = False
        for name in order(route, facts, self.gateway, self._healths, now_s, self.random):
            deployment, health = self.gateway.deployments[name], self._healths[name]
            if deployment.at_once is not None and health.under_way >= deployment.at_once:
                full = True
                continue
            usage = Usage(input_tokens=one.input_tokens, output_tokens=one.output_tokens)
            usd_pico = deployment.rates.cost_pico(usage)
            if route.most_usd_pico is not None and usd_pico > route.most_usd_pico:
                raise _LimitReached(DEAREST, place=False)
            allowances = (*base, *self.gateway.allowances_at(name))
            refusing = self._take(allowances, usd_pico, one, now_s)
            if refusing is None:
                self._carry(name, route, one, usd_pico, now_s, waited_s, allowances)
                return "taken"
            if refusing.scope != "deployment":
                raise _LimitReached(refusing.id, place=refusing.returns)
            full = full or refusing.returns
        return "full" if full else "none"

    def _take(
        self, allowances: tuple[Allowance, ...], usd_pico: int, one: LoggedRequest, now_s: float
    ) -> Allowance | None:
        """The allowance that refuses, or None: then all of them are taken from."""
        moment = datetime.fromtimestamp(now_s, UTC)
        amounts = {"usd": usd_pico, "tokens": one.input_tokens + one.output_tokens, "requests": 1, "at-once": 1}
        places = [(each, (each.id, each.begin(moment))) for each in allowances]
        for each, place in places:
            if each.hard and self._taken[place] + amounts[each.unit] > each.cap:
                return each
        for each, place in places:
            self._taken[place] += amounts[each.unit]
        return None

    def _carry(
        self, name: str, route: Route, one: LoggedRequest, usd_pico: int, now_s: float, waited_s: float,
        allowances: tuple[Allowance, ...],
    ) -> None:  # fmt: skip
        speed, checked_s = self.speeds[name], 0.0
        known = speed.first_byte_s is not None
        for judge in self._judges(route):
            usage = Usage(input_tokens=one.input_tokens, output_tokens=0)
            self._usd_pico[judge] += self.gateway.deployments[judge].rates.cost_pico(usage)
            self._requests[judge] += 1
            first_s = self.speeds[judge].first_byte_s
            known, checked_s = known and first_s is not None, checked_s + (first_s or 0.0)
        took_s = checked_s + (speed.first_byte_s or 0.0) + one.output_tokens * (speed.per_output_token_s or 0.0)
        if known:
            self._latencies_s.append(waited_s + took_s)
        self._requests[name] += 1
        self._usd_pico[name] += usd_pico
        self._healths[name].under_way += 1
        self._number += 1
        places = tuple(each for each in allowances if each.returns)
        heappush(self._ends, (now_s + took_s, self._number, name, places))

    def _judges(self, route: Route) -> Iterator[str]:
        """Deployments that decide a guardrail of what is asked, one for each, and classifiers."""
        for name in wanted_classes(self.gateway, route).classifiers:
            yield self.gateway.classifiers[name].deployment
        for name in route.guardrails:
            rule = self.gateway.guardrails[name]
            if rule.deployment is not None and "input" in rule.on:
                yield rule.deployment


def _health(speed: Speed) -> DeploymentHealth:
    found, tokens = DeploymentHealth(speed.first_byte_s), speed.output_tokens
    if tokens and speed.per_output_token_s is not None:
        found.expect(token_s=(speed.first_byte_s or 0.0) / tokens + speed.per_output_token_s, output_tokens=tokens)
    return found
