"""What would happen to a request, without sending it: `tonnage gateway explain`."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from tonnage.gateway.file.described import Caller, Gateway, Route
from tonnage.gateway.money.allowances import Allowance
from tonnage.gateway.proxy.asked import OUTPUT_KEYS, GatewayRequest
from tonnage.gateway.proxy.bounds import UNSTATED_OUTPUT_TOKENS
from tonnage.gateway.routing.choosing import Considered, Facts, considered, order
from tonnage.gateway.routing.health import DeploymentHealth
from tonnage.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Budgeted:
    """An allowance of a request: what is settled of it in its present window, and what the request would hold."""

    allowance: Allowance
    taken: int
    needs: int

    @property
    def refuses(self) -> bool:
        return self.allowance.hard and self.taken + self.needs > self.allowance.cap


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    """`order`: the deployments in the order in which they would be tried; `fallbacks`: the routes after this one."""

    route: Route
    caller: Caller
    most_input_tokens: int
    input_tokens_estimate: int
    candidates: tuple[Considered, ...]
    order: tuple[str, ...]
    held_pico: dict[str, int]  # by deployment: what a request there would hold at most
    budgets: tuple[Budgeted, ...]
    fallbacks: tuple[str, ...]
    cached: bool  # whether its answer would be kept and given again


def explain(
    gateway: Gateway, asked: GatewayRequest, caller: Caller, taken: dict[str, int], *, first_bytes: dict[str, float]
) -> Explained:
    """`taken`: what is settled, by the id of an allowance in its present window; `first_bytes`: measured
    seconds to the first byte, by deployment, where there are any."""
    route = gateway.routes[asked.model]
    healths = {
        name: DeploymentHealth(first_bytes.get(name, one.first_byte_s)) for name, one in gateway.deployments.items()
    }
    facts = Facts(surface=asked.surface, input_tokens=asked.input_tokens_estimate, caller=caller, prefix=asked.prefix)
    candidates = tuple(considered(route, facts, gateway, healths, 0.0))
    names = tuple(order(route, facts, gateway, healths, 0.0, Random(0)))
    held = {one.name: _held_pico(gateway, asked, route, one.name) for one in candidates}
    first = held[names[0]] if names else 0
    return Explained(
        route=route, caller=caller, most_input_tokens=asked.most_input_tokens(0),
        input_tokens_estimate=asked.input_tokens_estimate, candidates=candidates, order=names, held_pico=held,
        budgets=tuple(_budgeted(gateway.allowances_of(caller, route.name), asked, taken, first)),
        fallbacks=tuple(_fallbacks(gateway, route)),
        cached=route.cache is not None and (route.cache.when == "always" or asked.repeats),
    )  # fmt: skip


def _held_pico(gateway: Gateway, asked: GatewayRequest, route: Route, name: str) -> int:
    one = gateway.deployments[name]
    outputs = 0
    if OUTPUT_KEYS[asked.surface]:
        outputs = asked.max_tokens or route.max_tokens or one.max_output_tokens or UNSTATED_OUTPUT_TOKENS
    inputs = asked.most_input_tokens(one.image_tokens, one.stored_tokens)
    return one.rates.most_pico(inputs, outputs * asked.answers)


def _budgeted(
    allowances: Sequence[Allowance], asked: GatewayRequest, taken: dict[str, int], usd_pico: int
) -> list[Budgeted]:
    found = []
    for one in allowances:
        needs = usd_pico if one.unit == "usd" else asked.input_tokens_estimate if one.unit == "tokens" else 1
        found.append(Budgeted(allowance=one, taken=taken.get(one.id, 0), needs=needs))
    return found


def _fallbacks(gateway: Gateway, route: Route) -> list[str]:
    found, at = [], route.fallback
    while at is not None:
        found.append(at)
        at = gateway.routes[at].fallback
    return found
