"""A request through the deployments of its route, in turn: the one owner of retries, the one who answers.

Another attempt is made before the first byte has gone to the client, and never after it.
"""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import Final

from tonnage.gateway.admission.line import Ticket
from tonnage.gateway.admission.waiting_room import WaitingRoom
from tonnage.gateway.caching import RouteCache
from tonnage.gateway.file.described import Caller, Route
from tonnage.gateway.measures import add_time
from tonnage.gateway.money.allowances import Allowance
from tonnage.gateway.money.book import SpendBook
from tonnage.gateway.observing.record import RequestRecord
from tonnage.gateway.proxy.asked import GatewayRequest
from tonnage.gateway.proxy.attempt import Attempt, AttemptResult
from tonnage.gateway.proxy.hedging import Race
from tonnage.gateway.proxy.replies import GatewayReply, send_reply
from tonnage.gateway.proxy.running import Running
from tonnage.gateway.proxy.server import ClientExchange
from tonnage.gateway.proxy.settlement import AttemptTracker
from tonnage.gateway.routing.choosing import Facts, considered, deployments_of, expected_first_byte_s, order
from tonnage.gateway.routing.classes import RequestClasses

SECOND_ROUND_S: Final = 0.1  # before deployments that failed are asked once more


class Journey:
    """One request. `run` answers the client, whatever happens."""

    def __init__(
        self, running: Running, book: SpendBook, tracker: AttemptTracker, asked: GatewayRequest, caller: Caller,
        route: Route, *, exchange: ClientExchange, request: str, began_s: float,
    ) -> None:  # fmt: skip
        self.running, self.book, self.tracker = running, book, tracker
        self.asked, self.caller, self.route = asked, caller, route
        self.exchange, self.request, self.began_s = exchange, request, began_s
        self.record: RequestRecord | None = None  # what becomes of it, where somebody wants to know
        self.cache: RouteCache | None = None  # where the answer is to be kept, and by which key
        self.cache_key = b""
        self._facts: Facts | None = None
        self._begun: tuple[Attempt, AttemptResult | None] | None = None
        self.room: WaitingRoom | None = None  # where it may wait for a place
        self.ticket: Ticket | None = None
        self.full: list[Allowance] = []  # limits of requests at a time that refused it
        self.class_head = b""  # what clients get to know of its text
        self.sent = False  # something has gone over the wire: what follows is a retry

    async def run(self) -> None:
        self._answer(await (self._through_routes() if self.room is None else self._waiting(self.room)))

    async def resume(self, attempt: Attempt, result: AttemptResult | None) -> None:
        """`run`, where an attempt was begun already; `result`: its outcome, None: it has not ended."""
        self._begun = (attempt, result)
        self._answer(await self._through_routes())

    @property
    def facts(self) -> Facts:
        """What deployments are chosen by."""
        if self._facts is None:
            asked, route = self.asked, self.route
            drawn = None if route.canary is None else self.running.canaries[route.name].drawn(self.caller, asked.prefix)
            self._facts = Facts(
                asked.surface, asked.input_tokens_estimate, self.caller, asked.prefix, media=asked.media, canary=drawn
            )
        return self._facts

    def _answer(self, reply: GatewayReply | None) -> None:
        """What the gateway says itself; None: the client is answered, or has left."""
        if reply is None:
            return
        if self.record is not None:
            self.record.reply = reply
        self.running.meter(self.route.name, "none").answered(reply.status)
        head = b"x-tonnage-request-id: %b\r\n" % self.request.encode()
        send_reply(self.exchange, reply, self.asked.surface, head)

    async def _waiting(self, room: WaitingRoom) -> GatewayReply | None:
        """Where nothing but full limits refuses the request it waits for a place, and is tried again."""
        entry, ticket = self.running.gateway.queue, self.ticket
        assert entry is not None
        assert ticket is not None
        while True:
            self.full = []
            try:
                reply = await self._through_routes()
            finally:
                room.took(ticket)
            if reply is None or not self.full:
                return reply
            refused = await room.wait(self.full, ticket, self.exchange, entry, self._first_byte_s())
            if self.exchange.gone:
                self.running.count_gone()
                return None
            if refused is not None:
                return refused

    def _first_byte_s(self) -> float:
        """How long the first byte takes at the quickest of the route's deployments; 0: it is not known."""
        running = self.running
        found = [
            expected_first_byte_s(running.gateway.deployments[name], running.healths[name])
            for name in deployments_of(self.route, self.facts)[0]
        ]
        return min((one for one in found if one is not None), default=0.0)

    async def _through_routes(self) -> GatewayReply | None:
        """The reply to the client; None once it has its answer, or has left."""
        reply: GatewayReply | None = None
        route: Route | None = self.route
        while route is not None:
            reply, final = await self._on(route)
            if reply is None:
                return None
            self._facts = self.facts._replace(regions=deployments_of(route, self.facts)[1])
            route = None if final or route.fallback is None else self.running.gateway.routes[route.fallback]
            if self.exchange.gone:  # the client does not wait for another attempt
                self.running.count_gone()
                return None
        assert reply is not None
        return reply

    def ask_instead(self, asked: GatewayRequest) -> None:
        """Go on with a changed request."""
        facts, self.asked = self.facts, asked
        self._facts = facts._replace(input_tokens=asked.input_tokens_estimate, prefix=asked.prefix)

    def classified(self, classes: RequestClasses, head: bytes) -> None:
        """What its text is about, before a deployment is chosen."""
        self._facts, self.class_head = self.facts._replace(classes=classes), head
        if self.record is not None:
            self.record.classes = classes

    def refuse(self, reply: GatewayReply) -> None:
        """It is not sent."""
        self._answer(reply)

    def record_added_time(self) -> None:
        """The time that the gateway took before it sent the request on."""
        if not self.sent:
            add_time(self.running.added_times, monotonic() - self.began_s)

    async def _on(self, route: Route) -> tuple[GatewayReply | None, bool]:
        """Try a route's deployments: (None, …) once the client has its answer; else the reply to it, and whether
        no other route may do better."""
        budget = self.running.retries[route.name]
        begun, self._begun = self._begun, None
        if begun is None:
            budget.request(monotonic())
        hedge = self.running.hedges.get(route.name)
        reply: GatewayReply | None = None
        tried: list[str] = []
        for _ in range(route.retry.attempts):
            name = self.next_deployment(route, tried) if begun is None else begun[0].deployment.name
            waits = self.room is not None and bool(self.full)  # for a place, which is better than to ask again
            if name is None and tried and not waits:  # all were asked: once more, after a rest
                await asyncio.sleep(SECOND_ROUND_S)
                tried = []
                name = None if self.exchange.gone else self.next_deployment(route, tried)
            if name is None or (self.sent and not budget.take(monotonic())):
                break
            tried.append(name)
            if begun is not None:
                attempts = [begun[0]]
                reply, again = begun[1] or await begun[0].go_on()
                begun = None
            elif hedge is None:
                attempts = [Attempt(self, route, self.running.gateway.deployments[name])]
                reply, again = await attempts[0].run()
            else:
                race = Race(self, route, hedge, tried)
                attempts = race.attempts
                reply, again = await race.run(name)
            if self.room is not None:
                self._give_places_back(self.room, attempts)
            if route.canary is not None and attempts[0].held_s is not None:
                failed = reply is not None or attempts[0].settlement.failed
                self.running.canaries[route.name].record(name, failed=failed)
            if reply is None or not again or self.exchange.gone:
                return reply, True
            for attempt in attempts:
                if attempt.settlement.sent:
                    self.sent = True
                    attempt.settlement.meter.retried()
        return reply or self._nobody(route), False

    def _give_places_back(self, room: WaitingRoom, attempts: list[Attempt]) -> None:
        for one in attempts:
            if one.held_s is not None:
                room.gave_back(one.allowances, monotonic() - one.held_s)

    def next_deployment(self, route: Route, tried: list[str]) -> str | None:
        """The best that was not tried yet; None: there is none."""
        running = self.running
        names = order(
            route, self.facts, running.gateway, running.healths, monotonic(), running.random, tried=tried
        )  # fmt: skip
        return names[0] if names else None

    def _nobody(self, route: Route) -> GatewayReply:
        """Every deployment rests, is below the quality, or elsewhere."""
        now_s, healths = monotonic(), self.running.healths
        found = considered(route, self.facts, self.running.gateway, healths, now_s)
        if all(one.why_not == "dialect" for one in found):
            message = f"no deployment of {route.name} can be asked by {self.asked.surface}"
            return GatewayReply(status=400, kind="unsupported_surface", message=message)
        wait_s = min((healths[name].not_before_s - now_s for name in route.deployments), default=1.0)
        message = f"no deployment of {route.name} takes requests now"
        return GatewayReply(status=503, kind="no_deployment", message=message, retry_after_s=max(wait_s, 1.0))
