"""A request from its reading to its settlement: deployments in turn, a hold for each attempt, one owner of retries.

Another attempt is made before the first byte has gone to the client, and never after it. Every attempt that reached
the wire is settled once and stands in the ledger: by the upstream's own count where it gave one, else by an estimate
that is marked as such.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from time import monotonic, time
from typing import Any, Final, Protocol

import orjson

from tonnage.errors import TonnageError
from tonnage.gateway.caching import AnswerCache
from tonnage.gateway.dialects.usage import Usage, read_usage
from tonnage.gateway.file.described import Caller, Deployment, Route
from tonnage.gateway.measures import Measures
from tonnage.gateway.money.allowances import Amounts
from tonnage.gateway.money.book import Book, Hold, Outcome, Refused, Who
from tonnage.gateway.money.rates import PICO_PER_USD, usd_text
from tonnage.gateway.proxy.asked import BYTES_PER_TOKEN, OUTPUT_KEYS, Asked, with_model
from tonnage.gateway.proxy.replies import Reply, refusal, send_reply
from tonnage.gateway.proxy.running import Running
from tonnage.gateway.proxy.server import Exchange
from tonnage.gateway.proxy.tap import UsageTap
from tonnage.gateway.routing.choosing import Facts, order
from tonnage.http.upstream import Connection, Headers, UpstreamFault

TARGETS: Final = {
    "chat": b"/chat/completions", "completions": b"/completions", "responses": b"/responses",
    "embeddings": b"/embeddings", "messages": b"/messages",
}  # fmt: skip
PASSED_ON: Final = frozenset((b"anthropic-version", b"anthropic-beta", b"openai-beta", b"traceparent", b"tracestate"))
BUSY: Final = frozenset((429, 503, 529))
UNCERTAIN: Final = frozenset((502, 504))  # of a proxy between: what is behind it may have computed, and billed
UNCERTAIN_S: Final = 600.0  # a hold whose attempt may have been billed is kept so long, then settled by estimate
LARGEST_ANSWER_BYTES: Final = 64 << 20
LONGEST_REST_S: Final = 300.0  # of a Retry-After
SECOND_ROUND_S: Final = 0.1
_LIMIT_WORDS: Final = (b"rate_limit", b"rate limit", b"throttl", b"Throttl", b"insufficient_quota", b"overloaded", b"too many requests", b"Too many")


class Tracker(Protocol):
    """What a journey tells the worker."""

    def keep_uncertain(self, hold: Hold, outcome: Outcome) -> None: ...


class Journey:
    """One request. `run` answers the client, whatever happens."""

    def __init__(
        self, running: Running, book: Book, measures: Measures, tracker: Tracker, asked: Asked, caller: Caller,
        route: Route, *, exchange: Exchange, request: str, began_s: float,
    ) -> None:  # fmt: skip
        self.running, self.book, self.measures, self.tracker = running, book, measures, tracker
        self.asked, self.caller, self.route = asked, caller, route
        self.exchange, self.request, self.began_s = exchange, request, began_s
        self.facts = Facts(input_tokens=asked.input_tokens_estimate, caller=caller, prefix=asked.prefix)
        self.first_try = True
        self.cache: AnswerCache | None = None
        self.cache_key = b""

    async def run(self) -> None:
        reply = None
        route: Route | None = self.route
        while route is not None:
            reply, final = await self._on(route)
            if reply is None or final:
                break
            route = None if route.fallback is None else self.running.gateway.routes[route.fallback]
        if reply is not None:
            self._count(reply.status, "none")
            send_reply(self.exchange, reply, self.asked.surface, b"x-tonnage-request-id: %b\r\n" % self.request.encode())

    async def _on(self, route: Route) -> tuple[Reply | None, bool]:
        """Try a route's deployments: (None, …) once the client is answered; else what it would be told, and whether
        no other route may do better."""
        budget = self.running.retries[route.name]
        budget.request(monotonic())
        reply, tried = None, list[str]()
        for _ in range(route.retry.attempts):
            names = order(route, self.facts, self.running.gateway, self.running.healths, monotonic(), self.running.random, tried=tried)
            if not names and tried:  # all were asked: once more, after a rest
                await asyncio.sleep(SECOND_ROUND_S)
                names, tried = order(route, self.facts, self.running.gateway, self.running.healths, monotonic(), self.running.random), []
            if not names:
                break
            if not self.first_try and not budget.take(monotonic()):
                break
            tried.append(names[0])
            attempt = Attempt(self, route, self.running.gateway.deployments[names[0]])
            reply, again = await attempt.run()
            if reply is None or not again:
                return reply, True
            if attempt.sent:
                self.first_try = False
                self.measures.count("tonnage_gateway_retries_total", (("deployment", names[0]),))
        return reply or self._nobody(route), False

    def _nobody(self, route: Route) -> Reply:
        """Every deployment rests, is below the quality, or elsewhere."""
        waits = [health.not_before_s - monotonic() for name, health in self.running.healths.items() if name in route.deployments]
        return Reply(
            status=503, kind="no_deployment", message=f"no deployment of {route.name} takes requests now",
            retry_after_s=max(min(waits, default=1.0), 1.0),
        )  # fmt: skip

    def _count(self, status: int, deployment: str) -> None:
        self.measures.count(
            "tonnage_gateway_requests_total",
            (("route", self.route.name), ("deployment", deployment), ("status", str(status))),
        )


class Attempt:
    """One attempt at one deployment. `sent`: something went over the wire."""

    def __init__(self, journey: Journey, route: Route, deployment: Deployment) -> None:
        self.journey, self.route, self.deployment = journey, route, deployment
        self.asked, self.book, self.measures = journey.asked, journey.book, journey.measures
        self.health = journey.running.healths[deployment.name]
        self.sent = False
        self.status = 0
        self.first_byte_s: float | None = None
        self.began_s = monotonic()

    async def run(self) -> tuple[Reply | None, bool]:
        """(None, …) once the client is answered; else what it would be told, and whether another attempt may help."""
        try:
            most_output, hold = await self._hold()
        except Refused as refused:
            self.measures.count("tonnage_gateway_refused_total", (("limit", refused.allowance.id),))
            return refusal(refused, time()), refused.allowance.scope == "deployment"
        except TooDear as dear:
            return Reply(status=400, kind="request_too_dear", message=str(dear), param=OUTPUT_KEYS[self.asked.surface][0]), False
        except (TonnageError, OSError) as error:
            return Reply(status=503, kind="accounts_unavailable", message=f"the accounts take nothing now: {error}", retry_after_s=1.0), False
        self.hold = hold
        self.health.begin()
        try:
            async with asyncio.timeout(self.deployment.timeouts.total):
                return await self._asked(most_output)
        except TimeoutError:
            self._failed("total-timeout", uncertain=True)
            return Reply(status=504, kind="timeout", message=f"{self.deployment.name} gave no whole answer in {self.deployment.timeouts.total:g} s"), not self.journey.exchange.begun
        except asyncio.CancelledError:
            self._failed("cancelled", uncertain=True)
            raise

    # before it is sent

    async def _hold(self) -> tuple[int | None, Hold]:
        """Take what the request can cost at most. (output tokens that the upstream is told, None: as the client said)."""
        asked, deployment, journey = self.asked, self.deployment, self.journey
        allowances = (*journey.running.allowances(journey.caller, journey.route.name), *deployment.allowances)
        inputs = asked.most_input_tokens(deployment.image_tokens)
        outputs, told = await self._output_tokens(allowances, inputs)
        most = deployment.rates.most_pico(inputs, outputs * asked.answers)
        if self.route.most_usd_pico is not None and most > self.route.most_usd_pico:
            raise TooDear(most, self.route.most_usd_pico)
        amounts = Amounts(usd_pico=most, tokens=asked.input_tokens_estimate + outputs * asked.answers)
        who = Who(
            key=journey.caller.name, team=journey.caller.team, project=journey.caller.project,
            route=journey.route.name, deployment=deployment.name,
        )  # fmt: skip
        hold = await self.book.hold(
            allowances, amounts, who=who, request=journey.request, lost_usd_pico=self._estimate_pico()
        )
        return told, hold

    async def _output_tokens(self, allowances: tuple[Any, ...], inputs: int) -> tuple[int, int | None]:
        """(the most output tokens of one answer, those that the upstream must be told because nobody stated any)."""
        asked, deployment = self.asked, self.deployment
        if not OUTPUT_KEYS[asked.surface]:
            return 0, None
        if asked.max_tokens is not None:
            return asked.max_tokens, None
        if self.route.max_tokens is not None:
            return self.route.max_tokens, self.route.max_tokens
        left = self.book.left(allowances)
        if left is None:
            return deployment.max_output_tokens or int(self.health.output_tokens), None
        rates, answers = deployment.rates, asked.answers
        most = deployment.max_output_tokens
        if most is not None and rates.most_pico(inputs, most * answers) <= left:
            return most, None
        await self.book.lease_all(allowances)
        left = self.book.left(allowances) or 0
        if most is not None and rates.most_pico(inputs, most * answers) <= left:
            return most, None
        affordable = max(rates.affordable_output_tokens(inputs, left) // answers, 1)
        affordable = affordable if most is None else min(affordable, most)
        return affordable, affordable

    def _estimate_pico(self) -> int:
        """What the attempt is expected to cost, where nobody will say."""
        outputs = min(int(self.health.output_tokens), self.asked.max_tokens or 1 << 30) if OUTPUT_KEYS[self.asked.surface] else 0
        return self.deployment.rates.most_pico(self.asked.input_tokens_estimate, outputs)

    def _request(self, told: int | None) -> tuple[bytes, Headers, bytes]:
        """Target, headers and body for the upstream."""
        asked, deployment = self.asked, self.deployment
        add: dict[str, Any] = {}
        if told is not None:
            add[OUTPUT_KEYS[asked.surface][0]] = told
        if asked.stream and asked.surface in ("chat", "completions") and not asked.wants_usage:
            add["stream_options"] = {**(asked.said.get("stream_options") or {}), "include_usage": True}
        body = with_model(asked, deployment.model, add=add)
        target = TARGETS[asked.surface]
        headers = [(b"content-type", b"application/json"), (b"accept-encoding", b"identity")]
        headers += [(name, value) for name, value in self.journey.exchange.headers if name in PASSED_ON]
        signer = self.journey.running.signers.get(deployment.name)
        if signer is not None:
            to = deployment.endpoint
            url = f"{'https' if to.secure else 'http'}://{to.authority}{to.path}{target.decode()}"
            headers += signer.headers("POST", url, body, time())
        return target, headers, body

    # on the wire

    async def _asked(self, told: int | None) -> tuple[Reply | None, bool]:
        target, headers, body = self._request(told)
        upstream = self.journey.running.upstreams[self.deployment.name]
        if self.journey.first_try:
            self.measures.time("tonnage_gateway_added_seconds", monotonic() - self.journey.began_s)
        asked_s = monotonic()
        try:
            answer = await upstream.ask("POST", target, headers, body)
        except UpstreamFault as fault:
            self.sent = fault.sent
            self._failed(fault.kind, uncertain=fault.sent and fault.kind in ("first-byte", "silence"))
            return self._no_answer(fault), True
        self.sent, self.status = True, answer.status
        self.first_byte_s = monotonic() - asked_s
        if answer.status == 200:
            return await (self._stream(answer, told) if answer.streams else self._whole(answer, told))
        return await self._refused(answer)

    def _no_answer(self, fault: UpstreamFault) -> Reply:
        status = 504 if fault.kind in ("first-byte", "silence") else 502
        return Reply(status=status, kind="upstream_failed", message=f"{self.deployment.name} gave no answer: {fault}", retry_after_s=1.0)

    async def _refused(self, answer: Connection) -> tuple[Reply | None, bool]:
        """An answer that is none: too busy, broken, or the client's own fault."""
        status = answer.status
        try:
            body = await _all(answer)
        except UpstreamFault as fault:
            self._failed(fault.kind, uncertain=False)
            return self._no_answer(fault), True
        if status in BUSY or (status == 400 and any(word in body for word in _LIMIT_WORDS)):
            wait_s = min(_retry_after(answer) or 1.0, LONGEST_REST_S)
            self.health.leave()
            self.health.wait(monotonic() + wait_s)
            self._settle(0, 0, None, outcome="busy")
            return Reply(status=429 if status == 400 else status, kind="rate_limit_exceeded", message=f"{self.deployment.name} takes no more requests now", retry_after_s=wait_s), True
        if status >= 500 or status in (401, 403, 408):
            self._failed(f"status-{status}", uncertain=status in UNCERTAIN)
            shown = "refused the gateway's sign-in" if status in (401, 403) else f"answered {status}"
            return Reply(status=502, kind="upstream_failed", message=f"{self.deployment.name} {shown}"), True
        self.health.leave()
        self._settle(0, 0, None, outcome="refused")
        self._send_whole(status, _kind(answer), body)
        return None, False

    async def _whole(self, answer: Connection, told: int | None) -> tuple[Reply | None, bool]:
        try:
            body = await _all(answer)
        except UpstreamFault as fault:
            self._failed(fault.kind, uncertain=True)
            return self._no_answer(fault), True
        try:
            said = orjson.loads(body)
        except orjson.JSONDecodeError:
            self._failed("not-json", uncertain=True)
            return Reply(status=502, kind="upstream_failed", message=f"{self.deployment.name} answered what is no JSON"), True
        usage = read_usage(self.asked.surface, said) if isinstance(said, Mapping) else None
        usd_pico = self._done(usage, written_bytes=len(body), outcome="ok")
        self._keep(_kind(answer), body, usd_pico)
        self._send_whole(200, _kind(answer), body, told=told, usd_pico=usd_pico)
        return None, False

    def _send_whole(
        self, status: int, kind: bytes, body: bytes, *, told: int | None = None, usd_pico: int | None = None
    ) -> None:
        self.journey._count(status, self.deployment.name)
        head = self._head(kind, told)
        if usd_pico is not None:
            head += b"x-tonnage-cost-usd: %b\r\n" % usd_text(usd_pico).encode()
        self.journey.exchange.answer(status, head, body)

    async def _stream(self, answer: Connection, told: int | None) -> tuple[Reply | None, bool]:
        """Pieces as they come. Before the first one another attempt can be made; after it a fault ends the stream."""
        asked, exchange = self.asked, self.journey.exchange
        tap = UsageTap(asked.surface, strip=not asked.wants_usage)
        keeping: list[bytes] | None = [] if self.journey.cache is not None else None
        gone_s: float | None = None
        fault: UpstreamFault | None = None
        try:
            while (piece := await answer.read()) is not None:
                passed = tap.feed(piece)
                if passed and gone_s is None:
                    if not exchange.begun:
                        exchange.begin(200, b"cache-control: no-cache\r\n" + self._head(_kind(answer), told))
                    await exchange.piece(passed)
                    if keeping is not None:
                        keeping.append(passed)
                if gone_s is None and exchange.gone:
                    gone_s = monotonic()
                    self.measures.count("tonnage_gateway_gone_total")
                if gone_s is not None and monotonic() - gone_s > self.journey.running.gateway.after_disconnect_s:
                    answer.abort()
                    break
        except UpstreamFault as error:
            fault = error
        whole = fault is None and tap.finished
        if not whole and not exchange.begun and gone_s is None:
            self._failed("cut", uncertain=True)
            return Reply(status=502, kind="upstream_failed", message=f"{self.deployment.name} broke off its answer"), True
        outcome = "ok" if whole else "client gone" if gone_s is not None else "cut"
        usd_pico = self._done(tap.usage, written_bytes=tap.bytes, outcome=outcome, events=tap.events)
        self.journey._count(200, self.deployment.name)
        if gone_s is not None:
            return None, False
        if whole:
            if keeping is not None:
                self._keep(_kind(answer), b"".join(keeping), usd_pico)
            exchange.end(tap.end())
            return None, False
        broken = Reply(status=502, kind="upstream_failed", message=f"{self.deployment.name} broke off its answer: {fault or 'no end'}")
        exchange.end(tap.end() + broken.event(asked.surface), whole=False)
        return None, False

    # the end

    def _head(self, kind: bytes, told: int | None) -> bytes:
        request, name = self.journey.request.encode(), self.deployment.name.encode()
        head = b"content-type: %b\r\nx-tonnage-request-id: %b\r\nx-tonnage-deployment: %b\r\n" % (kind, request, name)
        return head if told is None else b"%bx-tonnage-max-tokens: %d\r\n" % (head, told)

    def _keep(self, kind: bytes, body: bytes, usd_pico: int) -> None:
        if self.journey.cache is not None:
            self.journey.cache.put(
                self.journey.cache_key, status=200, content_type=kind, body=body, usd_pico=usd_pico,
                deployment=self.deployment.name,
            )  # fmt: skip

    def _done(self, usage: Usage | None, *, written_bytes: int, outcome: str, events: int = 0) -> int:
        """Settle an answer: by its usage, else by what was seen of it. Pico-dollars."""
        if self.first_byte_s is not None and outcome != "cut":
            self.health.succeed(self.first_byte_s, None if usage is None else usage.output_tokens)
        else:
            self.health.fail(monotonic())
            self.measures.count("tonnage_gateway_faults_total", (("deployment", self.deployment.name), ("kind", outcome)))
        counted = usage or Usage(
            input_tokens=self.asked.input_tokens_estimate,
            output_tokens=(events or written_bytes // BYTES_PER_TOKEN) if OUTPUT_KEYS[self.asked.surface] else 0,
        )
        usd_pico = self.deployment.rates.cost_pico(counted)
        if usd_pico > self.hold.amounts.usd_pico:
            self.measures.count("tonnage_gateway_over_hold_total", (("deployment", self.deployment.name),))
        self._settle(usd_pico, counted.input_tokens + counted.output_tokens, counted, outcome=outcome, estimated=usage is None)
        return usd_pico

    def _failed(self, kind: str, *, uncertain: bool) -> None:
        """An attempt without an answer. Where it may have been billed, its hold stays until that is settled."""
        self.health.fail(monotonic())
        self.measures.count("tonnage_gateway_faults_total", (("deployment", self.deployment.name), ("kind", kind)))
        if uncertain and not self.hold.settled:
            usd_pico = self._estimate_pico()
            outcome = self._outcome(usd_pico, self.asked.input_tokens_estimate, None, outcome=kind, estimated=True)
            self.journey.tracker.keep_uncertain(self.hold, outcome)
        elif self.sent:
            self._settle(0, 0, None, outcome=kind)
        else:
            self.book.settle(self.hold, None)

    def _settle(self, usd_pico: int, tokens: int, usage: Usage | None, *, outcome: str, estimated: bool = False) -> None:
        self.book.settle(self.hold, self._outcome(usd_pico, tokens, usage, outcome=outcome, estimated=estimated))
        labels = (("route", self.route.name), ("deployment", self.deployment.name))
        measures = self.measures
        measures.time("tonnage_gateway_latency_seconds", monotonic() - self.began_s, labels)
        if self.first_byte_s is not None:
            measures.time("tonnage_gateway_first_byte_seconds", self.first_byte_s, labels)
        if usage is not None:
            measures.count("tonnage_gateway_tokens_total", (*labels, ("kind", "input")), usage.input_tokens)
            measures.count("tonnage_gateway_tokens_total", (*labels, ("kind", "output")), usage.output_tokens)
            measures.count("tonnage_gateway_usd_total", labels, usd_pico / PICO_PER_USD)

    def _outcome(self, usd_pico: int, tokens: int, usage: Usage | None, *, outcome: str, estimated: bool) -> Outcome:
        return Outcome(
            status=self.status, outcome=outcome, amounts=Amounts(usd_pico=usd_pico, tokens=tokens),
            input_tokens=None if usage is None else usage.input_tokens,
            output_tokens=None if usage is None else usage.output_tokens,
            cached_tokens=None if usage is None else usage.cached_input_tokens, estimated=estimated,
            first_byte_s=self.first_byte_s, latency_s=monotonic() - self.began_s,
        )  # fmt: skip


class TooDear(TonnageError):
    """A request that could cost more than its route allows for one."""

    def __init__(self, most_pico: int, allowed_pico: int) -> None:
        super().__init__(f"this request may cost {usd_text(most_pico)} USD, the route allows {usd_text(allowed_pico)}")


async def _all(answer: Connection) -> bytes:
    """The whole body. Raises UpstreamFault; one that is too large is a fault too."""
    pieces, size = [], 0
    while (piece := await answer.read()) is not None:
        pieces.append(piece)
        size += len(piece)
        if size > LARGEST_ANSWER_BYTES:
            answer.abort()
            raise UpstreamFault(f"the answer is over {LARGEST_ANSWER_BYTES >> 20} MiB")
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _kind(answer: Connection) -> bytes:
    return next((value for name, value in answer.headers if name == b"content-type"), b"application/json")


def _retry_after(answer: Connection) -> float | None:
    for name, value in answer.headers:
        if name == b"retry-after-ms":
            return float(value) / 1000.0
        if name == b"retry-after" and value.isdigit():
            return float(value)
    return None


