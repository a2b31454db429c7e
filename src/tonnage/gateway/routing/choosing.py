"""The order in which a route's deployments are tried, and why another one is not among them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from random import Random
from typing import Final, Literal, NamedTuple

from tonnage.gateway.dialects.usage import Surface
from tonnage.gateway.file.described import Caller, Deployment, Gateway, Route
from tonnage.gateway.media.asked import MediaAsk, NoPrice
from tonnage.gateway.routing.health import DeploymentHealth
from tonnage.values import dataclass

DEAREST_PICO: Final = 1 << 60  # of what has no price: tried last
WhyNot = Literal["dialect", "resting", "quality", "region", "tried"]


class Facts(NamedTuple):
    """What is known of a request before it is sent. `input_tokens`: an estimate; `prefix`: how its text begins;
    `regions`: where an earlier route's rule says that it must be computed;
    `canary`: the new deployment that it is to try first."""

    surface: Surface
    input_tokens: int
    caller: Caller
    prefix: bytes = b""
    regions: frozenset[str] | None = None
    media: MediaAsk | None = None
    canary: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Considered:
    """A deployment as the policy sees it: expected cost and time of this request, or why it is not used."""

    name: str
    usd_pico: int
    first_byte_s: float | None
    why_not: WhyNot | None = None


def considered(
    route: Route,
    facts: Facts,
    gateway: Gateway,
    healths: Mapping[str, DeploymentHealth],
    now_s: float,
    *,
    tried: Sequence[str] = (),
) -> list[Considered]:
    """Every deployment that the route names for this request, in the file's order."""
    names, regions = deployments_of(route, facts)
    found = []
    for name in names:
        deployment, health = gateway.deployments[name], healths[name]
        found.append(Considered(
            name=name, usd_pico=expected_pico(deployment, health, facts),
            first_byte_s=expected_first_byte_s(deployment, health),
            why_not=_why_not(deployment, health, route, facts.surface, regions, now_s, tried),
        ))  # fmt: skip
    return found


def order(
    route: Route, facts: Facts, gateway: Gateway, healths: Mapping[str, DeploymentHealth], now_s: float, random: Random,
    *, tried: Sequence[str] = (),
) -> list[str]:  # fmt: skip
    """The deployments to try, best first."""
    names, regions = deployments_of(route, facts)
    deployments, usable = gateway.deployments, []
    for name in names:
        if _why_not(deployments[name], healths[name], route, facts.surface, regions, now_s, tried) is None:
            usable.append(name)
    if len(usable) < 2:
        return usable
    usable = _POLICIES[route.policy](_Choice(route, facts, gateway, healths, random), usable)
    if route.sticky and facts.prefix:
        usable.sort(key=lambda name: _affinity(facts.prefix, name), reverse=True)
    if route.first_byte_s is not None:
        promise_s = route.first_byte_s
        usable.sort(key=lambda name: (expected_first_byte_s(deployments[name], healths[name]) or 0.0) > promise_s)
    if facts.canary is not None and facts.canary in usable:
        usable.sort(key=lambda name: name != facts.canary)
    return usable


def deployments_of(route: Route, facts: Facts) -> tuple[tuple[str, ...], frozenset[str] | None]:
    """The deployments of the first rule that holds for a request, else the route's own; and where they must compute:
    a fallback does not lift what the route before it said."""
    for rule in route.rules:
        if rule.input_tokens_above is not None and facts.input_tokens <= rule.input_tokens_above:
            continue
        if rule.teams is not None and facts.caller.team not in rule.teams:
            continue
        if rule.keys is not None and facts.caller.name not in rule.keys:
            continue
        if facts.regions is None or rule.regions is None:
            return rule.deployments, facts.regions if rule.regions is None else rule.regions
        return rule.deployments, facts.regions & rule.regions
    if facts.canary is not None and route.canary is not None and route.canary.deployment == facts.canary:
        return (facts.canary, *route.deployments), facts.regions
    return route.deployments, facts.regions


def expected_pico(deployment: Deployment, health: DeploymentHealth, facts: Facts) -> int:
    """What a request is expected to cost: its input, and as many output tokens as the deployment's answers have had."""
    if facts.media is not None and deployment.media is not None:
        with suppress(NoPrice):  # such a deployment refuses by itself
            return facts.media.cost_pico(deployment.media, None)
        return DEAREST_PICO
    return deployment.rates.most_pico(facts.input_tokens, int(health.output_tokens))


def expected_first_byte_s(deployment: Deployment, health: DeploymentHealth) -> float | None:
    """When the first byte is expected: the mean so far, longer by the share of its places that are taken."""
    if health.first_byte_s is None:
        return None
    full = health.under_way / deployment.at_once if deployment.at_once else 0.0
    return health.first_byte_s * (1.0 + max(full - 0.5, 0.0) * 2.0)


def _why_not(
    deployment: Deployment, health: DeploymentHealth, route: Route, surface: Surface, regions: frozenset[str] | None,
    now_s: float, tried: Sequence[str],
) -> WhyNot | None:  # fmt: skip
    if deployment.name in tried:
        return "tried"
    if surface not in deployment.surfaces:
        return "dialect"
    if route.quality is not None and (deployment.quality or 0.0) < route.quality:
        return "quality"
    if regions is not None and deployment.region not in regions:
        return "region"
    return None if health.available(now_s) else "resting"


@dataclass(frozen=True, slots=True)
class _Choice:
    """What a policy may look at."""

    route: Route
    facts: Facts
    gateway: Gateway
    healths: Mapping[str, DeploymentHealth]
    random: Random

    def cost(self, name: str) -> int:
        return expected_pico(self.gateway.deployments[name], self.healths[name], self.facts)

    def first_byte_s(self, name: str) -> float:
        """0 where nothing is known: it is tried, and then known."""
        return expected_first_byte_s(self.gateway.deployments[name], self.healths[name]) or 0.0

    def full(self, name: str) -> float:
        """The share of its places that are taken."""
        at_once = self.gateway.deployments[name].at_once
        return self.healths[name].under_way / at_once if at_once else 0.0


def _in_order(_: _Choice, names: list[str]) -> list[str]:
    return names


def _own_first(choice: _Choice, names: list[str]) -> list[str]:
    """Own machines that have a place free, the emptiest first; then tokens, the cheapest first; full machines last."""

    def rank(name: str) -> tuple[int, float]:
        if not choice.gateway.deployments[name].own:
            return 1, float(choice.cost(name))
        return (0 if choice.full(name) < 1.0 else 2), choice.full(name)

    return sorted(names, key=rank)


def _cheapest(choice: _Choice, names: list[str]) -> list[str]:
    return sorted(names, key=choice.cost)


def _fastest(choice: _Choice, names: list[str]) -> list[str]:
    """Of two drawn at random the one expected to answer first, then the others by the same measure: the best of all
    would be found by every worker at once. Source: Mitzenmacher 2001, «The power of two choices»."""
    first = min(choice.random.sample(names, 2), key=choice.first_byte_s)
    return [first, *sorted((name for name in names if name != first), key=choice.first_byte_s)]


def _weighted(choice: _Choice, names: list[str]) -> list[str]:
    """Drawn without replacement, by weight."""
    weights = dict(zip(choice.route.deployments, choice.route.weights, strict=True))
    left, found = list(names), []
    while left:
        (one,) = choice.random.choices(left, [weights.get(name, 1.0) for name in left])
        found.append(one)
        left.remove(one)
    return found


def _affinity(prefix: bytes, name: str) -> bytes:
    """Rendezvous hashing: the order changes for few prefixes when a deployment comes or goes."""
    return blake2b(prefix, digest_size=8, key=name.encode()[:64]).digest()


_Order = Callable[["_Choice", list[str]], list[str]]
_POLICIES: dict[str, _Order] = {
    "in-order": _in_order, "own-first": _own_first, "cheapest": _cheapest, "fastest": _fastest, "weighted": _weighted,
}  # fmt: skip
