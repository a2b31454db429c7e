"""A log of requests replayed against the routes of a gateway file: what it would have cost, taken and refused.

Deployments hold as many requests at a time as the file says, each for the first byte and its output tokens at the
speed that the ledger measured. Allowances are taken at what a request costs; the gateway itself holds a bound while a
request is under way, so close to a cap it refuses a little earlier.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from heapq import heappop, heappush
from random import Random
from statistics import median
from typing import Any, cast, get_args

from tonnage.errors import InputError
from tonnage.gateway.dialects.usage import Usage
from tonnage.gateway.file.described import ANYBODY, Caller, Gateway, Route
from tonnage.gateway.file.entries import Policy
from tonnage.gateway.money.allowances import Allowance
from tonnage.gateway.money.rates import PICO_PER_USD, usd_text
from tonnage.gateway.replayed import LoggedRequest
from tonnage.gateway.routing.choosing import Facts, deployments_of, order
from tonnage.gateway.routing.health import DeploymentHealth
from tonnage.reports.blocks import Column, Page, Pairs, Table
from tonnage.reports.rendering import Report
from tonnage.reports.wording import short
from tonnage.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """Of a deployment, in seconds; None: not measured and not stated."""

    first_byte_s: float | None
    per_output_token_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulated:
    """`usd_pico`, `requests` by deployment; `refused` by allowance; `unserved`: no deployment took them."""

    requests: Mapping[str, int]
    usd_pico: Mapping[str, int]
    latencies_s: tuple[float, ...]  # of those whose deployments have a known speed, in order of size
    refused: Mapping[str, int]
    unserved: int
    left_out: int = 0  # requests of the log that have no count of tokens: refused, or lost
    share: float = 1.0  # of the requests that came, as many as the log has kept


def speeds(gateway: Gateway, attempts: Iterable[Mapping[str, Any]]) -> dict[str, Speed]:
    """By deployment: medians of what the ledger measured, else what the file states."""
    firsts, per_token = defaultdict(list), defaultdict(list)
    for one in attempts:
        if one["outcome"] != "ok" or one["first_byte_s"] is None:
            continue
        firsts[one["deployment"]].append(one["first_byte_s"])
        if one["output_tokens"]:
            per_token[one["deployment"]].append((one["latency_s"] - one["first_byte_s"]) / one["output_tokens"])
    return {
        name: Speed(
            first_byte_s=median(firsts[name]) if firsts[name] else one.first_byte_s,
            per_output_token_s=median(per_token[name]) if per_token[name] else None,
        )
        for name, one in gateway.deployments.items()
    }


def simulate(
    gateway: Gateway, requests: Sequence[LoggedRequest], attempts: Sequence[Mapping[str, Any]], *, policy: str | None,
    speed: float, seed: int,
) -> Simulated:  # fmt: skip
    """Replay the requests. Raises InputError for a policy or a route that is not there."""
    if policy is not None and policy not in get_args(Policy):
        raise InputError(f"no policy '{policy}'", hint=f"one of {', '.join(get_args(Policy))}")
    missing = {one.route for one in requests} - set(gateway.routes)
    if missing:
        raise InputError(f"the log asks for {', '.join(sorted(missing))}", hint=f"routes: {', '.join(gateway.routes)}")
    if policy is not None:
        routes = {name: replace(one, policy=cast("Policy", policy)) for name, one in gateway.routes.items()}
        gateway = replace(gateway, routes=routes)
    replay = _Replay(gateway, speeds(gateway, attempts), Random(seed))
    begin_s = requests[0].at_s
    for one in requests:
        replay.request(one, begin_s + (one.at_s - begin_s) / speed)
    return replay.result()


class _Replay:
    """The state of a replay: what is under way, and what of each allowance is taken."""

    def __init__(self, gateway: Gateway, speeds: Mapping[str, Speed], random: Random) -> None:
        self.gateway, self.speeds, self.random = gateway, speeds, random
        self.callers: dict[str, Caller] = {one.name: one for one in gateway.callers.values()}
        self.healths = {name: DeploymentHealth(found.first_byte_s) for name, found in speeds.items()}
        self.ends: list[tuple[float, int, str, tuple[Allowance, ...]]] = []
        self.taken: Counter[tuple[str, int]] = Counter()
        self.requests: Counter[str] = Counter()
        self.usd_pico: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.latencies_s: list[float] = []
        self.unserved = 0
        self.number = 0

    def request(self, one: LoggedRequest, now_s: float) -> None:
        while self.ends and self.ends[0][0] <= now_s:
            _, _, name, places = heappop(self.ends)
            self.healths[name].under_way -= 1
            for place in places:
                self.taken[place.id, 0] -= 1
        caller = self.callers.get(one.key, ANYBODY)
        facts = Facts(surface="chat", input_tokens=one.input_tokens, caller=caller)
        base = self.gateway.allowances_of(caller, one.route)
        route: Route | None = self.gateway.routes[one.route]
        while route is not None:  # as the gateway itself: a route whose deployments take nothing hands on
            if self._on(route, facts, base, one, now_s):
                return
            facts = facts._replace(regions=deployments_of(route, facts)[1])
            route = None if route.fallback is None else self.gateway.routes[route.fallback]
        self.unserved += 1

    def _on(self, route: Route, facts: Facts, base: tuple[Allowance, ...], one: LoggedRequest, now_s: float) -> bool:
        """Whether a route's deployments, or a refusal, end the request."""
        for name in order(route, facts, self.gateway, self.healths, now_s, self.random):
            deployment, health = self.gateway.deployments[name], self.healths[name]
            if deployment.at_once is not None and health.under_way >= deployment.at_once:
                continue
            usage = Usage(input_tokens=one.input_tokens, output_tokens=one.output_tokens)
            usd_pico = deployment.rates.cost_pico(usage)
            refusing = self._take((*base, *self.gateway.allowances_at(name)), usd_pico, one, now_s)
            if refusing is None:
                self._carry(name, one, usd_pico, now_s, (*base, *self.gateway.allowances_at(name)))
                return True
            if refusing.scope != "deployment":
                self.refused[refusing.id] += 1
                return True
        return False

    def _take(
        self, allowances: tuple[Allowance, ...], usd_pico: int, one: LoggedRequest, now_s: float
    ) -> Allowance | None:
        """The allowance that refuses, or None: then all of them are taken from."""
        moment = datetime.fromtimestamp(now_s, UTC)
        amounts = {"usd": usd_pico, "tokens": one.input_tokens + one.output_tokens, "requests": 1, "at-once": 1}
        places = [(each, (each.id, each.begin(moment))) for each in allowances]
        for each, place in places:
            if each.hard and self.taken[place] + amounts[each.unit] > each.cap:
                return each
        for each, place in places:
            self.taken[place] += amounts[each.unit]
        return None

    def _carry(
        self, name: str, one: LoggedRequest, usd_pico: int, now_s: float, allowances: tuple[Allowance, ...]
    ) -> None:
        speed = self.speeds[name]
        latency_s = (speed.first_byte_s or 0.0) + one.output_tokens * (speed.per_output_token_s or 0.0)
        if speed.first_byte_s is not None:
            self.latencies_s.append(latency_s)
        self.requests[name] += 1
        self.usd_pico[name] += usd_pico
        self.healths[name].under_way += 1
        self.number += 1
        places = tuple(each for each in allowances if each.returns)
        heappush(self.ends, (now_s + latency_s, self.number, name, places))

    def result(self) -> Simulated:
        return Simulated(
            requests=dict(self.requests), usd_pico=dict(self.usd_pico), latencies_s=tuple(sorted(self.latencies_s)),
            refused=dict(self.refused), unserved=self.unserved,
        )  # fmt: skip


def simulated_report(found: Simulated) -> Report:
    """Requests and dollars by deployment, latencies, refusals by allowance."""
    names = sorted(found.requests, key=lambda name: -found.usd_pico[name])
    quantiles = {f"p{round(100 * share)}": _quantile(found.latencies_s, share) for share in (0.5, 0.95, 0.99)}
    total = sum(found.usd_pico.values())
    return Report(
        page=lambda: _page(found, names, quantiles),
        document=lambda: {
            "schema": "tonnage/gateway-simulation@1", "usd": usd_text(total),
            "deployments": [{"name": name, "requests": found.requests[name], "usd": usd_text(found.usd_pico[name])}
                            for name in names],
            "latency_s": quantiles, "refused": dict(sorted(found.refused.items())), "unserved": found.unserved,
            "left_out": found.left_out, "sampled": found.share,
        },
        columns=("deployment", "requests", "usd"),
        rows=lambda: [[name, found.requests[name], usd_text(found.usd_pico[name])] for name in names],
    )  # fmt: skip


def _page(found: Simulated, names: Sequence[str], quantiles: Mapping[str, float | None]) -> Page:
    columns = (Column(title="deployment"), Column(title="requests", align="right"), Column(title="USD", align="right"))
    rows = [(name, f"{found.requests[name]:,}", short(found.usd_pico[name] / PICO_PER_USD, 4)) for name in names]
    facts = [
        (f"latency {name}", "not known" if value is None else f"{short(value, 3)} s")
        for name, value in quantiles.items()
    ]
    facts += [(f"refused by {name}", f"{count:,}") for name, count in sorted(found.refused.items())]
    facts.append(("taken by no deployment", f"{found.unserved:,}"))
    if found.left_out:
        facts.append(("left out, without a count of tokens", f"{found.left_out:,}"))
    if found.share < 1.0:
        facts.append(("the log has kept", f"{short(100 * found.share, 3)} % of the requests"))
    usd = short(sum(found.usd_pico.values()) / PICO_PER_USD, 4)
    title = f"{sum(found.requests.values()):,} requests for {usd} USD"
    return Page(title=title, blocks=(Table(columns=columns, rows=tuple(rows)), Pairs(rows=tuple(facts))))


def _quantile(ordered: Sequence[float], share: float) -> float | None:
    """The smallest value that at least this share is not above; None without values."""
    if not ordered:
        return None
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]
