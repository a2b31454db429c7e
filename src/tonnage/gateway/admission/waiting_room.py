"""Where requests wait in a worker: lines by limit, places handed on as they are given back, those who would be too
late refused at once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from math import ceil
from time import monotonic
from typing import Final, NamedTuple

from tonnage.gateway.admission.line import Ending, Ticket, WaitingLine
from tonnage.gateway.file.conduct_entries import QueueEntry
from tonnage.gateway.file.described import Caller
from tonnage.gateway.measures import GatewayMeasures, add_time
from tonnage.gateway.money.allowances import Allowance
from tonnage.gateway.money.book import SpendBook
from tonnage.gateway.proxy.asked import UnreadableRequest
from tonnage.gateway.proxy.replies import GatewayReply
from tonnage.gateway.proxy.server import ClientExchange
from tonnage.http.connection import Headers

TICK_S: Final = 0.1
PROBE_S: Final = 0.3  # between tries to have a place that other workers lease
HIGHEST_PRIORITY: Final = 9
MOST_LINES: Final = 10_000
_DEADLINES: Final = {  # seconds a unit; the SDKs of OpenAI and Anthropic tell how long they wait
    b"x-tonnage-deadline-ms": 0.001, b"x-stainless-read-timeout": 1.0, b"x-stainless-timeout": 1.0,
}  # fmt: skip


class TurnRequest(NamedTuple):
    """What a client says of its request's turn. `until_s`: when its answer must begin, by the monotonic clock."""

    priority: int
    until_s: float


class WaitingRoom:
    """Of one worker, whose book has the places."""

    def __init__(self, book: SpendBook, measures: GatewayMeasures) -> None:
        self.book, self.measures = book, measures
        self._lines: dict[str, WaitingLine] = {}
        self._waiting: dict[Ticket, tuple[asyncio.Future[Ending], ClientExchange]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    # what an attempt asks and tells

    def occupied(self, allowances: Sequence[Allowance], ticket: Ticket | None) -> Allowance | None:
        """A limit at which others wait already, so that a newcomer does not go before them."""
        for one in allowances:
            if one.returns and (line := self._lines.get(one.id)) is not None and len(line):
                if ticket is not None and one.id in ticket.passed:
                    continue
                return one
        return None

    def took(self, ticket: Ticket | None) -> None:
        """The request has its place, or has stopped trying: the one it was granted is counted no more."""
        if ticket is not None and ticket.granted_by is not None:
            line, ticket.granted_by = ticket.granted_by, None
            line.granted -= 1
            self._hand_on(line)

    def gave_back(self, allowances: Sequence[Allowance], seconds: float) -> None:
        """An attempt that had places for so long has given them back."""
        for one in allowances:
            if one.returns:
                line = self._line(one)
                line.kept(seconds)
                self._hand_on(line)

    # waiting

    async def wait(
        self, full: Sequence[Allowance], ticket: Ticket, exchange: ClientExchange, entry: QueueEntry,
        first_byte_s: float,
    ) -> GatewayReply | None:  # fmt: skip
        """Wait until one of the limits has a place: None, and the request is tried again; else what refuses it.

        `first_byte_s`: how long its answer is expected to take then. A client that leaves gets a reply too, unread.
        """
        lines = [self._line(one) for one in {one.id: one for one in full}.values()]
        now_s = monotonic()
        found = [(self._ahead(line, ticket), line) for line in lines]
        expected = [(ahead, self._expected_s(line, ahead), line) for ahead, line in found]
        ahead, expected_s, line = min(expected, key=lambda one: (one[1] is None, one[1] or 0.0, one[0]))
        if expected_s is not None and now_s + expected_s + first_byte_s > ticket.until_s:
            return self._refused("too-late", line, ahead, expected_s)
        entered = tuple(one for one in lines if self._has_room(one, ticket, entry.places))
        if not entered:
            return self._refused("full", line, ahead, expected_s)
        ticket.lines = entered
        future: asyncio.Future[Ending] = asyncio.get_running_loop().create_future()
        for one in entered:
            one.add(ticket)
        self._waiting[ticket] = (future, exchange)
        for one in entered:
            self._hand_on(one)
        self._arm()
        try:
            ending = await future
        finally:
            self._leave(ticket)
        labels = (("limit", line.allowance.id),)
        self.measures.count("tonnage_gateway_waiting_total", (*labels, ("met", ending)))
        add_time(self.measures.histogram("tonnage_gateway_waiting_seconds", labels), monotonic() - now_s)
        if ending == "granted":
            return None
        ahead = self._ahead(line, ticket)
        return self._reply(ending, line, ahead, self._expected_s(line, ahead))

    def _ahead(self, line: WaitingLine, ticket: Ticket) -> int:
        return line.ahead_of(ticket.key, ticket.priority)

    def _expected_s(self, line: WaitingLine, ahead: int) -> float | None:
        return line.expected_s(ahead, self.book.places(line.allowance)[1])

    def _has_room(self, line: WaitingLine, ticket: Ticket, places: int) -> bool:
        """Whether the line takes one more; it may shed somebody for it."""
        if len(line) < places:
            return True
        shed = line.sheds_for(ticket.key, ticket.priority)
        if shed is None:
            return False
        self._leave_one(shed, line)
        return True

    def _leave_one(self, ticket: Ticket, line: WaitingLine) -> None:
        """Out of one line; who waits in no other one is refused."""
        line.remove(ticket)
        ticket.lines = tuple(one for one in ticket.lines if one is not line)
        if not ticket.lines:
            self._end(ticket, "shed")

    def _leave(self, ticket: Ticket) -> None:
        """Out of all lines, whatever ended the wait."""
        for one in ticket.lines:
            one.remove(ticket)
        ticket.lines = ()
        self._waiting.pop(ticket, None)

    def _end(self, ticket: Ticket, ending: Ending) -> None:
        future, _ = self._waiting.pop(ticket)
        if not future.done():
            future.set_result(ending)

    def _hand_on(self, line: WaitingLine) -> None:
        """Let as many go on as there are places here that are not promised."""
        while len(line) and line.granted < self.book.places(line.allowance)[0]:
            self._grant(line)

    def _grant(self, line: WaitingLine) -> None:
        ticket = line.first()
        assert ticket is not None
        ticket.passed.update(one.allowance.id for one in ticket.lines)
        for one in ticket.lines:
            one.remove(ticket)
        ticket.lines, ticket.granted_by = (), line
        line.granted += 1
        self._end(ticket, "granted")

    # beside the requests

    def _arm(self) -> None:
        if self._timer is None and self._waiting:
            self._timer = asyncio.get_running_loop().call_later(TICK_S, self._tick)

    def _tick(self) -> None:
        """Those whose time is over, or whose client has left, wait no more; the first of a line tries for a place that
        another worker may have given back."""
        self._timer = None
        now_s = monotonic()
        for ticket, (_, exchange) in tuple(self._waiting.items()):
            if exchange.gone or now_s >= ticket.until_s:
                self._end(ticket, "gone" if exchange.gone else "late")
                self._leave(ticket)
        for line in tuple(self._lines.values()):
            if not len(line):
                continue
            self._hand_on(line)
            free, leased = self.book.places(line.allowance)
            elsewhere = free <= 0 and leased < line.allowance.cap
            if len(line) and elsewhere and not line.granted and now_s - line.probed_s >= PROBE_S:
                line.probed_s = now_s
                self._grant(line)
        self._arm()

    def _line(self, allowance: Allowance) -> WaitingLine:
        line = self._lines.get(allowance.id)
        if line is None:
            if len(self._lines) >= MOST_LINES:  # of files that were read before
                self._lines = {name: one for name, one in self._lines.items() if len(one) or one.granted}
            line = self._lines[allowance.id] = WaitingLine(allowance)
        line.allowance = allowance
        return line

    # refusals

    def _refused(self, why: str, line: WaitingLine, ahead: int, expected_s: float | None) -> GatewayReply:
        self.measures.count("tonnage_gateway_waiting_total", (("limit", line.allowance.id), ("met", why)))
        return self._reply(why, line, ahead, expected_s)

    def _reply(self, why: str, line: WaitingLine, ahead: int, expected_s: float | None) -> GatewayReply:
        """429 with the place in the line and the wait that a newcomer would have now."""
        words = line.allowance.words
        head = b"x-tonnage-queue-position: %d\r\n" % (ahead + 1)
        if expected_s is not None:
            head += b"x-tonnage-expected-wait-s: %.3f\r\n" % expected_s
        return GatewayReply(
            status=429, kind="overloaded" if why == "shed" else "rate_limit_exceeded",
            message=f"{words[0].upper()}{words[1:]} is reached, and {_WHY[why]}",
            retry_after_s=1.0 if expected_s is None else max(ceil(expected_s), 1.0),
            more=(("limit", line.allowance.id), ("queue_position", ahead + 1), ("expected_wait_s", expected_s)),
            head=head,
        )  # fmt: skip


_WHY: Final = {
    "full": "as many requests wait already as may",
    "too-late": "a place is expected later than this request may wait",
    "late": "no place was free in the time that this request may wait",
    "shed": "requests of a higher priority, or of keys with fewer waiting, took its place in the line",
    "gone": "the client has left",
}


def standing(headers: Headers, caller: Caller, entry: QueueEntry, began_s: float) -> TurnRequest:
    """The priority of a request (its key's, or a lower one that it states) and its last moment. UnreadableRequest."""
    priority, wait_s = caller.priority, entry.longest
    for name, value in headers:
        if name == b"x-tonnage-priority":
            if not (value.isdigit() and int(value) <= HIGHEST_PRIORITY):
                raise UnreadableRequest(f"`x-tonnage-priority` is a whole number, 0 to {HIGHEST_PRIORITY}")
            priority = min(priority, int(value))
        elif (unit_s := _DEADLINES.get(name)) is not None:
            try:
                stated_s = float(value) * unit_s
            except ValueError:
                stated_s = float("nan")
            if stated_s > 0:
                wait_s = min(wait_s, stated_s)
            elif name == b"x-tonnage-deadline-ms":
                raise UnreadableRequest("`x-tonnage-deadline-ms` is a number of milliseconds above 0")
    return TurnRequest(priority=priority, until_s=began_s + wait_s)
