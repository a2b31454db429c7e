"""The gateway's handler: identifies the caller, reads the request, and sends it on its journey."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Collection
from datetime import UTC, datetime
from functools import partial
from hashlib import blake2b
from itertools import count
from time import monotonic
from typing import TYPE_CHECKING, Final

import orjson

from tonnage.errors import did_you_mean, nearest
from tonnage.gateway.admission.line import Ticket
from tonnage.gateway.admission.waiting_room import TurnRequest, WaitingRoom, standing
from tonnage.gateway.batch_api.endpoints import PATHS as BATCH_PATHS
from tonnage.gateway.batch_api.endpoints import BatchEndpoints
from tonnage.gateway.caching import RouteCache, cache_key
from tonnage.gateway.file.described import ANYBODY, Caller, Route
from tonnage.gateway.guardrails.guard import make_guards
from tonnage.gateway.idempotency.repeats import Repeats, idempotency_key
from tonnage.gateway.measures import GatewayMeasures
from tonnage.gateway.media.asked import MEDIA_PATHS, read_media
from tonnage.gateway.money.book import SpendBook
from tonnage.gateway.money.holds import AttemptOutcome, Hold
from tonnage.gateway.money.rates import PICO_PER_USD
from tonnage.gateway.observing.observer import Observer
from tonnage.gateway.proxy.asked import SURFACES, GatewayRequest, UnreadableRequest, read_asked
from tonnage.gateway.proxy.attempt import PASSED_ON
from tonnage.gateway.proxy.classifying import route_classifying
from tonnage.gateway.proxy.express import Express
from tonnage.gateway.proxy.journey import Journey
from tonnage.gateway.proxy.replies import JSON, GatewayReply, send_reply
from tonnage.gateway.proxy.running import Running
from tonnage.gateway.proxy.server import ClientExchange
from tonnage.gateway.proxy.settlement import AttemptUnderWay
from tonnage.gateway.proxy.shadow import Shadow
from tonnage.gateway.proxy.side_request import SideFailed
from tonnage.gateway.routing.choosing import deployments_of
from tonnage.gateway.semantic.questions import question_of

if TYPE_CHECKING:
    from tonnage.gateway.semantic.cache import Given, SemanticCache

UNCERTAIN_S: Final = 600.0  # a hold whose attempt may have been billed is kept so long, then settled by estimate
Page = Callable[[str], Awaitable[tuple[int, bytes, bytes] | None]]
_OF_THE_ANSWER: Final = PASSED_ON - {b"traceparent", b"tracestate"}  # headers that may change it
_SECRETS_IN_ADDRESSES: Final = (b"key=", b"api_key=", b"api-key=", b"token=", b"access_token=")


class RequestHandler:
    """`pages` answers paths of the gateway's own: (status, content type, body)."""

    def __init__(self, running: Running, book: SpendBook, measures: GatewayMeasures, pages: Page) -> None:
        self.running, self.book, self.measures, self.pages = running, book, measures, pages
        self.draining = False
        self.observer: Observer | None = None
        self.batches: BatchEndpoints | None = None
        self.guards = make_guards(running, book, measures)
        self.semantic = _semantic_caches(running, book)
        self.shadows = _shadows(running)
        self.classifying = route_classifying(running, book)
        self.repeats = Repeats(book, measures, lambda: self.running.gateway.state_keys)
        self.waiting = WaitingRoom(book, measures)
        self.express = Express(self)
        self._numbers = count()
        self._name = os.urandom(6).hex()  # of this worker, in ids that clients see
        self._attempts: set[AttemptUnderWay] = set()
        self._uncertain: dict[int, tuple[Hold, AttemptOutcome, asyncio.TimerHandle]] = {}

    def follow(self, running: Running) -> None:
        """Requests from now on go by another configuration. TonnageError where it cannot be followed."""
        self.guards = make_guards(running, self.book, self.measures)
        self.semantic = _semantic_caches(running, self.book)
        self.shadows = _shadows(running)
        self.classifying = route_classifying(running, self.book)
        self.running = running

    async def handle(self, exchange: ClientExchange) -> None:
        """Answer a request."""
        began_s = monotonic()
        surface = SURFACES.get(exchange.path) or MEDIA_PATHS.get(exchange.path)
        if surface is None or exchange.method != b"POST":
            await self._other(exchange)
            return
        caller: Caller | None = None
        try:
            caller = self.caller(exchange)
            asked = (
                exchange.asked or read_asked(surface, exchange.body)
                if exchange.path in SURFACES
                else read_media(surface, exchange.headers, exchange.body)
            )
            route = self._route(asked, caller)
            queue = self.running.gateway.queue
            stands = None if queue is None else standing(exchange.headers, caller, queue, began_s)
        except UnreadableRequest as bad:
            reply = GatewayReply(status=bad.status, kind=bad.kind, message=str(bad), param=bad.param)
            send_reply(exchange, reply, surface)
            if self.observer is not None:
                self.observer.turned_away(exchange, surface, caller, reply, began_s)
            return
        entry = self.running.gateway.idempotency
        if entry is not None and (key := idempotency_key(exchange.headers)) is not None:
            serve = partial(self._serve, asked, caller, route, began_s, stands)
            owner = self._owner(exchange, caller)
            await self.repeats.carry(exchange, key, owner, surface, entry, serve)
            return
        await self._serve(asked, caller, route, began_s, stands, exchange)

    async def _serve(
        self,
        asked: GatewayRequest,
        caller: Caller,
        route: Route,
        began_s: float,
        stands: TurnRequest | None,
        exchange: ClientExchange,
    ) -> None:
        """Answer a request that is read and allowed."""
        self.running.key_meter(caller).requests[0] += 1
        journey = Journey(
            self.running, self.book, self, asked, caller, route, exchange=exchange, request=self.next_name(),
            began_s=began_s,
        )  # fmt: skip
        if stands is not None:
            journey.room = self.waiting
            journey.ticket = Ticket(caller.name, stands.priority, began_s, stands.until_s)
        if self.observer is None:
            await self._carry(journey)
        else:
            await self.observer.through(journey, self._carry)

    async def _carry(self, journey: Journey) -> None:
        guard = self.guards.get(journey.route.name)
        if guard is None:
            await self._answer(journey)
        else:
            await guard.through(journey, self._answer)

    async def _answer(self, journey: Journey) -> None:
        classifying = self.classifying.get(journey.route.name)
        if classifying is not None and (refused := await classifying.read(journey)) is not None:
            journey.refuse(refused)
            return
        cache = self.running.caches.get(journey.route.name)
        if cache is not None and await self._kept(cache, journey):
            return
        shadow = self.shadows.get(journey.route.name)
        await (journey.run() if shadow is None else shadow.beside(journey))

    def next_name(self) -> str:
        """Of a request, as clients and the ledger see it."""
        return f"{self._name}-{next(self._numbers)}"

    def keep_uncertain(self, hold: Hold, outcome: AttemptOutcome) -> None:
        """Keep a hold whose attempt may have been billed; it is settled by estimate after a while, or at the end."""
        self.book.give_place_back(hold)
        timer = asyncio.get_running_loop().call_later(UNCERTAIN_S, self._settle_uncertain, hold.number)
        self._uncertain[hold.number] = (hold, outcome, timer)

    def watch(self, attempt: AttemptUnderWay) -> None:
        self._attempts.add(attempt)

    def forget(self, attempt: AttemptUnderWay) -> None:
        self._attempts.discard(attempt)

    def sweep(self) -> None:
        """End attempts whose whole time is over: once a second."""
        now_s = monotonic()
        for one in tuple(self._attempts):
            one.expire(now_s)

    async def finish(self, patience_s: float) -> None:
        """The worker ends: wait for attempts under way, clients or none, for so long; then settle every hold."""
        until_s = monotonic() + patience_s
        while self._attempts and monotonic() < until_s:
            await asyncio.sleep(0.02)
        for one in tuple(self._attempts):
            one.give_up()
        self.settle_uncertain()
        await self.repeats.close()

    @property
    def attempts(self) -> Collection[AttemptUnderWay]:
        """Those under way."""
        return self._attempts

    @property
    def uncertain(self) -> int:
        """Holds whose cost is unknown."""
        return len(self._uncertain)

    def settle_uncertain(self) -> None:
        """All of them, by estimate: the worker ends."""
        for number in tuple(self._uncertain):
            self._settle_uncertain(number)

    def _settle_uncertain(self, number: int) -> None:
        hold, outcome, timer = self._uncertain.pop(number)
        timer.cancel()
        self.book.settle(hold, outcome)

    # who asks for what

    def caller(self, exchange: ClientExchange) -> Caller:
        """The owner of the request's key. Raises UnreadableRequest (401)."""
        callers = self.running.gateway.callers
        query = exchange.query
        if query and any(mark in query.lower() for mark in _SECRETS_IN_ADDRESSES):
            raise UnreadableRequest("a key does not belong into an address, which is logged on the way",
                             status=401, kind="key_in_address")  # fmt: skip
        if self.batches is not None:
            asked_for = self.batches.asked_for(exchange.headers, self.running.gateway)
            if asked_for is not None:
                return asked_for[0]
        if not callers:
            return ANYBODY
        given = b""
        for name, value in exchange.headers:
            if name == b"authorization" and value[:7].lower() == b"bearer ":
                given = value[7:].strip()
            elif name in (b"x-api-key", b"api-key"):
                given = value.strip()
        if not given:
            raise UnreadableRequest(
                "no key: send it as `Authorization: Bearer KEY`", status=401, kind="invalid_api_key"
            )
        caller = callers.get("blake2b:" + blake2b(given, digest_size=32).hexdigest())
        if caller is None:
            raise UnreadableRequest("the key is not known here", status=401, kind="invalid_api_key")
        if caller.expires is not None and datetime.now(UTC).date() >= caller.expires:
            raise UnreadableRequest(
                f"the key {caller.name} expired on {caller.expires}", status=401, kind="expired_api_key"
            )
        return caller

    def _owner(self, exchange: ClientExchange, caller: Caller) -> str:
        """Whose an idempotency key is: two batches of one key may hold the same row."""
        found = None if self.batches is None else self.batches.asked_for(exchange.headers, self.running.gateway)
        return caller.name if found is None else f"{caller.name}/{found[1]}"

    def _route(self, asked: GatewayRequest, caller: Caller) -> Route:
        """Raises UnreadableRequest (404, with the nearest names)."""
        routes = self.running.gateway.routes
        route = routes.get(asked.model)
        if route is not None and (caller.routes is None or route.name in caller.routes):
            return route
        known = [name for name in routes if caller.routes is None or name in caller.routes]
        meant = did_you_mean(nearest(asked.model, known), f"known: {', '.join(known)}")
        message = f"no model is named {asked.model[:100]!r} here; {meant}"
        raise UnreadableRequest(message, status=404, kind="model_not_found", param="model")

    # answers without an upstream

    async def _kept(self, cache: RouteCache, journey: Journey) -> bool:
        """Answer from the cache where the same was answered before; else the journey keeps its answer."""
        route, asked, gateway = journey.route, journey.asked, self.running.gateway
        assert route.cache is not None
        if asked.media is not None:
            return False
        if route.cache.when == "repeatable" and not asked.repeats:
            return False
        names, regions = deployments_of(route, journey.facts)
        targets = tuple((name, gateway.deployments[name].model) for name in names)
        headers = [pair for pair in journey.exchange.headers if pair[0] in _OF_THE_ANSWER]
        key = cache_key(asked, journey.caller, targets, regions or frozenset(), headers)
        if key is None:
            return False
        kept = cache.get(key)
        if kept is None and cache.shared is not None:
            kept = await cache.get_shared(key)
        met, similar = "miss" if kept is None else "hit", b""
        semantic = self.semantic.get(route.name)
        if kept is None and semantic is not None:
            rest = partial(cache_key, caller=journey.caller, targets=targets, regions=regions or frozenset(),
                           headers=headers)  # fmt: skip
            given = await self._alike(semantic, journey, key, rest)
            if given is not None:
                met, kept = "alike", given.answer
                similar = b"x-tonnage-similarity: %.4f\r\n" % given.similarity
        labels = (("route", route.name), ("met", met))
        self.measures.count("tonnage_gateway_cache_total", labels)
        if journey.record is not None:
            journey.record.cache = met
        if kept is None:
            journey.cache, journey.cache_key = cache, key
            return False
        self.measures.count("tonnage_gateway_saved_usd_total", labels[:1], kept.usd_pico / PICO_PER_USD)
        head = b"content-type: %b\r\nx-tonnage-cache: %b\r\nx-tonnage-deployment: %b\r\nx-tonnage-cost-usd: 0\r\n%b"
        said = head % (kept.content_type, met.encode(), kept.deployment.encode(), similar)
        journey.exchange.answer(kept.status, said, kept.body)
        return True

    async def _alike(
        self, semantic: SemanticCache, journey: Journey, key: bytes, key_of: Callable[[GatewayRequest], bytes | None]
    ) -> Given | None:
        """What was answered to a question like this one; where that is unknown, the request goes on."""
        question = question_of(journey.asked, semantic.entry.most_chars)
        rest = None if question is None else key_of(question.rest)
        if question is None or rest is None:
            return None
        try:
            return await semantic.find(
                question, rest, key, caller=journey.caller, route=journey.route.name, request=journey.request
            )
        except SideFailed:
            self.measures.count("tonnage_gateway_not_compared_total", (("route", journey.route.name),))
            return None

    async def _other(self, exchange: ClientExchange) -> None:
        path = exchange.path
        entry = self.running.gateway.batches
        if self.batches is not None and entry is not None and path.startswith(BATCH_PATHS):
            try:
                caller = self.caller(exchange)
            except UnreadableRequest as bad:
                send_reply(exchange, GatewayReply(status=bad.status, kind=bad.kind, message=str(bad)), None)
                return
            await self.batches.answer(exchange, caller, entry)
            return
        if exchange.method in (b"GET", b"HEAD"):
            if path == "/v1/models":
                self._models(exchange)
                return
            page = await self.pages(path)
            if page is not None:
                exchange.answer(page[0], b"content-type: %b\r\n" % page[1], page[2])
                return
        if path in SURFACES or path in MEDIA_PATHS:
            send_reply(
                exchange, GatewayReply(status=405, kind="method_not_allowed", message=f"{path} takes POST"), None
            )
            return
        known = ", ".join((*SURFACES, *MEDIA_PATHS, "/v1/models"))
        send_reply(
            exchange, GatewayReply(status=404, kind="not_found", message=f"no such path; there are {known}"), None
        )

    def _models(self, exchange: ClientExchange) -> None:
        try:
            caller = self.caller(exchange)
        except UnreadableRequest as bad:
            send_reply(exchange, GatewayReply(status=bad.status, kind=bad.kind, message=str(bad)), None)
            return
        names = [name for name in self.running.gateway.routes if caller.routes is None or name in caller.routes]
        data = [{"id": name, "object": "model", "owned_by": "tonnage"} for name in names]
        exchange.answer(200, JSON, orjson.dumps({"object": "list", "data": data}))


def _semantic_caches(running: Running, book: SpendBook) -> dict[str, SemanticCache]:
    """By route, those that ask for it; without any, what vectors need is not loaded."""
    if all(route.cache is None or route.cache.semantic is None for route in running.gateway.routes.values()):
        return {}
    from tonnage.gateway.semantic.cache import semantic_caches

    return semantic_caches(running, book)


def _shadows(running: Running) -> dict[str, Shadow]:
    """By route."""
    return {
        name: Shadow(route.shadow, running.measures, running.random)
        for name, route in running.gateway.routes.items()
        if route.shadow is not None
    }
