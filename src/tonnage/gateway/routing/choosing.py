"""The order in which a route's deployments are tried, and why another one is not among them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from math import inf
from random import Random
from statistics import fmean
from typing import Final, Literal, NamedTuple

from tonnage.gateway.dialects.usage import Surface
from tonnage.gateway.file.described import Caller, Deployment, Gateway, Route, RouteRule
from tonnage.gateway.file.guardrail_entries import UNKNOWN_LANGUAGE
from tonnage.gateway.media.asked import MediaAsk, NoPrice
from tonnage.gateway.proxy.asked import OUTPUT_KEYS
from tonnage.gateway.routing.classes import UNCLASSIFIED, RequestClasses
from tonnage.gateway.routing.health import DeploymentHealth
from tonnage.values import dataclass

DEAREST_PICO: Final = 1 << 60  # of what has no price: tried last
WhyNot = Literal["dialect", "resting", "quality", "region", "tried"]


class Facts(NamedTuple):
    """What is known of a request before it is sent. `input_tokens`: an estimate; `prefix`: how its text begins;
    `regions`: where an earlier route's rule says that it must be computed;
    `canary`: the new deployment that it is to try first; `classes`: what rules ask of its text."""

    surface: Surface
    input_tokens: int
    caller: Caller
    prefix: bytes = b""
    regions: frozenset[str] | None = None
    media: MediaAsk | None = None
    canary: str | None = None
    classes: RequestClasses = UNCLASSIFIED


@dataclass(frozen=True, slots=True, kw_only=True)
class Considered:
    """A deployment as the policy sees it: expected cost and times of this request, or why it is not used."""

    name: str
    usd_pico: int
    first_byte_s: float | None
    answer_s: float | None  # to its end, the wait for a place included
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
    outputs, found = expected_output_tokens(facts.surface, [healths[name] for name in names]), []
    for name in names:
        deployment, health = gateway.deployments[name], healths[name]
        found.append(Considered(
            name=name, usd_pico=expected_pico(deployment, health, facts),
            first_byte_s=expected_first_byte_s(deployment, health),
            answer_s=expected_answer_s(deployment, health, outputs, gateway.listen.workers),
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
    if route.answer_s is not None:
        ends_s = route.answer_s
        outputs = expected_output_tokens(facts.surface, [healths[name] for name in usable])
        workers = gateway.listen.workers
        usable.sort(key=lambda name: (
            (expected_answer_s(deployments[name], healths[name], outputs, workers) or 0.0) > ends_s
        ))  # fmt: skip
    if facts.canary is not None and facts.canary in usable:
        usable.sort(key=lambda name: name != facts.canary)
    return usable


def deployments_of(route: Route, facts: Facts) -> tuple[tuple[str, ...], frozenset[str] | None]:
    """The deployments of the first rule that holds for a request, else the route's own; and where they must compute:
    a fallback does not lift what the route before it said."""
    for rule in route.rules:
        if not holds(rule, facts):
            continue
        if facts.regions is None or rule.regions is None:
            return rule.deployments, facts.regions if rule.regions is None else rule.regions
        return rule.deployments, facts.regions & rule.regions
    if facts.canary is not None and route.canary is not None and route.canary.deployment == facts.canary:
        return (facts.canary, *route.deployments), facts.regions
    return route.deployments, facts.regions


def holds(rule: RouteRule, facts: Facts) -> bool:
    """Whether every condition of a rule is met. What is not known of a text meets none but `unknown`."""
    if rule.input_tokens_above is not None and facts.input_tokens <= rule.input_tokens_above:
        return False
    if rule.teams is not None and facts.caller.team not in rule.teams:
        return False
    if rule.keys is not None and facts.caller.name not in rule.keys:
        return False
    if rule.languages is not None and (facts.classes.language or UNKNOWN_LANGUAGE) not in rule.languages:
        return False
    if rule.words is not None and facts.classes.words.isdisjoint(rule.words):
        return False
    return rule.classifier is None or not rule.labels.isdisjoint(facts.classes.labels.get(rule.classifier, ()))


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


def expected_output_tokens(surface: Surface, healths: Sequence[DeploymentHealth]) -> float:
    """Of one request, the same wherever it goes: what answers have had, the mean of deployments; 0: it writes none."""
    return fmean(one.output_tokens for one in healths) if OUTPUT_KEYS.get(surface) and healths else 0.0


def expected_answer_s(
    deployment: Deployment, health: DeploymentHealth, output_tokens: float, workers: int
) -> float | None:
    """When its answer is expected to be whole. Workers share the places of a deployment, each sees its own requests."""
    places = None if deployment.at_once is None else deployment.at_once / workers
    return health.answer_s(output_tokens, places)


def _why_not(
    deployment: Deployment, health: DeploymentHealth, route: Route, surface: Surface, regions: frozenset[str] | None,
    now_s: float, tried: Sequence[str],
) -> WhyNot | None:  # fmt: skip
    if deployment.name in tried:
        return "tried"
    if surface not in deployment.surfaces:
        return "dialect"
    if route.quality is not None:
        score = deployment.quality
        if not route.quality_unknown if score is None else score.value < route.quality:
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

    def wait(self, name: str, output_tokens: float) -> tuple[float, int]:
        """Predicted seconds to the end of an answer, then requests in flight. One of which nothing is known is tried
        by one request at a time, and then known; others go to those that are, or to the emptiest."""
        gateway, health = self.gateway, self.healths[name]
        found = expected_answer_s(gateway.deployments[name], health, output_tokens, gateway.listen.workers)
        if found is None:
            found = inf if health.under_way else 0.0
        return found, health.under_way

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
    """Of two drawn at random the one with the shorter predicted wait, then the others by the same measure: the best of
    all would be found by every worker at once. Source: Mitzenmacher 2001, «The power of two choices»."""
    outputs = expected_output_tokens(choice.facts.surface, [choice.healths[name] for name in names])
    waits = {name: choice.wait(name, outputs) for name in names}
    first = min(choice.random.sample(names, 2), key=waits.__getitem__)
    return [first, *sorted((name for name in names if name != first), key=waits.__getitem__)]


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
