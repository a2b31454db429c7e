"""One attempt at one deployment: held, sent, passed back, settled once.

Every attempt that reached the wire stands in the ledger: by the upstream's own count where it gave one, else by an
estimate that is marked as such. Zero tokens are a count; a missing count is none.
"""

from __future__ import annotations

import asyncio
from time import monotonic, time
from typing import TYPE_CHECKING, Final

import orjson

from tonnage.errors import TonnageError
from tonnage.gateway.caching import LARGEST_BYTES
from tonnage.gateway.dialects import UntranslatableRequest
from tonnage.gateway.dialects.usage import Usage
from tonnage.gateway.file.described import Deployment, Route
from tonnage.gateway.money.allowances import Amounts
from tonnage.gateway.money.holds import AllowanceExceeded, AttemptOutcome, Hold
from tonnage.gateway.money.rates import usd_text
from tonnage.gateway.proxy.asked import BYTES_PER_TOKEN, OUTPUT_KEYS, UnreadableRequest
from tonnage.gateway.proxy.bounds import TooDear, Unbounded, Unpriced, most_amounts
from tonnage.gateway.proxy.passage import NotAnAnswer, Tap, passage
from tonnage.gateway.proxy.replies import GatewayReply, limit_reached, refusal
from tonnage.http.retries import retry_after_s
from tonnage.http.upstream import Connection, Headers, UpstreamFault

if TYPE_CHECKING:
    from tonnage.gateway.media.asked import MediaAsk
    from tonnage.gateway.proxy.journey import Journey

PASSED_ON: Final = frozenset((b"anthropic-version", b"anthropic-beta", b"openai-beta", b"traceparent", b"tracestate"))
BUSY: Final = frozenset((429, 503, 529))
MAYBE_BILLED: Final = frozenset((502, 504))  # of a proxy between: what is behind it may have computed
OURS: Final = frozenset((401, 403, 408))  # the gateway's own fault towards the upstream, not the client's
SILENT: Final = frozenset(("first-byte", "silence"))
LARGEST_ANSWER_BYTES: Final = 64 << 20
LONGEST_REST_S: Final = 300.0  # of a Retry-After
_LIMITS: Final = ("rate_limit", "throttl", "insufficient_quota", "overloaded", "too_many_requests")
_IDENTITY: Final = (b"accept-encoding", b"identity")
Told = tuple[
    GatewayReply | None, bool
]  # what the client would be told (None: it is answered), whether another attempt may help


class Attempt:
    """`sent`: something went over the wire."""

    def __init__(self, journey: Journey, route: Route, deployment: Deployment) -> None:
        self.journey, self.route, self.deployment = journey, route, deployment
        self.asked, self.book = journey.asked, journey.book
        self.health = journey.running.healths[deployment.name]
        self.meter = journey.running.meter(journey.route.name, deployment.name)
        self.sent = False
        self.failed = False  # by a fault of the deployment
        self.held_s: float | None = None  # since when it has what it takes of the allowances
        self.began_s = monotonic()
        self._passage = passage(self.asked.surface, deployment.dialect)
        self._dropped = b""
        self.status = 0
        self.first_byte_s: float | None = None
        self._asking = False  # something may have gone over the wire
        self._answer: Connection | None = None
        self._tap: Tap | None = None
        self._hold: Hold

    async def run(self) -> Told:
        """Raises nothing that a client or an upstream can bring about."""
        journey, deployment = self.journey, self.deployment
        allowances = self.allowances = (
            *journey.running.allowances(journey.caller, journey.route.name),
            *journey.running.allowances_at(deployment.name),
        )
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
                self.book,
                expected_output=int(self.health.output_tokens),
            )
            self._hold = await self.book.hold(
                allowances, bound.amounts, who=who, request=journey.request, lost_usd_pico=self._estimate().usd_pico
            )
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
        self.held_s = monotonic()
        if journey.room is not None:
            journey.room.took(journey.ticket)
        if journey.exchange.gone:  # while it waited for its hold
            self.book.settle(self._hold, None)
            journey.running.count_gone()
            return None, False
        self.health.begin()
        journey.tracker.watch(self)
        try:
            return await self._through(bound.output_tokens if self._passage.translated else bound.told)
        except BaseException:  # a fault of ours, or the worker's end: neither hold nor connection must stay
            if self._answer is not None:
                self._answer.abort()
            self._lost()
            raise
        finally:
            journey.tracker.forget(self)

    def expire(self, now_s: float) -> None:
        """End the attempt where its time is over: nobody who trickles holds something for ever."""
        if now_s - self.began_s > self.deployment.timeouts.total and self._answer is not None:
            self._answer.abort()
            if self.journey.exchange.begun:
                self.journey.exchange.abort()

    def give_up(self) -> None:
        """The worker ends: what the attempt came to so far is settled, by estimate where the upstream gave no count."""
        if self._hold.settled:
            return
        if self._tap is not None:
            self._done(self._tap.usage, written_tokens=self._tap.events, outcome="gateway-stopped")
        else:
            outcome = self._outcome(self._estimate(), None, "gateway-stopped", estimated=True)
            self.book.settle(self._hold, outcome)
        if self._answer is not None:
            self._answer.abort()

    def abandon(self, outcome: str) -> None:
        """Another attempt has answered: what was seen of this one is settled, and its connection is closed."""
        if self.held_s is None or self._hold.settled:
            return
        if self._tap is not None:
            self._done(self._tap.usage, written_tokens=self._tap.events, outcome=outcome)
        else:
            self.health.leave()
            if self._asking:
                self._settle(self._estimate(unseen=not self.asked.stream), None, outcome=outcome, estimated=True)
            else:
                self.book.settle(self._hold, None)
        if self._answer is not None:
            self._answer.abort()

    # on the wire

    async def _through(self, told: int | None) -> Told:
        try:
            await self._signed_in()
            target, headers, body = self._request(told)
        except UntranslatableRequest as error:
            self.health.leave()
            self.book.settle(self._hold, None)
            return GatewayReply(
                status=400, kind="invalid_request_error", message=str(error), param=error.parameter
            ), True
        except UnreadableRequest as bad:
            self.health.leave()
            self.book.settle(self._hold, None)
            return GatewayReply(status=bad.status, kind=bad.kind, message=str(bad)), False
        except TonnageError as error:
            self._failed("sign-in", billed=False)
            return GatewayReply(status=502, kind="upstream_failed", message=f"{self.deployment.name}: {error}"), True
        self.journey.told_added(self.journey.running.measures)
        asked_s = monotonic()
        self._asking = True
        try:
            answer = await self.journey.running.upstreams[self.deployment.name].ask("POST", target, headers, body)
        except UpstreamFault as fault:
            self.sent = fault.sent
            self._failed(fault.kind, billed=fault.sent)  # what was written may have been computed
            return self._no_answer(fault), True
        self.sent, self._answer, self.status = True, answer, answer.status
        self.first_byte_s = monotonic() - asked_s
        if answer.status != 200:
            return await self._refused(answer)
        return await (self._stream(answer, told) if answer.streams else self._whole(answer, told))

    async def _signed_in(self) -> None:
        """Wait for a token where there is none that holds; the event loop goes on meanwhile. Raises TonnageError."""
        running, name = self.journey.running, self.deployment.name
        signer = running.signers.get(name)
        if signer is not None:
            fetching = signer.preparing(self.deployment.endpoint.url, time())
            if fetching is not None:
                await asyncio.wrap_future(fetching)

    def _request(self, told: int | None) -> tuple[bytes, Headers, bytes]:
        """Target, headers and body for the upstream."""
        deployment = self.deployment
        passed = self._passage.request(self.asked, deployment.model, told)
        if passed.dropped:
            self._dropped = ",".join(passed.dropped).encode()
        target, body = passed.target, passed.body
        headers = [(b"content-type", passed.content_type), _IDENTITY, *self._passage.headers]
        headers += [pair for pair in self.journey.exchange.headers if pair[0] in PASSED_ON]
        if self.journey.record is not None:
            headers = self.journey.record.passed_on(self, headers)
        signer = self.journey.running.signers.get(deployment.name)
        if signer is not None:
            headers += signer.headers("POST", deployment.endpoint.url + target.decode(), body, time())
        return target, headers, body

    async def _refused(self, answer: Connection) -> Told:
        """An answer that is none: too busy, broken, or the client's own fault."""
        status, name = answer.status, self.deployment.name
        try:
            body = await _all(answer)
        except UpstreamFault as fault:
            self._failed(fault.kind, billed=status in MAYBE_BILLED)
            return self._no_answer(fault), True
        if status in BUSY or (status == 400 and _says_limit(answer, body)):
            wait_s = self.health.busy(monotonic(), _retry_after_s(answer))
            self._settle(Amounts(usd_pico=0, tokens=0), None, outcome="busy")
            message = f"{name} takes no more requests now"
            return GatewayReply(status=429, kind="rate_limit_exceeded", message=message, retry_after_s=wait_s), True
        if status >= 500 or status in OURS:
            self._failed(f"status-{status}", billed=status in MAYBE_BILLED)
            said = f"answered {status}" if status >= 500 else f"refused the gateway's sign-in ({status})"
            return GatewayReply(status=502, kind="upstream_failed", message=f"{name} {said}"), True
        self.health.leave()
        self._settle(Amounts(usd_pico=0, tokens=0), None, outcome="refused")
        status, body = self._passage.error(status, body)
        self.meter.answered(status)
        self.journey.exchange.answer(status, self._head(_kind(answer), None), body)
        return None, False

    async def _whole(self, answer: Connection, told: int | None) -> Told:
        try:
            body, usage = self._passage.whole(await _all(answer), self.asked.model)
        except UpstreamFault as fault:
            self._failed(fault.kind, billed=True)
            return self._no_answer(fault), True
        except NotAnAnswer as error:
            self._failed("not-an-answer", billed=True)
            message = f"{self.deployment.name} answered {error}"
            return GatewayReply(status=502, kind="upstream_failed", message=message), True
        if self.asked.media is not None:
            usage = self.asked.media.counted(usage)
        usd_pico = self._done(usage, written_tokens=len(body) // BYTES_PER_TOKEN, outcome="ok")
        kind = _kind(answer)
        if usage is not None:  # an answer that counts nothing may be an error in disguise
            self._keep(kind, body, usd_pico)
        self.meter.answered(200)
        head = b"%bx-tonnage-cost-usd: %b\r\n" % (self._head(kind, told), usd_text(usd_pico).encode())
        self.journey.exchange.answer(200, head, body)
        return None, False

    async def _stream(self, answer: Connection, told: int | None) -> Told:
        """Pieces as they come. Before the first one another attempt can be made; after it a fault ends the stream."""
        exchange = self.journey.exchange
        tap = self._tap = self._passage.tap(self.asked)
        kind = self._passage.kind or _kind(answer)
        kept: list[bytes] | None = [] if self.journey.cache is not None else None
        size = 0
        fault: UpstreamFault | None = None
        gone_s: float | None = None
        told_error = False  # the client has the error event already, in its own dialect's words
        try:
            while (piece := await answer.read()) is not None:
                passed = tap.feed(piece)
                if tap.failed is not None:  # nothing more can be read: the upstream need not go on writing
                    answer.abort()
                    if passed and exchange.begun and gone_s is None:
                        await exchange.piece(passed)
                    fault, told_error = UpstreamFault(tap.failed), exchange.begun
                    break
                if passed and gone_s is None:
                    if not exchange.begun:
                        exchange.begin(200, b"cache-control: no-cache\r\n" + self._head(kind, told))
                    await exchange.piece(passed)
                    if kept is not None:
                        kept.append(passed)
                        size += len(passed)
                        kept = None if size > LARGEST_BYTES else kept
                if gone_s is None and exchange.gone:
                    gone_s = monotonic()
                    self.journey.running.count_gone()
                if gone_s is not None and monotonic() - gone_s > self.journey.running.gateway.after_disconnect_s:
                    answer.abort()
                    break
        except UpstreamFault as error:
            fault = error
        whole = fault is None and tap.finished
        if not (whole or exchange.begun or exchange.gone):
            self._failed("cut", billed=True)
            return self._no_answer(fault or UpstreamFault("its answer has no end")), True
        ended = "failed" if tap.ended_failed else "ok"
        outcome = "client-gone" if gone_s is not None else ended if whole else "cut"
        usd_pico = self._done(tap.usage, written_tokens=tap.events, outcome=outcome)
        self.meter.answered(200)
        rest = tap.rest
        if outcome == "ok" and kept is not None and tap.usage is not None:
            self._keep(kind, b"".join([*kept, rest]), usd_pico)
        if whole:
            exchange.end(rest)
        else:
            broken = self._no_answer(fault or UpstreamFault("its answer has no end"))
            exchange.end(rest if told_error else rest + broken.event(self.asked.surface), whole=False)
        return None, False

    def _no_answer(self, fault: UpstreamFault) -> GatewayReply:
        message = f"{self.deployment.name} gave no whole answer: {fault}"
        return GatewayReply(
            status=504 if fault.kind in SILENT else 502, kind="upstream_failed", message=message, retry_after_s=1.0
        )

    def _head(self, kind: bytes, told: int | None) -> bytes:
        request, name = self.journey.request.encode(), self.deployment.name.encode()
        head = b"content-type: %b\r\nx-tonnage-request-id: %b\r\nx-tonnage-deployment: %b\r\n" % (kind, request, name)
        if self._dropped:
            head += b"x-tonnage-dropped: %b\r\n" % self._dropped
        return head if told is None else b"%bx-tonnage-max-tokens: %d\r\n" % (head, told)

    def _keep(self, kind: bytes, body: bytes, usd_pico: int) -> None:
        cache = self.journey.cache
        if cache is not None and self.route is self.journey.route:  # a fallback's answer is not the route's own
            cache.put(
                self.journey.cache_key, status=200, content_type=kind, body=body, usd_pico=usd_pico,
                deployment=self.deployment.name,
            )  # fmt: skip

    # the end

    def _done(self, usage: Usage | None, *, written_tokens: int, outcome: str) -> int:
        """Settle an answer: by its usage, else by what was seen of it. Pico-dollars."""
        if outcome in ("cut", "failed"):
            self.failed = True
            self.health.fail(monotonic())
            self.meter.fault(outcome)
        else:
            self.health.succeed(self.first_byte_s or 0.0, None if usage is None else usage.output_tokens)
        media = self.asked.media
        if media is not None:
            return self._done_media(media, usage, outcome)
        counted = usage or Usage(
            input_tokens=self.asked.input_tokens_estimate,
            output_tokens=written_tokens if OUTPUT_KEYS[self.asked.surface] else 0,
        )
        usd_pico = self.deployment.rates.cost_pico(counted)
        if usd_pico > self._hold.amounts.usd_pico:
            self.meter.over_hold()
        amounts = Amounts(usd_pico=usd_pico, tokens=counted.input_tokens + counted.output_tokens)
        self._settle(amounts, counted, outcome=outcome, estimated=usage is None)
        return usd_pico

    def _done_media(self, media: MediaAsk, usage: Usage | None, outcome: str) -> int:
        """Images and audio are billed by themselves: their tokens nobody has counted."""
        assert self.deployment.media is not None
        usd_pico = media.cost_pico(self.deployment.media, usage)
        if usd_pico > self._hold.amounts.usd_pico:
            self.meter.over_hold()
        self._settle(Amounts(usd_pico=usd_pico, tokens=0), usage, outcome=outcome, estimated=usage is None)
        return usd_pico

    def _lost(self) -> None:
        """A fault of the gateway's own, which says nothing of the deployment."""
        if self._hold.settled:
            return
        self.health.leave()
        if self.sent:
            amounts = self._estimate()
            self.journey.tracker.keep_uncertain(
                self._hold, self._outcome(amounts, None, "gateway-fault", estimated=True)
            )
        else:
            self.book.settle(self._hold, None)

    def _failed(self, kind: str, *, billed: bool) -> None:
        """An attempt without an answer. Where it may have been billed, its hold stays until that is settled."""
        if self._hold.settled:
            return
        self.failed = True
        self.health.fail(monotonic())
        self.meter.fault(kind)
        if billed:
            amounts = self._estimate()
            self.journey.tracker.keep_uncertain(self._hold, self._outcome(amounts, None, kind, estimated=True))
        elif self.sent:
            self._settle(Amounts(usd_pico=0, tokens=0), None, outcome=kind)
        else:
            self.book.settle(self._hold, None)
            if self.journey.record is not None:  # it did not reach the wire, so it is no row of the ledger
                self._outcome(Amounts(usd_pico=0, tokens=0), None, kind, estimated=False)

    def _settle(self, amounts: Amounts, usage: Usage | None, *, outcome: str, estimated: bool = False) -> None:
        made = self._outcome(amounts, usage, outcome, estimated=estimated)
        self.book.settle(self._hold, made)
        self.meter.settled(usage, amounts.usd_pico, made.first_byte_s, made.latency_s)
        if usage is not None:
            self.journey.running.key_meter(self.journey.caller).settled(usage, amounts.usd_pico)

    def _outcome(self, amounts: Amounts, usage: Usage | None, outcome: str, *, estimated: bool) -> AttemptOutcome:
        if self.asked.media is not None:
            usage = None  # its tokens nobody has counted
        made = AttemptOutcome(
            status=self.status, outcome=outcome, amounts=amounts,
            input_tokens=None if usage is None else usage.input_tokens,
            output_tokens=None if usage is None else usage.output_tokens,
            cached_tokens=None if usage is None else usage.cached_input_tokens, estimated=estimated,
            first_byte_s=self.first_byte_s, latency_s=monotonic() - self.began_s,
        )  # fmt: skip
        if self.journey.record is not None:
            self.journey.record.attempt(self, made)
        return made

    def _estimate(self, *, unseen: bool = True) -> Amounts:
        """What the attempt is expected to take, where nobody will say; `unseen`: output too, of which none came."""
        if self.asked.media is not None:
            assert self.deployment.media is not None
            return Amounts(usd_pico=self.asked.media.cost_pico(self.deployment.media, None), tokens=0)
        inputs, outputs = self.asked.input_tokens_estimate, 0
        if unseen and OUTPUT_KEYS[self.asked.surface]:
            outputs = min(int(self.health.output_tokens), self.asked.max_tokens or 1 << 30) * self.asked.answers
        return Amounts(usd_pico=self.deployment.rates.most_pico(inputs, outputs), tokens=inputs + outputs)


async def _all(answer: Connection) -> bytes:
    """The whole body. Raises UpstreamFault; one that is too large is a fault too."""
    first = await answer.read()
    if first is None:
        return b""
    pieces, size = [first], len(first)
    while (piece := await answer.read()) is not None:
        pieces.append(piece)
        size += len(piece)
        if size > LARGEST_ANSWER_BYTES:
            answer.abort()
            raise UpstreamFault(f"the answer is over {LARGEST_ANSWER_BYTES >> 20} MiB")
    return first if len(pieces) == 1 else b"".join(pieces)


def _kind(answer: Connection) -> bytes:
    for name, value in answer.headers:
        if name == b"content-type":
            return value
    return b"application/json"


def _retry_after_s(answer: Connection) -> float | None:
    """What a busy deployment asks for, at most LONGEST_REST_S; None: it does not say."""
    for name, value in answer.headers:
        if name == b"retry-after-ms" and value.isdigit():
            return min(float(value) / 1000.0, LONGEST_REST_S)
        if name == b"retry-after" and (found := retry_after_s(value.decode("latin-1"))) is not None:
            return min(found, LONGEST_REST_S)
    return None


def _says_limit(answer: Connection, body: bytes) -> bool:
    """Whether a bad request is a limit by its code or type. Its message may repeat what the client wrote: not read."""
    said = [value.decode("latin-1") for name, value in answer.headers if name == b"x-amzn-errortype"]
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError:
        found = None
    error = found.get("error", found) if isinstance(found, dict) else None
    if isinstance(error, dict):
        said += [value for name in ("code", "type", "__type") if isinstance(value := error.get(name), str)]
    return any(word in one.lower() for one in said for word in _LIMITS)
