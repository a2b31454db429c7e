"""What would happen to a request, without sending it: `tonnage gateway explain`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from random import Random

from tonnage.gateway.file.conduct_entries import QueueEntry
from tonnage.gateway.file.described import Caller, Gateway, Route
from tonnage.gateway.file.guardrail_entries import Guardrail
from tonnage.gateway.guardrails.detectors import make_detector, replaced
from tonnage.gateway.guardrails.texts import text_slots
from tonnage.gateway.money.allowances import Allowance
from tonnage.gateway.money.shared_accounts import LedgerSpeed
from tonnage.gateway.observing.redaction import without_escapes
from tonnage.gateway.proxy.asked import OUTPUT_KEYS, GatewayRequest
from tonnage.gateway.proxy.bounds import UNSTATED_OUTPUT_TOKENS
from tonnage.gateway.routing.choosing import Considered, Facts, considered, holds, order
from tonnage.gateway.routing.classes import last_text, wanted_classes
from tonnage.gateway.routing.health import DeploymentHealth
from tonnage.gateway.semantic.questions import question_of
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
class RuleMet:
    """A rule of the route. `supposed`: a classifier would be asked first, and says what the asker supposes, or nothing;
    `adds_s`: how long it takes, by the ledger."""

    conditions: str
    deployments: tuple[str, ...]
    holds: bool
    taken: bool  # it is the first that holds
    classifier: str | None = None
    supposed: tuple[str, ...] = ()
    adds_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardrailCheck:
    """A guardrail of the request. `found`: the kinds of what it finds in it; None: a deployment would have to be
    asked."""

    rule: Guardrail
    found: tuple[str, ...] | None

    @property
    def refuses(self) -> bool:
        return bool(self.found) and self.rule.act == "refuse"


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
    compared: bool  # whether an answer to a question that means the same would be looked for
    checks: tuple[GuardrailCheck, ...]  # of what is asked
    language: str | None  # of the user's last text; None: not known, or no rule asks
    rules: tuple[RuleMet, ...]
    queue: QueueEntry | None  # where it may wait at a limit of requests at a time


def explain(
    gateway: Gateway, asked: GatewayRequest, caller: Caller, taken: dict[str, int], *,
    speeds: Mapping[str, LedgerSpeed], labels: Mapping[str, frozenset[str]],
) -> Explained:  # fmt: skip
    """`taken`: what is settled, by the id of an allowance in its present window; `speeds`: measured, by deployment,
    where there are any; `labels`: what classifiers would say, by name: they are not asked."""
    route = gateway.routes[asked.model]
    cached = route.cache is not None and (route.cache.when == "always" or asked.repeats)
    healths = {name: _health(one.first_byte_s, speeds.get(name)) for name, one in gateway.deployments.items()}
    classes = wanted_classes(gateway, route).read(last_text(asked))._replace(labels=labels)
    facts = Facts(
        surface=asked.surface, input_tokens=asked.input_tokens_estimate, caller=caller, prefix=asked.prefix,
        classes=classes,
    )  # fmt: skip
    seen = considered(route, facts, gateway, healths, 0.0)
    names = tuple(order(route, facts, gateway, healths, 0.0, Random(0)))
    held = {one.name: _held_pico(gateway, asked, route, one.name) for one in seen}
    # expected of answers as long as usual: this one's may be shorter, and costs at most what is held
    candidates = tuple(replace(one, usd_pico=min(one.usd_pico, held[one.name])) for one in seen)
    first = held[names[0]] if names else 0
    return Explained(
        route=route, caller=caller, most_input_tokens=asked.most_input_tokens(0),
        input_tokens_estimate=asked.input_tokens_estimate, candidates=candidates, order=names, held_pico=held,
        budgets=tuple(_budgeted(gateway.allowances_of(caller, route.name), asked, taken, first)),
        fallbacks=tuple(_fallbacks(gateway, route)),
        cached=cached, compared=cached and _is_compared(route, asked), queue=gateway.queue,
        checks=tuple(_checked(gateway, route, asked)), language=classes.language,
        rules=tuple(_rules(gateway, route, facts, speeds)),
    )  # fmt: skip


def _health(stated_first_byte_s: float | None, speed: LedgerSpeed | None) -> DeploymentHealth:
    if speed is None:
        return DeploymentHealth(stated_first_byte_s)
    found = DeploymentHealth(stated_first_byte_s if speed.first_byte_s is None else speed.first_byte_s)
    found.expect(token_s=speed.token_s, output_tokens=speed.output_tokens, request_s=speed.request_s)
    return found


def _rules(gateway: Gateway, route: Route, facts: Facts, speeds: Mapping[str, LedgerSpeed]) -> Iterator[RuleMet]:
    before = False
    for rule in route.rules:
        met, adds_s = holds(rule, facts), None
        if rule.classifier is not None and (speed := speeds.get(gateway.classifiers[rule.classifier].deployment)):
            adds_s = speed.request_s
        yield RuleMet(
            conditions=rule.conditions, deployments=rule.deployments, holds=met, taken=met and not before,
            classifier=rule.classifier, supposed=tuple(sorted(facts.classes.labels.get(rule.classifier or "", ()))),
            adds_s=adds_s,
        )  # fmt: skip
        before = before or met


def _is_compared(route: Route, asked: GatewayRequest) -> bool:
    semantic = None if route.cache is None else route.cache.semantic
    return semantic is not None and question_of(asked, semantic.most_chars) is not None


def _checked(gateway: Gateway, route: Route, asked: GatewayRequest) -> Iterator[GuardrailCheck]:
    """Each guardrail of what is asked, in its order; what one takes out the next does not see. Raises MissingExtra."""
    texts = [without_escapes(one.text) for one in text_slots(asked.said)]
    for name in route.guardrails:
        rule = gateway.guardrails[name]
        if "input" not in rule.on:
            continue
        detector = make_detector(rule)
        if detector is None:
            yield GuardrailCheck(rule=rule, found=None)
            continue
        each = [detector.find(text) for text in texts]
        yield GuardrailCheck(rule=rule, found=tuple(sorted({one.kind for found in each for one in found})))
        if rule.act == "redact":
            texts = [replaced(text, found) for text, found in zip(texts, each, strict=True)]


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
