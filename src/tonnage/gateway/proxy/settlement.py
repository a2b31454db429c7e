"""What an attempt comes to: its hold is settled once, by the upstream's own count, else by a marked estimate."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Final, Protocol

from tonnage.gateway.dialects.usage import Usage
from tonnage.gateway.file.described import Deployment
from tonnage.gateway.money.allowances import Amounts
from tonnage.gateway.money.book import SpendBook
from tonnage.gateway.money.holds import AttemptOutcome, Hold
from tonnage.gateway.proxy.asked import OUTPUT_KEYS, GatewayRequest
from tonnage.gateway.proxy.running import KeyMeter, RouteMeter
from tonnage.gateway.routing.health import DeploymentHealth

if TYPE_CHECKING:
    from tonnage.gateway.media.asked import MediaAsk
    from tonnage.gateway.observing.record import RequestRecord

NOTHING: Final = Amounts(usd_pico=0, tokens=0)


class AttemptTracker(Protocol):
    """Who looks after attempts beside what carries them."""

    def keep_uncertain(self, hold: Hold, outcome: AttemptOutcome) -> None:
        """Keep the hold of an attempt that may have been billed."""

    def watch(self, attempt: AttemptUnderWay) -> None:
        """End it when its time is over."""

    def forget(self, attempt: AttemptUnderWay) -> None:
        """It has ended."""


class AttemptUnderWay(Protocol):
    """An attempt as its tracker sees it."""

    @property
    def route_and_key(self) -> tuple[str, str]:
        """The names that pages count it by."""

    def expire(self, now_s: float) -> None:
        """End it where its time is over."""

    def give_up(self) -> None:
        """The worker ends: settle what it came to so far."""


class Settlement:
    """Of one attempt. `sent`: something went over the wire; `failed`: by a fault of the deployment; `hold`: what the
    attempt has taken of the allowances, once it has."""

    __slots__ = (
        "_asked", "_book", "_deployment", "_key_meter", "_record", "_tracker", "began_s", "failed", "first_byte_s",
        "health", "hold", "meter", "sent", "status",
    )  # fmt: skip

    def __init__(
        self, asked: GatewayRequest, deployment: Deployment, began_s: float, health: DeploymentHealth,
        meter: RouteMeter, key_meter: KeyMeter, book: SpendBook, tracker: AttemptTracker, record: RequestRecord | None,
    ) -> None:  # fmt: skip
        self._asked, self._deployment, self.began_s = asked, deployment, began_s
        self.health, self.meter, self._key_meter = health, meter, key_meter
        self._book, self._tracker, self._record = book, tracker, record
        self.sent = self.failed = False
        self.status = 0
        self.first_byte_s: float | None = None
        self.hold: Hold

    def done(self, usage: Usage | None, *, written_tokens: int, outcome: str) -> int:
        """Settle an answer: by its usage, else by what was seen of it. Pico-dollars."""
        now_s = monotonic()
        if outcome in ("cut", "failed"):
            self.failed = True
            self.health.fail(now_s)
            self.meter.fault(outcome)
        else:
            outputs = None if usage is None else usage.output_tokens
            self.health.succeed(self.first_byte_s or 0.0, outputs, now_s - self.began_s)
        media = self._asked.media
        if media is not None:
            return self._done_media(media, usage, outcome)
        counted = usage or Usage(
            self._asked.input_tokens_estimate, written_tokens if OUTPUT_KEYS[self._asked.surface] else 0
        )
        usd_pico = self._deployment.rates.cost_pico(counted)
        if usd_pico > self.hold.amounts.usd_pico:
            self.meter.over_hold()
        self.settle(
            Amounts(usd_pico, counted.input_tokens + counted.output_tokens),
            counted,
            outcome=outcome,
            estimated=usage is None,
        )
        return usd_pico

    def _done_media(self, media: MediaAsk, usage: Usage | None, outcome: str) -> int:
        """Images and audio are billed by themselves: their tokens are not counted."""
        assert self._deployment.media is not None
        usd_pico = media.cost_pico(self._deployment.media, usage)
        if usd_pico > self.hold.amounts.usd_pico:
            self.meter.over_hold()
        self.settle(Amounts(usd_pico, 0), usage, outcome=outcome, estimated=usage is None)
        return usd_pico

    def fault(self, kind: str, *, billed: bool) -> None:
        """An attempt without an answer. Where it may have been billed, its hold stays until that is settled."""
        if self.hold.settled:
            return
        self.failed = True
        self.health.fail(monotonic())
        self.meter.fault(kind)
        if billed:
            self._keep_uncertain(kind)
        elif self.sent:
            self.settle(NOTHING, None, outcome=kind)
        else:
            self.unsent()
            if self._record is not None:  # it did not reach the wire, so it is no row of the ledger
                self._outcome(NOTHING, None, kind, estimated=False)

    def lost(self) -> None:
        """A fault of the gateway's own, which says nothing of the deployment."""
        if self.hold.settled:
            return
        self.health.leave()
        if self.sent:
            self._keep_uncertain("gateway-fault")
        else:
            self.unsent()

    def unsent(self) -> None:
        """Nothing went over the wire: the hold goes back."""
        self._book.settle(self.hold, None)

    def estimated(self, outcome: str) -> None:
        """Its cost will stay unknown: it is settled by estimate, as the worker ends."""
        self._book.settle(self.hold, self._outcome(self.estimate(), None, outcome, estimated=True))

    def settle(self, amounts: Amounts, usage: Usage | None, *, outcome: str, estimated: bool = False) -> None:
        made = self._outcome(amounts, usage, outcome, estimated=estimated)
        self._book.settle(self.hold, made)
        self.meter.settled(usage, amounts.usd_pico, made.first_byte_s, made.latency_s)
        if usage is not None:
            self._key_meter.settled(usage, amounts.usd_pico)

    def estimate(self, *, unseen: bool = True) -> Amounts:
        """What the attempt is expected to take, where its use is unknown; `unseen`: output too, of which none came."""
        asked, deployment = self._asked, self._deployment
        if asked.media is not None:
            assert deployment.media is not None
            return Amounts(asked.media.cost_pico(deployment.media, None), 0)
        inputs, outputs = asked.input_tokens_estimate, 0
        if unseen and OUTPUT_KEYS[asked.surface]:
            outputs = min(int(self.health.output_tokens), asked.max_tokens or 1 << 30) * asked.answers
        return Amounts(deployment.rates.most_pico(inputs, outputs), inputs + outputs)

    def _keep_uncertain(self, kind: str) -> None:
        made = self._outcome(self.estimate(), None, kind, estimated=True)
        self._tracker.keep_uncertain(self.hold, made)

    def _outcome(self, amounts: Amounts, usage: Usage | None, outcome: str, *, estimated: bool) -> AttemptOutcome:
        latency_s = monotonic() - self.began_s
        if usage is None or self._asked.media is not None:  # tokens of images and audio are not counted
            made = AttemptOutcome(
                self.status, outcome, amounts, None, None, None, estimated, self.first_byte_s, latency_s
            )
        else:
            made = AttemptOutcome(
                self.status, outcome, amounts, usage.input_tokens, usage.output_tokens, usage.cached_input_tokens,
                estimated, self.first_byte_s, latency_s,
            )  # fmt: skip
        if self._record is not None:
            self._record.attempt(id(self), self._deployment, made)
        return made
