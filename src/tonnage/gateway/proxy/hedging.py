"""Two attempts at one request: where the first is slow to begin, a second one is asked, and who begins first answers.

Each has a hold of its own. The other one's connection is closed, and what was seen of it is settled.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from copy import copy
from time import monotonic
from typing import TYPE_CHECKING, Any

from tonnage.gateway.file.described import Route
from tonnage.gateway.proxy.attempt import Attempt, AttemptResult
from tonnage.gateway.proxy.layers import ExchangeLayer
from tonnage.gateway.proxy.server import ClientExchange
from tonnage.gateway.routing.hedge_policy import HedgePolicy

if TYPE_CHECKING:
    from tonnage.gateway.proxy.journey import Journey


class Race:
    """The attempts at one request. `tried`: takes the name of the second one."""

    def __init__(self, journey: Journey, route: Route, policy: HedgePolicy, tried: list[str]) -> None:
        self.journey, self.route, self.policy, self.tried = journey, route, policy, tried
        self.attempts: list[Attempt] = []
        self._tasks: list[asyncio.Task[AttemptResult]] = []
        self._winner: Attempt | None = None
        self._decided: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def run(self, name: str) -> AttemptResult:
        """Raises nothing that a client or an upstream can bring about."""
        self.policy.budget.request(monotonic())
        self._start(name)
        try:
            after_s = self.policy.after_s(name, stream=self.journey.asked.stream)
            if after_s is not None:
                ends: list[asyncio.Future[Any]] = [*self._tasks, self._decided]
                await asyncio.wait(ends, timeout=after_s, return_when="FIRST_COMPLETED")
                if not (self._tasks[0].done() or self._decided.done()):
                    self._hedge()
            result = await self._first_answer()
            self._count()
            return result
        finally:
            for one in self._tasks:  # of a worker that ends, too
                if not one.done():
                    one.cancel()

    def take(self, attempt: Attempt) -> bool:
        """Whether this attempt answers the client: who is first does, and the other one is given up."""
        if self._winner is None:
            self._winner = attempt
            self._decided.set_result(None)
            for other, task in zip(self.attempts, self._tasks, strict=True):
                if other is not attempt:
                    other.abandon("hedge-lost")
                    task.cancel()
        return self._winner is attempt

    def lost(self, attempt: Attempt | None) -> bool:
        return self._winner is not None and self._winner is not attempt

    # inside

    def _start(self, name: str) -> None:
        view = copy(self.journey)
        view.sent = bool(self.attempts)  # what follows the first one is no first sending
        racing = view.exchange = _RacingExchange(self.journey.exchange, self)
        attempt = racing.attempt = Attempt(view, self.route, self.journey.running.gateway.deployments[name])
        self.attempts.append(attempt)
        self._tasks.append(asyncio.ensure_future(attempt.run()))

    def _hedge(self) -> None:
        """Ask another deployment, where there is one that may be asked and the share of hedges allows it."""
        if self.journey.exchange.gone:
            return
        name = self.journey.next_deployment(self.route, self.tried)
        if name is not None and self.policy.budget.take(monotonic()):
            self.tried.append(name)
            self._start(name)

    async def _first_answer(self) -> AttemptResult:
        """Of the one that answers; where none does, of the last that failed."""
        pending = set(self._tasks)
        while True:
            done, pending = await asyncio.wait(pending, return_when="FIRST_COMPLETED")
            found = [one.result() for one in self._tasks if one in done and not one.cancelled()]
            if found and (not pending or any(reply is None for reply, _ in found)):
                with suppress(asyncio.CancelledError):
                    await asyncio.gather(*pending)  # the one that lost is cancelled: it ends at once
                return min(found, key=lambda result: result[0] is not None)
            assert pending, "only who lost is cancelled"

    def _count(self) -> None:
        for one in self.attempts:
            first_byte_s = one.settlement.first_byte_s
            if first_byte_s is not None and one.settlement.status == 200:
                self.policy.record(one.deployment.name, first_byte_s, stream=self.journey.asked.stream)
        if len(self.attempts) > 1:
            won = "none" if self._winner is None else "first" if self._winner is self.attempts[0] else "second"
            labels = (("route", self.route.name), ("won", won))
            self.journey.running.measures.count("tonnage_gateway_hedges_total", labels)


class _RacingExchange(ExchangeLayer):
    """One attempt's way to the client, open for the one that answers first."""

    __slots__ = ("_race", "attempt")

    def __init__(self, inner: ClientExchange, race: Race) -> None:
        super().__init__(inner)
        self._race = race
        self.attempt: Attempt | None = None

    @property
    def gone(self) -> bool:
        return self.inner.gone or self._race.lost(self.attempt)

    def answer(self, status: int, head: bytes, body: bytes, *, close: bool = False) -> None:
        if self._takes():
            super().answer(status, head, body, close=close)

    def begin(self, status: int, head: bytes) -> None:
        if self._takes():
            super().begin(status, head)

    def _takes(self) -> bool:
        assert self.attempt is not None
        return self._race.take(self.attempt)
