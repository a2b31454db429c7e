"""A gateway file at work in one worker: connections, health, sign-in and kept answers of its deployments and routes,
and the cells that their attempts count in.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from hashlib import blake2b
from random import Random
from time import monotonic
from typing import Final

from tonnage.gateway.caching import RouteCache, SharedCache, shared_prefix
from tonnage.gateway.dialects.usage import Usage
from tonnage.gateway.file.conduct_entries import CanaryEntry
from tonnage.gateway.file.described import Caller, Deployment, Gateway
from tonnage.gateway.measures import GatewayMeasures, add_time
from tonnage.gateway.money.allowances import Allowance
from tonnage.gateway.money.holds import Who
from tonnage.gateway.money.rates import PICO_PER_USD
from tonnage.gateway.routing.health import DeploymentHealth, RetryBudget
from tonnage.gateway.routing.hedge_policy import HedgePolicy
from tonnage.gateway.signing.sign_in import SignIn
from tonnage.gateway.signing.signers import Signer
from tonnage.http.connection import UpstreamTimeouts
from tonnage.http.upstream import Upstream


class Running:
    """A configuration and what goes with it. A reload makes another one; requests under way keep theirs.

    `before`: the one that it takes the place of, whose health and connections of equal deployments go on.
    """

    def __init__(
        self, gateway: Gateway, measures: GatewayMeasures, make_signer: Callable[[SignIn], Signer],
        before: Running | None = None,
    ) -> None:  # fmt: skip
        self.gateway, self.measures = gateway, measures
        self.random = Random()
        self.healths: dict[str, DeploymentHealth] = {}
        self.upstreams: dict[str, Upstream] = {}
        self.signers: dict[str, Signer] = {}
        for name, one in gateway.deployments.items():
            known = before is not None and before.gateway.deployments.get(name) == one
            self.healths[name] = before.healths[name] if before and known else DeploymentHealth(one.first_byte_s)
            self.upstreams[name] = before.upstreams[name] if before and known else _upstream(one)
            if one.sign_in is not None:
                self.signers[name] = before.signers[name] if before and known else make_signer(one.sign_in)
        self.shared_cache: SharedCache | None = None
        same = (gateway.redis, gateway.state_keys)
        if before is not None and (before.gateway.redis, before.gateway.state_keys) == same:
            self.shared_cache = before.shared_cache
        elif gateway.redis is not None:
            self.shared_cache = SharedCache(gateway.redis, measures, gateway.state_keys)
        self.caches = {
            name: RouteCache(
                route.cache.items, route.cache.ttl, monotonic, self.shared_cache, shared_prefix(gateway, name)
            )
            for name, route in gateway.routes.items()
            if route.cache is not None
        }
        self.retries = {name: RetryBudget(route.retry.budget_percent / 100.0) for name, route in gateway.routes.items()}
        self.hedges = {
            name: HedgePolicy(route.hedge.after, route.hedge.share_percent / 100.0)
            for name, route in gateway.routes.items()
            if route.hedge is not None
        }
        self.canaries = {
            name: Canary(name, route.canary, measures)
            for name, route in gateway.routes.items()
            if route.canary is not None
        }
        self._allowances: dict[tuple[str, str, str], tuple[Allowance, ...]] = {}
        self.added_times = measures.histogram("tonnage_gateway_added_seconds")
        self._meters: dict[tuple[str, str], RouteMeter] = {}
        self._key_meters: dict[str, KeyMeter] = {}
        self._who: dict[tuple[str, str, str], Who] = {}

    def allowances(self, caller: Caller, route: str, deployment: str) -> tuple[Allowance, ...]:
        """What the caller's requests on a route are taken from at a deployment: the same tuple each time."""
        place = (caller.name, route, deployment)
        found = self._allowances.get(place)
        if found is None:
            gateway = self.gateway
            found = (*gateway.allowances_of(caller, route), *gateway.allowances_at(deployment))
            self._allowances[place] = found
        return found

    def meter(self, route: str, deployment: str) -> RouteMeter:
        found = self._meters.get((route, deployment))
        if found is None:
            found = self._meters[route, deployment] = RouteMeter(self.measures, route, deployment)
        return found

    def key_meter(self, caller: Caller) -> KeyMeter:
        found = self._key_meters.get(caller.name)
        if found is None:
            found = self._key_meters[caller.name] = KeyMeter(self.measures, caller.name, caller.team)
        return found

    def who(self, caller: Caller, route: str, deployment: str) -> Who:
        """As the ledger names them."""
        place = (caller.name, route, deployment)
        found = self._who.get(place)
        if found is None:
            found = self._who[place] = Who(
                key=caller.name, team=caller.team, project=caller.project, route=route, deployment=deployment
            )
        return found

    def count_refused(self, allowance: Allowance) -> None:
        self.measures.count("tonnage_gateway_refused_total", (("limit", allowance.id),))

    def count_gone(self) -> None:
        self.measures.count("tonnage_gateway_gone_total")

    def retire(self, after: Mapping[str, Upstream]) -> None:
        """Close the idle connections that the next one does not go on with."""
        for name, upstream in self.upstreams.items():
            if after.get(name) is not upstream:
                upstream.close_idle()

    def close(self) -> None:
        for upstream in self.upstreams.values():
            upstream.close()


def _upstream(one: Deployment) -> Upstream:
    wait = one.timeouts
    return Upstream(
        one.endpoint,
        UpstreamTimeouts(connect_s=wait.connect, first_byte_s=wait.first_byte, between_s=wait.between),
    )


FEWEST_ATTEMPTS: Final = 20  # below which a share of failures says nothing
MOST_ATTEMPTS: Final = 200  # of the last ones, which count
PARTS: Final = 10_000


class Canary:
    """Of one route in one worker. The same conversation of the same key goes the same way."""

    def __init__(self, route: str, entry: CanaryEntry, measures: GatewayMeasures) -> None:
        self.route, self.entry, self._measures = route, entry, measures
        self.stopped = False
        self._failed: deque[bool] = deque(maxlen=MOST_ATTEMPTS)

    def drawn(self, caller: Caller, prefix: bytes) -> str | None:
        """The new deployment, for a request that is to try it."""
        if self.stopped:
            return None
        found = blake2b(prefix, digest_size=8, key=caller.name.encode()[:64], person=b"canary").digest()
        return self.entry.deployment if int.from_bytes(found) % PARTS < self.entry.percent * PARTS / 100 else None

    def record(self, deployment: str, *, failed: bool) -> None:
        """What became of an attempt of the route."""
        new = deployment == self.entry.deployment
        labels = (("route", self.route), ("side", "canary" if new else "base"), ("met", "failed" if failed else "ok"))
        self._measures.count("tonnage_gateway_canary_total", labels)
        if not new:
            return
        self._failed.append(failed)
        share = sum(self._failed) / len(self._failed)
        if len(self._failed) >= FEWEST_ATTEMPTS and share * 100 > self.entry.stop_percent and not self.stopped:
            self.stopped = True
            labels = (("route", self.route), ("side", "canary"), ("met", "stopped"))
            self._measures.count("tonnage_gateway_canary_total", labels)


class KeyMeter:
    """One key."""

    __slots__ = ("_input", "_output", "_usd", "requests")

    def __init__(self, measures: GatewayMeasures, key: str, team: str) -> None:
        labels = (("key", key), ("team", team))
        self.requests = measures.cell("tonnage_gateway_key_requests_total", labels)
        self._input = measures.cell("tonnage_gateway_key_tokens_total", (*labels, ("kind", "input")))
        self._output = measures.cell("tonnage_gateway_key_tokens_total", (*labels, ("kind", "output")))
        self._usd = measures.cell("tonnage_gateway_key_usd_total", labels)

    def settled(self, usage: Usage, usd_pico: int) -> None:
        self._input[0] += usage.input_tokens
        self._output[0] += usage.output_tokens
        self._usd[0] += usd_pico / PICO_PER_USD


class RouteMeter:
    """One route at one deployment."""

    __slots__ = (
        "_first_byte",
        "_input",
        "_latency",
        "_measures",
        "_output",
        "_statuses",
        "_usd",
        "deployment",
        "route",
    )

    def __init__(self, measures: GatewayMeasures, route: str, deployment: str) -> None:
        self._measures, self.route, self.deployment = measures, route, deployment
        labels = (("route", route), ("deployment", deployment))
        self._latency = measures.histogram("tonnage_gateway_latency_seconds", labels)
        self._first_byte = measures.histogram("tonnage_gateway_first_byte_seconds", labels)
        self._input = measures.cell("tonnage_gateway_tokens_total", (*labels, ("kind", "input")))
        self._output = measures.cell("tonnage_gateway_tokens_total", (*labels, ("kind", "output")))
        self._usd = measures.cell("tonnage_gateway_usd_total", labels)
        self._statuses: dict[int, list[float]] = {}

    def answered(self, status: int) -> None:
        """A client has been answered."""
        cell = self._statuses.get(status)
        if cell is None:
            labels = (("route", self.route), ("deployment", self.deployment), ("status", str(status)))
            cell = self._statuses[status] = self._measures.cell("tonnage_gateway_requests_total", labels)
        cell[0] += 1

    def settled(self, usage: Usage | None, usd_pico: int, first_byte_s: float | None, latency_s: float) -> None:
        add_time(self._latency, latency_s)
        if first_byte_s is not None:
            add_time(self._first_byte, first_byte_s)
        if usage is not None:
            self._input[0] += usage.input_tokens
            self._output[0] += usage.output_tokens
            self._usd[0] += usd_pico / PICO_PER_USD

    def fault(self, kind: str) -> None:
        self._measures.count("tonnage_gateway_faults_total", (("deployment", self.deployment), ("kind", kind)))

    def retried(self) -> None:
        self._measures.count("tonnage_gateway_retries_total", (("deployment", self.deployment),))

    def over_hold(self) -> None:
        self._measures.count("tonnage_gateway_over_hold_total", (("deployment", self.deployment),))
