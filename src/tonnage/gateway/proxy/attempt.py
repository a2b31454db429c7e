"""One attempt at one deployment: held, sent, passed back, settled once.

Every attempt that reached the wire is in the ledger (`settlement`). It is carried by a coroutine (`run`), or begun
without one (`proxy.express`) and gone on with where it turns out to need one (`go_on`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from time import monotonic, time
from typing import TYPE_CHECKING, Any, Final

from tonnage.errors import TonnageError
from tonnage.gateway.dialects import UntranslatableRequest
from tonnage.gateway.file.described import Deployment, Route
from tonnage.gateway.money.allowances import Allowance
from tonnage.gateway.money.holds import AllowanceExceeded
from tonnage.gateway.money.rates import usd_text
from tonnage.gateway.proxy.asked import BYTES_PER_TOKEN, UnreadableRequest
from tonnage.gateway.proxy.bounds import TooDear, Unbounded, Unpriced, most_amounts
from tonnage.gateway.proxy.passage import NotAnAnswer, passage
from tonnage.gateway.proxy.replies import GatewayReply, limit_reached, refusal
from tonnage.gateway.proxy.settlement import NOTHING, Settlement
from tonnage.gateway.proxy.streaming import Streaming, asked_rest_s, content_type, says_limit, whole_body
from tonnage.http.connection import Connection, UpstreamFault

if TYPE_CHECKING:
    from tonnage.gateway.proxy.journey import Journey

PASSED_ON: Final = frozenset((b"anthropic-version", b"anthropic-beta", b"openai-beta", b"traceparent", b"tracestate"))
BUSY: Final = frozenset((429, 503, 529))
MAYBE_BILLED: Final = frozenset((502, 504))  # of a proxy between: what is behind it may have computed
OURS: Final = frozenset((401, 403, 408))  # the gateway's own fault towards the upstream, not the client's
SILENT: Final = frozenset(("first-byte", "silence"))
IDENTITY: Final = (b"accept-encoding", b"identity")
# the reply to the client (None: it has its answer), whether another attempt may help
AttemptResult = tuple[GatewayReply | None, bool]


class Attempt:
    """`allowances`: what it takes of; `held_s`: since when; `output_limit`: of output tokens, as it goes upstream."""

    __slots__ = (
        "_asked_s", "_dropped", "_streaming", "allowances", "answer", "asked", "deployment", "held_s", "journey",
        "output_limit", "passage", "request", "route", "settlement",
    )  # fmt: skip

    def __init__(
        self, journey: Journey, route: Route, deployment: Deployment, settlement: Settlement | None = None
    ) -> None:
        """`settlement`: of one that was begun already."""
        self.journey, self.route, self.deployment = journey, route, deployment
        self.asked, running = journey.asked, journey.running
        self.settlement = settlement or Settlement(
            journey.asked, deployment, monotonic(), running.healths[deployment.name],
            running.meter(journey.route.name, deployment.name), running.key_meter(journey.caller), journey.book,
            journey.tracker, journey.record,
        )  # fmt: skip
        self.allowances: tuple[Allowance, ...] = ()
        self.held_s: float | None = None
        self.output_limit: int | None = None
        self.request = b""  # as it goes over the wire
        self.answer: Connection | None = None
        self.passage = passage(self.asked.surface, deployment.dialect)
        self._asked_s = 0.0  # since when something may have gone over the wire
        self._dropped = b""
        self._streaming: Streaming | None = None

    async def run(self) -> AttemptResult:
        """Raises nothing that a client or an upstream can bring about."""
        journey, deployment, settlement = self.journey, self.deployment, self.settlement
        allowances = self.allowances = journey.running.allowances(journey.caller, journey.route.name, deployment.name)
        if journey.room is not None and (full := journey.room.occupied(allowances, journey.ticket)) is not None:
            journey.full.append(full)
            return limit_reached(full), full.scope == "deployment"
        who = journey.running.who(journey.caller, journey.route.name, deployment.name)
        try:
            bound = await most_amounts(
                self.asked,
                deployment,
                self.route,
                allowances,
                journey.book,
                expected_output=int(settlement.health.output_tokens),
            )
            hold = await journey.book.hold(
                allowances, bound.amounts, who=who, request=journey.request,
                lost_usd_pico=settlement.estimate().usd_pico,
            )  # fmt: skip
        except AllowanceExceeded as refused:
            journey.running.count_refused(refused.allowance)
            if refused.allowance.returns:
                journey.full.append(refused.allowance)
            return refusal(refused, time()), refused.allowance.scope == "deployment"
        except TooDear as dear:
            return GatewayReply(status=400, kind="request_too_dear", message=str(dear)), False
        except Unpriced as error:
            return GatewayReply(status=400, kind="unpriced", message=str(error), param="size"), True
        except Unbounded as error:
            return GatewayReply(status=400, kind="unbounded_input", message=str(error), param=error.part), True
        except (TonnageError, OSError) as error:
            message = f"the accounts take nothing now: {error}"
            return GatewayReply(status=503, kind="accounts_unavailable", message=message, retry_after_s=1.0), False
        self.output_limit = bound.output_tokens if self.passage.translated else bound.output_limit
        settlement.hold, self.held_s = hold, monotonic()
        if journey.room is not None:
            journey.room.took(journey.ticket)
        if journey.exchange.gone:  # while it waited for its hold
            settlement.unsent()
            journey.running.count_gone()
            return None, False
        settlement.health.begin()
        journey.tracker.watch(self)
        return await self._carried(self._through())

    @property
    def route_and_key(self) -> tuple[str, str]:
        return self.journey.route.name, self.journey.caller.name

    def begun(self, request: bytes, output_limit: int | None, asked_s: float, answer: Connection | None) -> None:
        """It has its hold; its request is ready to be sent (`answer` None), or was sent then."""
        self.held_s, self.request, self.output_limit = self.settlement.began_s, request, output_limit
        self._asked_s, self.answer = asked_s, answer
        self.journey.tracker.watch(self)

    async def go_on(self) -> AttemptResult:
        """With an attempt that was begun: it is asked, or answered, or has failed."""
        return await self._carried(self._ask() if self.answer is None else self._hear(self.answer))

    def expire(self, now_s: float) -> None:
        """End the attempt where its time is over: a client that trickles holds nothing forever."""
        if now_s - self.settlement.began_s > self.deployment.timeouts.total and self.settlement.status:
            assert self.answer is not None
            self.answer.abort()
            if self.journey.exchange.begun:
                self.journey.exchange.abort()

    def give_up(self) -> None:
        """The worker ends: what the attempt came to so far is settled, by estimate where the upstream gave no count."""
        if self.settlement.hold.settled:
            return
        if self._streaming is not None:
            tap = self._streaming.tap
            self.settlement.done(tap.usage, written_tokens=tap.events, outcome="gateway-stopped")
        else:
            self.settlement.estimated("gateway-stopped")
        if self.answer is not None:
            self.answer.abort()

    def abandon(self, outcome: str) -> None:
        """Another attempt has answered: what was seen of this one is settled, and its connection is closed."""
        settlement = self.settlement
        if self.held_s is None or settlement.hold.settled:
            return
        if self._streaming is not None:
            tap = self._streaming.tap
            settlement.done(tap.usage, written_tokens=tap.events, outcome=outcome)
        else:
            settlement.health.leave()
            if self._asked_s:
                amounts = settlement.estimate(unseen=not self.asked.stream)
                settlement.settle(amounts, None, outcome=outcome, estimated=True)
            else:
                settlement.unsent()
        if self.answer is not None:
            self.answer.abort()

    def lost(self) -> None:
        """A fault of ours, or the worker's end: neither hold nor connection must stay."""
        if self.answer is not None:
            self.answer.abort()
        self.settlement.lost()

    async def _carried(self, going: Coroutine[Any, Any, AttemptResult]) -> AttemptResult:
        try:
            return await going
        except BaseException:
            self.lost()
            raise
        finally:
            self.journey.tracker.forget(self)

    # on the wire

    async def _through(self) -> AttemptResult:
        settlement = self.settlement
        try:
            await self._signed_in()
            self.request = self.written(self.output_limit)
        except UntranslatableRequest as error:
            settlement.health.leave()
            settlement.unsent()
            return GatewayReply(
                status=400, kind="invalid_request_error", message=str(error), param=error.parameter
            ), True
        except UnreadableRequest as bad:
            settlement.health.leave()
            settlement.unsent()
            return GatewayReply(status=bad.status, kind=bad.kind, message=str(bad)), False
        except TonnageError as error:
            settlement.fault("sign-in", billed=False)
            return GatewayReply(status=502, kind="upstream_failed", message=f"{self.deployment.name}: {error}"), True
        return await self._ask()

    async def _ask(self) -> AttemptResult:
        self.asking()
        upstream = self.journey.running.upstreams[self.deployment.name]
        try:
            connection = upstream.kept() or await upstream.connected()
            answer = await connection.begin(self.request, "POST")
        except UpstreamFault as fault:
            return self._unanswered(fault)
        return await self._hear(answer)

    async def _hear(self, answer: Connection) -> AttemptResult:
        """What has been asked is answered."""
        try:
            self.headed(await answer.headed())
        except UpstreamFault as fault:
            return self._unanswered(fault)
        if answer.status != 200:
            return await self._refused(answer)
        if answer.streams:
            return await self._stream(self.streaming(answer), answer)
        try:
            body = await whole_body(answer)
        except UpstreamFault as fault:
            self.settlement.fault(fault.kind, billed=True)
            return self.no_answer(fault), True
        return self.whole(answer, body)

    def asking(self) -> None:
        """Its request goes over the wire now."""
        self.journey.record_added_time()
        self._asked_s = monotonic()

    def headed(self, answer: Connection) -> None:
        """The head of its answer is there."""
        settlement = self.settlement
        if settlement.first_byte_s is None:
            self.answer, settlement.sent, settlement.status = answer, True, answer.status
            settlement.first_byte_s = monotonic() - self._asked_s

    def _unanswered(self, fault: UpstreamFault) -> AttemptResult:
        self.settlement.sent = fault.sent
        self.settlement.fault(fault.kind, billed=fault.sent)  # what was written may have been computed
        return self.no_answer(fault), True

    async def _signed_in(self) -> None:
        """Wait for a token where there is none that holds; the event loop goes on meanwhile. Raises TonnageError."""
        running, name = self.journey.running, self.deployment.name
        signer = running.signers.get(name)
        if signer is not None:
            fetching = signer.preparing(self.deployment.endpoint.url, time())
            if fetching is not None:
                await asyncio.wrap_future(fetching)

    def written(self, output_limit: int | None) -> bytes:
        """The request for the upstream. Raises UntranslatableRequest, UnreadableRequest, TonnageError."""
        deployment, running = self.deployment, self.journey.running
        passed = self.passage.request(self.asked, deployment.model, output_limit)
        if passed.dropped:
            self._dropped = ",".join(passed.dropped).encode()
        headers = [(b"content-type", passed.content_type), IDENTITY, *self.passage.headers]
        headers += [pair for pair in self.journey.exchange.headers if pair[0] in PASSED_ON]
        if self.journey.record is not None:
            headers = self.journey.record.passed_on(id(self.settlement), headers)
        signer = running.signers.get(deployment.name)
        if signer is not None:
            url = deployment.endpoint.url + passed.target.decode()
            headers += signer.headers("POST", url, passed.body, time())
        return running.upstreams[deployment.name].written("POST", passed.target, headers, passed.body)

    async def _refused(self, answer: Connection) -> AttemptResult:
        """An error answer: too busy, broken, or the client's own fault."""
        status, name, settlement = answer.status, self.deployment.name, self.settlement
        try:
            body = await whole_body(answer)
        except UpstreamFault as fault:
            settlement.fault(fault.kind, billed=status in MAYBE_BILLED)
            return self.no_answer(fault), True
        if status in BUSY or (status == 400 and says_limit(answer, body)):
            wait_s = settlement.health.busy(monotonic(), asked_rest_s(answer))
            settlement.settle(NOTHING, None, outcome="busy")
            message = f"{name} takes no more requests now"
            return GatewayReply(status=429, kind="rate_limit_exceeded", message=message, retry_after_s=wait_s), True
        if status >= 500 or status in OURS:
            settlement.fault(f"status-{status}", billed=status in MAYBE_BILLED)
            said = f"answered {status}" if status >= 500 else f"refused the gateway's sign-in ({status})"
            return GatewayReply(status=502, kind="upstream_failed", message=f"{name} {said}"), True
        settlement.health.leave()
        settlement.settle(NOTHING, None, outcome="refused")
        status, body = self.passage.error(status, body)
        settlement.meter.answered(status)
        self.journey.exchange.answer(status, self.head(content_type(answer), None), body)
        return None, False

    def whole(self, answer: Connection, body: bytes) -> AttemptResult:
        """A whole answer: settled, and on its way to the client."""
        try:
            body, usage = self.passage.whole(body, self.asked.model)
        except NotAnAnswer as error:
            self.settlement.fault("not-an-answer", billed=True)
            message = f"{self.deployment.name} answered {error}"
            return GatewayReply(status=502, kind="upstream_failed", message=message), True
        if self.asked.media is not None:
            usage = self.asked.media.counted(usage)
        usd_pico = self.settlement.done(usage, written_tokens=len(body) // BYTES_PER_TOKEN, outcome="ok")
        kind = content_type(answer)
        if usage is not None:  # an answer that counts nothing may be an error in disguise
            self.keep(kind, body, usd_pico)
        self.settlement.meter.answered(200)
        head = b"%bx-tonnage-cost-usd: %b\r\n" % (self.head(kind, self.output_limit), usd_text(usd_pico).encode())
        self.journey.exchange.answer(200, head, body)
        return None, False

    def streaming(self, answer: Connection) -> Streaming:
        """The answer is a stream."""
        found = self._streaming = Streaming(self, answer, self.output_limit)
        return found

    async def _stream(self, streaming: Streaming, answer: Connection) -> AttemptResult:
        """Pieces as they come."""
        exchange = self.journey.exchange
        try:
            while not streaming.over and (piece := await answer.read()) is not None:
                passed = streaming.passed(piece)
                if passed:
                    await exchange.piece(passed)
        except UpstreamFault as fault:
            streaming.fault = fault
        return streaming.end()

    def no_answer(self, fault: UpstreamFault) -> GatewayReply:
        message = f"{self.deployment.name} gave no whole answer: {fault}"
        return GatewayReply(
            status=504 if fault.kind in SILENT else 502, kind="upstream_failed", message=message, retry_after_s=1.0
        )

    def head(self, kind: bytes, output_limit: int | None) -> bytes:
        request, name = self.journey.request.encode(), self.deployment.name.encode()
        head = b"content-type: %b\r\nx-tonnage-request-id: %b\r\nx-tonnage-deployment: %b\r\n%b" % (
            kind, request, name, self.journey.class_head
        )  # fmt: skip
        if self._dropped:
            head += b"x-tonnage-dropped: %b\r\n" % self._dropped
        return head if output_limit is None else b"%bx-tonnage-max-tokens: %d\r\n" % (head, output_limit)

    def keep(self, kind: bytes, body: bytes, usd_pico: int) -> None:
        """Where the route keeps answers; a fallback's answer is not the route's own."""
        cache = self.journey.cache
        if cache is not None and self.route is self.journey.route:
            cache.put(
                self.journey.cache_key, status=200, content_type=kind, body=body, usd_pico=usd_pico,
                deployment=self.deployment.name,
            )  # fmt: skip
