"""Requests that the gateway makes itself for one that it serves, of a classifier or of embeddings: held before, settled
after, and in the ledger as any other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic, time
from typing import Final, NamedTuple, TypeVar

from tonnage.errors import TonnageError
from tonnage.gateway.dialects.usage import Usage
from tonnage.gateway.file.described import Caller
from tonnage.gateway.money.allowances import Amounts
from tonnage.gateway.money.book import SpendBook
from tonnage.gateway.money.holds import AllowanceExceeded, AttemptOutcome, Hold
from tonnage.gateway.proxy.running import Running
from tonnage.http.connection import Connection, UpstreamFault

T = TypeVar("T")
LARGEST_BYTES: Final = 4 << 20
_HEADERS: Final = [(b"content-type", b"application/json"), (b"accept-encoding", b"identity")]


class SideFailed(Exception):
    """The deployment gave no usable answer, or may not be asked."""


class NotUsable(Exception):
    """An answer without what was asked for; the words say what it has."""


class SideRequest(NamedTuple):
    """What is asked. `tokens`: those that it is booked with; `most_tokens`: those that it is held with."""

    target: bytes
    body: bytes
    tokens: int
    most_tokens: int
    outcome: str  # as the ledger names it where it went well


class SideRequests:
    """Of one deployment. `running`: the configuration at work."""

    def __init__(self, deployment: str, running: Running, book: SpendBook) -> None:
        self.deployment, self.running, self.book = running.gateway.deployments[deployment], running, book

    async def ask(
        self, asked: SideRequest, read: Callable[[int, bytes], T], *, caller: Caller, route: str, request: str
    ) -> T:
        """What `read` makes of status and body. Raises SideFailed; `read` raises NotUsable."""
        deployment = self.deployment
        health = self.running.healths[deployment.name]
        if not health.available(monotonic()):
            raise SideFailed(f"{deployment.name} rests after failures")
        usage = Usage(input_tokens=asked.tokens, output_tokens=0)
        cost = Amounts(usd_pico=deployment.rates.cost_pico(usage), tokens=asked.tokens)
        hold = await self._hold(asked, cost, caller=caller, route=route, request=request)
        health.begin()
        began_s = monotonic()
        sent, status, why = True, 0, "gateway-fault"
        try:
            async with asyncio.timeout(deployment.timeouts.total):
                answer = await self._sent(asked)
                status, body = answer.status, await _read(answer)
            found = read(status, body)
        except UpstreamFault as fault:
            sent, why = fault.sent, fault.kind
            raise SideFailed(f"{deployment.name} gave no whole answer: {fault}") from fault
        except TimeoutError as error:
            why = "total-time"
            raise SideFailed(f"{deployment.name} took over {deployment.timeouts.total:g} s") from error
        except TonnageError as error:
            sent, why = False, "sign-in"
            raise SideFailed(f"{deployment.name}: {error}") from error
        except NotUsable as error:
            why = f"status-{status}" if status != 200 else "not-an-answer"
            raise SideFailed(f"{deployment.name} answered {error}") from error
        except asyncio.CancelledError:  # who asked does not wait any longer, or has left
            why = "given-up"
            raise
        else:
            why = "ok"
            return found
        finally:
            taken_s = monotonic() - began_s
            if why == "ok":
                health.succeed(taken_s, None, taken_s)
            else:
                health.fail(monotonic())
            self.book.settle(hold, None if not sent else AttemptOutcome(
                status=status, outcome=asked.outcome if why == "ok" else why, amounts=cost, input_tokens=asked.tokens,
                output_tokens=0, cached_tokens=None, estimated=True, first_byte_s=None, latency_s=taken_s,
            ))  # fmt: skip

    async def _hold(self, asked: SideRequest, cost: Amounts, *, caller: Caller, route: str, request: str) -> Hold:
        """What it may cost at most, taken from the accounts. Raises SideFailed where they have too little."""
        running, name = self.running, self.deployment.name
        # of the caller only money: the request that is served has its place at a time already
        allowances = [
            one for one in running.allowances(caller, route, name) if one.unit == "usd" or one.scope == "deployment"
        ]
        most = Amounts(usd_pico=self.deployment.rates.most_pico(asked.most_tokens, 0), tokens=asked.tokens)
        who = running.who(caller, route, name)
        try:
            return await self.book.hold(allowances, most, who=who, request=request, lost_usd_pico=cost.usd_pico)
        except AllowanceExceeded as refused:
            running.count_refused(refused.allowance)
            raise SideFailed(f"{refused.allowance.words} has too little left for {name}") from refused
        except (TonnageError, OSError) as error:
            raise SideFailed(f"the accounts take nothing now: {error}") from error

    async def _sent(self, asked: SideRequest) -> Connection:
        headers = list(_HEADERS)
        signer = self.running.signers.get(self.deployment.name)
        if signer is not None:
            url = self.deployment.endpoint.url
            fetching = signer.preparing(url, time())
            if fetching is not None:
                await asyncio.wrap_future(fetching)
            headers += signer.headers("POST", url + asked.target.decode(), asked.body, time())
        upstream = self.running.upstreams[self.deployment.name]
        return await upstream.ask("POST", asked.target, headers, asked.body)


async def _read(answer: Connection) -> bytes:
    """The whole body. Raises UpstreamFault; one that is too large is a fault too."""
    pieces, size = [], 0
    while (piece := await answer.read()) is not None:
        pieces.append(piece)
        size += len(piece)
        if size > LARGEST_BYTES:
            answer.abort()
            raise UpstreamFault(f"the answer is over {LARGEST_BYTES >> 20} MiB")
    return b"".join(pieces)
