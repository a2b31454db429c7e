"""The guardrails of a route: what is asked is checked before it is sent, what is answered before it goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import orjson

from tonnage.gateway.file.guardrail_entries import Guardrail, Side
from tonnage.gateway.guardrails.checked_exchange import Blocked, CheckedExchange
from tonnage.gateway.guardrails.classifier import CheckFailed, Classifier
from tonnage.gateway.guardrails.detectors import DetectedText, Detector, disjoint, make_detector, replaced
from tonnage.gateway.guardrails.texts import text_slots, unreadable_tokens
from tonnage.gateway.measures import GatewayMeasures
from tonnage.gateway.media.asked import read_media
from tonnage.gateway.money.book import SpendBook
from tonnage.gateway.observing.redaction import without_escapes
from tonnage.gateway.proxy.asked import GatewayRequest, UnreadableRequest, read_asked
from tonnage.gateway.proxy.replies import GatewayReply, send_reply
from tonnage.gateway.proxy.running import Running

if TYPE_CHECKING:
    from tonnage.gateway.proxy.journey import Journey

BESIDE_CHARS: Final = 16 << 10  # texts that are longer are looked through beside the event loop


class Rule:
    """A guardrail with what looks for it."""

    def __init__(self, said: Guardrail, detector: Detector | None, classifier: Classifier | None) -> None:
        self.said, self._detector, self._classifier = said, detector, classifier

    async def find(self, texts: Sequence[str], journey: Journey) -> list[list[DetectedText]]:
        """What is found in each text; a classifier's labels stand for the first. Raises CheckFailed."""
        if self._classifier is not None:
            labels = await self._classifier.labels(
                [one for one in texts if one.strip()], caller=journey.caller, route=journey.route.name,
                request=journey.request,
            )  # fmt: skip
            return [[DetectedText(0, len(texts[0]), one) for one in sorted(labels)] if texts else []]
        assert self._detector is not None
        find = self._detector.find
        if self._detector.slow or sum(map(len, texts)) > BESIDE_CHARS:
            try:
                return await asyncio.to_thread(lambda: [find(one) for one in texts])
            except Exception as error:  # of a library: whatever it is, the rule says what follows
                raise CheckFailed(f"{type(error).__name__} in the detector") from error
        return [find(one) for one in texts]


class RouteGuard:
    """The rules of one route, in their order."""

    def __init__(self, rules: Sequence[Rule], measures: GatewayMeasures) -> None:
        self._measures = measures
        self._of: dict[Side, tuple[Rule, ...]] = {
            "input": tuple(one for one in rules if "input" in one.said.on),
            "output": tuple(one for one in rules if "output" in one.said.on),
        }

    @property
    def holds_whole(self) -> bool:
        """Whether streams are held back to their end."""
        return any(one.said.whole for one in self._of["output"])

    async def through(self, journey: Journey, carry: Callable[[Journey], Awaitable[None]]) -> None:
        """Carry a request within the rules."""
        try:
            await self._read(journey)
        except (Blocked, UnreadableRequest) as error:
            reply = error.reply if isinstance(error, Blocked) else GatewayReply(
                status=error.status, kind=error.kind, message=str(error)
            )  # fmt: skip
            if journey.record is not None:
                journey.record.reply = reply
            head = b"x-tonnage-request-id: %b\r\n" % journey.request.encode()
            send_reply(journey.exchange, reply, journey.asked.surface, head)
            return
        if not self._of["output"]:
            await carry(journey)
            return
        checked = CheckedExchange(journey.exchange, self, journey)
        journey.exchange = checked
        await carry(journey)
        await checked.finished()

    async def _read(self, journey: Journey) -> None:
        """Check what is asked; what is redacted goes on in the place of what came. Raises Blocked."""
        if not self._of["input"]:
            return
        asked = journey.asked
        if (field := unreadable_tokens(asked.said)) is not None:
            for rule in self._of["input"]:
                self._failed(rule, "input", f"`{field}` has a text as numbers of tokens, which no rule can read")
        slots = text_slots(asked.said)
        before = [without_escapes(one.text) for one in slots]
        after = await self.check("input", before, journey)
        changed = False
        for slot, old, new in zip(slots, before, after, strict=True):
            if new != old:
                slot.put(new)
                changed = True
        if changed:
            if asked.media is not None and asked.media.model_place is not None:
                message = "what the guardrails found cannot be replaced in a form: send it without"
                raise Blocked(GatewayReply(status=400, kind="guardrail_refused", message=message))
            try:
                journey.ask_instead(_read_again(asked, orjson.dumps(asked.said)))
            except orjson.JSONEncodeError as error:
                raise UnreadableRequest(f"the body cannot be passed on: {error}") from error

    async def check(self, side: Side, texts: Sequence[str], journey: Journey) -> list[str]:
        """The texts as they may go on. Raises Blocked."""
        now = list(texts)

        def redact(found: list[list[DetectedText]]) -> None:
            for at, findings in enumerate(found):
                if findings:
                    now[at] = replaced(now[at], findings)

        await self.look(side, lambda: now, redact, journey, seen=[0] * len(now))
        return now

    async def look(
        self, side: Side, texts: Callable[[], Sequence[str]], redact: Callable[[list[list[DetectedText]]], None],
        journey: Journey, *, seen: Sequence[int],
    ) -> None:  # fmt: skip
        """Each rule of a side looks at the texts as the one before left them. `seen`: letters at the beginning of each
        that it has looked at already. Raises Blocked."""
        for rule in self._of[side]:
            said = rule.said
            try:
                found = await rule.find(texts(), journey)
            except CheckFailed as failed:
                self._failed(rule, side, str(failed))
                continue
            found = [[one for one in findings if one.end > past] for findings, past in zip(found, seen, strict=False)]
            kinds = sorted({one.kind for findings in found for one in findings})
            if not kinds:
                self._count(rule, side, "clean")
                continue
            if journey.record is not None:
                journey.record.guard = said.name
            if said.act == "refuse":
                self._count(rule, side, "refused")
                raise Blocked(_refusal(said, side, kinds))
            if said.act == "redact":
                redact([disjoint(one) for one in found])
            self._count(rule, side, "redacted" if said.act == "redact" else "reported")

    def _failed(self, rule: Rule, side: Side, why: str) -> None:
        """A rule that could not look refuses, or lets pass, as it says. Raises Blocked."""
        self._count(rule, side, "failed")
        if not rule.said.fails_open:
            message = f"the rule {rule.said.name!r} could not check the {side}: {why}"
            raise Blocked(
                GatewayReply(status=503, kind="guardrail_failed", message=message, retry_after_s=1.0,
                      more=(("rule", rule.said.name), ("on", side)))
            )  # fmt: skip

    def _count(self, rule: Rule, side: Side, met: str) -> None:
        labels = (("rule", rule.said.name), ("on", side), ("met", met))
        self._measures.count("tonnage_gateway_guardrails_total", labels)


def _read_again(asked: GatewayRequest, body: bytes) -> GatewayRequest:
    if asked.media is None:
        return read_asked(asked.surface, body)
    return read_media(asked.surface, [(b"content-type", asked.media.content_type)], body)


def _refusal(said: Guardrail, side: Side, kinds: Sequence[str]) -> GatewayReply:
    """Names the rule and what kinds it found, never what was said."""
    what = "request" if side == "input" else "answer"
    return GatewayReply(
        status=400, kind="guardrail_refused",
        message=f"the {what} was refused by the rule {said.name!r}, which found {', '.join(kinds)}",
        more=(("rule", said.name), ("on", side), ("found", list(kinds))),
    )  # fmt: skip


def make_guards(running: Running, book: SpendBook, measures: GatewayMeasures) -> Mapping[str, RouteGuard]:
    """By route, those that have rules. Raises MissingExtra, InputError."""
    gateway = running.gateway
    named = {name for route in gateway.routes.values() for name in route.guardrails}
    rules = {}
    for name in named:
        said = gateway.guardrails[name]
        detector = make_detector(said)
        classifier = None if detector else Classifier(said, said.deployment, running, book, "guardrail")
        rules[name] = Rule(said, detector, classifier)
    return {
        name: RouteGuard([rules[one] for one in route.guardrails], measures)
        for name, route in gateway.routes.items()
        if route.guardrails
    }
