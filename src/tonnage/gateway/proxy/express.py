"""The short way of a request that needs nothing but its key, a hold and one answer: callbacks, without a task.

It is what a journey's first attempt does, with all that does not change from request to request found before: who
asks, by the head of the request (`KnownHead`); what a route of theirs takes and where it goes (`Target`). Nothing of it
waits: the worker's leases pay for the hold, and a connection is free. Whatever turns out to need more (a lease, a new
connection, a refusal, a fault, another deployment) is a `Journey`'s, which goes on from there. Routes with more to do
than to choose a deployment (a cache, guardrails, hedging, a canary, a shadow, rules on texts) are a journey's from the
beginning.
"""

from __future__ import annotations

import asyncio
from time import monotonic, time
from typing import TYPE_CHECKING, Final

from tonnage.errors import TonnageError
from tonnage.gateway.file.described import Caller, Deployment, Route
from tonnage.gateway.idempotency.repeats import idempotency_key
from tonnage.gateway.measures import add_time
from tonnage.gateway.money.rates import usd_text
from tonnage.gateway.observing.observer import Observer
from tonnage.gateway.observing.record import RequestRecord
from tonnage.gateway.proxy.asked import BYTES_PER_TOKEN, SURFACES, GatewayRequest, UnreadableRequest, read_asked
from tonnage.gateway.proxy.attempt import IDENTITY, PASSED_ON, Attempt, AttemptResult
from tonnage.gateway.proxy.bounds import most_amounts_now
from tonnage.gateway.proxy.journey import Journey
from tonnage.gateway.proxy.passage import NotAnAnswer, passage
from tonnage.gateway.proxy.server import ClientExchange
from tonnage.gateway.proxy.settlement import Settlement
from tonnage.gateway.proxy.streaming import Streaming
from tonnage.gateway.routing.choosing import Facts, order
from tonnage.gateway.routing.classes import wanted_classes
from tonnage.http.connection import Connection

if TYPE_CHECKING:
    from tonnage.gateway.dialects.usage import Surface
    from tonnage.gateway.proxy.handler import RequestHandler
    from tonnage.gateway.proxy.running import Running

MOST_GATHERED_BYTES: Final = 256 << 10  # of a whole answer; a longer one is the journey's


class ExpressTarget:
    """A route at a deployment, for one head of requests."""

    def __init__(self, known: KnownHead, route: Route, deployment: Deployment, running: Running) -> None:
        caller = known.caller
        self.route, self.deployment, self.caller = route, deployment, caller
        self.allowances = running.allowances(caller, route.name, deployment.name)
        self.who = running.who(caller, route.name, deployment.name)
        self.health = running.healths[deployment.name]
        self.meter = running.meter(route.name, deployment.name)
        self.key_meter = running.key_meter(caller)
        self.retries = running.retries[route.name]
        self.signer = running.signers.get(deployment.name)
        self.upstream = running.upstreams[deployment.name]
        self.passage = passage(known.surface, deployment.dialect)
        self.head = b"x-tonnage-deployment: %b\r\n" % deployment.name.encode()
        self._passed_on = [IDENTITY, *self.passage.headers, *known.passed_on]
        self._begun: dict[tuple[bytes, bytes], bytes] = {}

    def written(self, asked: GatewayRequest, output_limit: int | None) -> bytes:
        """The request for the upstream. Raises UnreadableRequest, TonnageError."""
        _, body, _, kind = passed = self.passage.request(asked, self.deployment.model, output_limit)
        target = passed.target
        begun = self._begun.get((target, kind))
        if begun is None:
            headers = [(b"content-type", kind), *self._passed_on]
            begun = self._begun[target, kind] = self.upstream.begun("POST", target, headers)
        if self.signer is not None:
            url = self.deployment.endpoint.url + target.decode()
            for name, value in self.signer.headers("POST", url, body, time()):
                begun += b"%b: %b\r\n" % (name, value)
        return b"%bcontent-length: %d\r\n\r\n%b" % (begun, len(body), body)


class KnownHead:
    """What follows from the head of a request, under one configuration. `targets`: by route; more than one deployment:
    by route and deployment."""

    __slots__ = ("caller", "passed_on", "running", "surface", "targets")

    def __init__(self, running: Running, caller: Caller, surface: Surface, exchange: ClientExchange) -> None:
        self.running, self.caller, self.surface = running, caller, surface
        self.passed_on = [pair for pair in exchange.headers if pair[0] in PASSED_ON]
        self.targets: dict[str | tuple[str, str], ExpressTarget] = {}


class Express:
    """Of one worker."""

    def __init__(self, handler: RequestHandler) -> None:
        self.handler = handler
        self._running: Running | None = None
        self._has_one_deployment: dict[str, bool] = {}  # of each route that may go this way
        self._journeys: set[asyncio.Task[None]] = set()

    def take(self, exchange: ClientExchange) -> bool:
        """Whether the request goes this way; else nothing has been done but to read it."""
        began_s = monotonic()
        handler = self.handler
        if handler.observer is not None and handler.observer.spans is not None:
            return False  # an attempt's place in a trace goes on with its request
        known: KnownHead | None = exchange.head.known
        if known is None or known.running is not handler.running:
            known = self._known(exchange)
            if known is None:
                return False
        try:
            asked = exchange.asked = read_asked(known.surface, exchange.body)
        except UnreadableRequest:
            return False  # the handler says why
        target = known.targets.get(asked.model) or self._target(known, asked, began_s)
        if target is None or not target.health.available(began_s):
            return False
        if target.signer is not None and target.signer.preparing(target.deployment.endpoint.url, time()) is not None:
            return False
        one = _UnderWay(self, target, exchange, asked, began_s)
        if not one.held():
            return False
        target.retries.request(began_s)
        target.key_meter.requests[0] += 1
        one.send()
        return True

    def hand_over(self, one: _UnderWay, attempt: Attempt, result: AttemptResult | None) -> None:
        """A journey goes on with an attempt: `result` is its outcome, None: it has not ended."""
        task = asyncio.get_running_loop().create_task(self._go_on(one, attempt, result))
        self._journeys.add(task)
        task.add_done_callback(self._journeys.discard)

    async def _go_on(self, one: _UnderWay, attempt: Attempt, result: AttemptResult | None) -> None:
        try:
            await attempt.journey.resume(attempt, result)
        except Exception:
            attempt.journey.exchange.failed()
        finally:
            one.ended()

    def _known(self, exchange: ClientExchange) -> KnownHead | None:
        """What the head says, remembered with it; None: the handler decides."""
        running = self.handler.running
        if running is not self._running:
            self._follow(running)
        surface = SURFACES.get(exchange.path)
        if surface is None or exchange.method != b"POST" or exchange.query:
            return None
        if running.gateway.idempotency is not None and idempotency_key(exchange.headers) is not None:
            return None
        try:
            caller = self.handler.caller(exchange)
        except UnreadableRequest:
            return None
        known = KnownHead(running, caller, surface, exchange)
        if caller.expires is None:
            exchange.head.known = known
        return known

    def _follow(self, running: Running) -> None:
        gateway = running.gateway
        self._running, self._has_one_deployment = running, {}
        for name, route in gateway.routes.items():
            more = route.cache or route.guardrails or route.hedge or route.canary or route.shadow or gateway.queue
            if not (more or wanted_classes(gateway, route)):
                self._has_one_deployment[name] = (
                    len(route.deployments) == 1 and not route.rules and route.quality is None
                )

    def _target(self, known: KnownHead, asked: GatewayRequest, now_s: float) -> ExpressTarget | None:
        """Where the request goes; None: not this way."""
        running, caller, model = known.running, known.caller, asked.model
        alone = self._has_one_deployment.get(model)
        if alone is None or (caller.routes is not None and model not in caller.routes):
            return None
        gateway = running.gateway
        route = gateway.routes[model]
        if alone:
            names = [name for name in route.deployments if asked.surface in gateway.deployments[name].surfaces]
        else:
            facts = Facts(asked.surface, asked.input_tokens_estimate, caller, asked.prefix)
            names = order(route, facts, gateway, running.healths, now_s, running.random)
        if not names:
            return None
        place = model if alone else (model, names[0])
        found = known.targets.get(place)
        if found is None:
            found = ExpressTarget(known, route, gateway.deployments[names[0]], running)
            if found.passage.translated:
                return None
            known.targets[place] = found
        return found


class _UnderWay:
    """One request."""

    __slots__ = (
        "_asked", "_asked_s", "_attempt", "_connection", "_exchange", "_express", "_output_limit", "_paused", "_record",
        "_request", "_running", "_settlement", "_streaming", "_target", "_written",
    )  # fmt: skip

    def __init__(
        self, express: Express, target: ExpressTarget, exchange: ClientExchange, asked: GatewayRequest, began_s: float
    ) -> None:
        handler = express.handler
        self._express, self._target, self._exchange, self._asked = express, target, exchange, asked
        self._running = handler.running
        self._request = handler.next_name()
        self._record: tuple[Observer, RequestRecord] | None = None
        if handler.observer is not None:
            observer = handler.observer
            self._record = (observer, observer.record(asked, target.caller, asked.model, self._request, began_s))
        self._settlement = Settlement(
            asked, target.deployment, began_s, target.health, target.meter, target.key_meter, handler.book, handler,
            None if self._record is None else self._record[1],
        )  # fmt: skip
        self._connection: Connection | None = None
        self._attempt: Attempt | None = None  # once it takes a journey, or streams
        self._streaming: Streaming | None = None
        self._paused = False

    def held(self) -> bool:
        """Take what it may cost at most; False: that has to be waited for, or refused, and nothing is taken."""
        target, asked, settlement, book = self._target, self._asked, self._settlement, self._express.handler.book
        expected = int(settlement.health.output_tokens)
        try:
            bound = most_amounts_now(
                asked, target.deployment, target.route, target.allowances, book, expected_output=expected
            )
            if bound is None:
                return False
            self._output_limit = bound.output_limit
            self._written = target.written(asked, bound.output_limit)
            hold = book.hold_now(
                target.allowances, bound.amounts, who=target.who, request=self._request,
                lost_usd_pico=settlement.estimate().usd_pico,
            )  # fmt: skip
        except (TonnageError, UnreadableRequest, OSError):
            return False  # the journey meets the same, and says so
        if hold is None:
            return False
        settlement.hold = hold
        settlement.health.begin()
        return True

    def send(self) -> None:
        now_s = self._asked_s = monotonic()
        add_time(self._running.added_times, now_s - self._settlement.began_s)
        connection = self._target.upstream.kept()
        if connection is None:
            self._hand_over(None)
            return
        self._express.handler.watch(self)
        self._connection = connection
        connection.send(self._written, self.heard)

    def heard(self) -> None:
        """Something of the answer is there, or it never will be."""
        try:
            result = self._answered() if self._streaming is None else self._streamed(self._streaming)
        except Exception:
            assert self._connection is not None
            self._connection.call_no_more()
            self._connection.abort()
            self._forget()
            self._settlement.lost()
            self._exchange.failed()
            self.ended()
            return
        if result is None:
            return
        if result[0] is None:
            self._forget()
            self.ended()
        else:
            self._hand_over(result)

    @property
    def route_and_key(self) -> tuple[str, str]:
        return self._target.route.name, self._target.caller.name

    def expire(self, now_s: float) -> None:
        """End it where its time is over: an answer that trickles; streams are an attempt's."""
        settlement = self._settlement
        if now_s - settlement.began_s > self._target.deployment.timeouts.total and settlement.status:
            assert self._connection is not None
            self._connection.abort()

    def give_up(self) -> None:
        """The worker ends."""
        if not self._settlement.hold.settled:
            self._settlement.estimated("gateway-stopped")
            if self._connection is not None:
                self._connection.abort()

    def ended(self) -> None:
        """The client is answered, or has left."""
        if self._record is not None:
            observer, record = self._record
            observer.end(record)

    def _answered(self) -> AttemptResult | None:
        """None: more is to come, or a journey goes on."""
        connection, settlement = self._connection, self._settlement
        assert connection is not None
        if connection.fault is None:
            if not settlement.sent:
                settlement.sent, settlement.status = True, connection.status
                settlement.first_byte_s = monotonic() - self._asked_s
            if connection.status == 200:
                if connection.streams:
                    self._streaming = self._made().streaming(connection)
                    return self._streamed(self._streaming)
                if connection.done:
                    return self._whole(connection)
                if connection.unread < MOST_GATHERED_BYTES:
                    return None
        self._hand_over(None)
        return None

    def _whole(self, connection: Connection) -> AttemptResult:
        """A whole answer: settled, and on its way to the client."""
        target, settlement = self._target, self._settlement
        body = connection.taken()
        try:
            body, usage = target.passage.whole(body, self._asked.model)
        except NotAnAnswer:
            return self._made().whole(connection, body)
        usd_pico = settlement.done(usage, written_tokens=len(body) // BYTES_PER_TOKEN, outcome="ok")
        settlement.meter.answered(200)
        kind = b"application/json"
        for name, value in connection.headers:
            if name == b"content-type":
                kind = value
                break
        head = b"content-type: %b\r\nx-tonnage-request-id: %b\r\n%bx-tonnage-cost-usd: %b\r\n" % (
            kind, self._request.encode(), target.head, usd_text(usd_pico).encode()
        )  # fmt: skip
        if self._output_limit is not None:
            head += b"x-tonnage-max-tokens: %d\r\n" % self._output_limit
        if self._record is not None:
            record = self._record[1]
            record.status = 200
            record.answered(body)
        self._exchange.answer(200, head, body)
        return None, False

    def _streamed(self, streaming: Streaming) -> AttemptResult | None:
        """Pieces go on as they come."""
        connection = self._connection
        assert connection is not None
        assert self._attempt is not None
        exchange = self._attempt.journey.exchange
        for piece in connection.pieces():
            passed = streaming.passed(piece)
            if passed:
                full = exchange.put(passed)
                if full is not None and not self._paused:
                    self._paused = True
                    connection.pause()
                    full.add_done_callback(self._resume)
            if streaming.over:
                connection.call_no_more()
                return streaming.end()
        if not connection.done:
            if connection.fault is None:
                return None
            streaming.fault = connection.fault
        return streaming.end()

    def _resume(self, _: asyncio.Future[None]) -> None:
        """The client takes more."""
        self._paused = False
        assert self._connection is not None
        self._connection.resume()

    def _made(self) -> Attempt:
        """The attempt of a journey that goes on from here."""
        handler, target, settlement = self._express.handler, self._target, self._settlement
        journey = Journey(
            self._running, handler.book, handler, self._asked, target.caller, target.route, exchange=self._exchange,
            request=self._request, began_s=settlement.began_s,
        )  # fmt: skip
        if self._record is not None:
            self._record[0].watch(journey, self._record[1])
        handler.forget(self)
        attempt = self._attempt = Attempt(journey, target.route, target.deployment, settlement)
        attempt.begun(self._written, self._output_limit, self._asked_s, self._connection)
        return attempt

    def _forget(self) -> None:
        self._express.handler.forget(self if self._attempt is None else self._attempt)

    def _hand_over(self, result: AttemptResult | None) -> None:
        if self._connection is not None:
            self._connection.call_no_more()
        attempt = self._attempt or self._made()
        if result is not None:
            self._forget()
        self._express.hand_over(self, attempt, result)
