"""The waiting line of one limit: by priority, and in turn among the keys of a priority. No clock, no event loop."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator
from typing import Final, Literal

from tonnage.gateway.money.allowances import Allowance

SMOOTHING: Final = 0.1  # the share of the newest time in the mean
Ending = Literal["granted", "shed", "late", "gone"]


class Ticket:
    """A request that waits, in one or more lines: whichever has a place first lets it go on.

    `passed`: ids of limits in whose lines it has waited, where it need not wait again behind those that came later.
    """

    __slots__ = ("granted_by", "key", "lines", "passed", "priority", "since_s", "until_s")

    def __init__(self, key: str, priority: int, since_s: float, until_s: float) -> None:
        self.key, self.priority, self.since_s, self.until_s = key, priority, since_s, until_s
        self.lines: tuple[WaitingLine, ...] = ()
        self.passed: set[str] = set()
        self.granted_by: WaitingLine | None = None


class WaitingLine:
    """`granted`: tickets that were let go on and have not taken their place yet; `service_s`: for how long a request
    keeps a place, a mean; None: not measured."""

    def __init__(self, allowance: Allowance) -> None:
        self.allowance = allowance
        self.granted = 0
        self.service_s: float | None = None
        self.probed_s = 0.0
        self._waiting: dict[int, OrderedDict[str, deque[Ticket]]] = {}
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Ticket]:
        for keys in self._waiting.values():
            for tickets in keys.values():
                yield from tickets

    def add(self, ticket: Ticket) -> None:
        self._waiting.setdefault(ticket.priority, OrderedDict()).setdefault(ticket.key, deque()).append(ticket)
        self._size += 1

    def remove(self, ticket: Ticket) -> None:
        keys = self._waiting[ticket.priority]
        keys[ticket.key].remove(ticket)
        self._size -= 1
        if not keys[ticket.key]:
            del keys[ticket.key]
            if not keys:
                del self._waiting[ticket.priority]

    def first(self) -> Ticket | None:
        """Whose turn it is: the highest priority, of it the key that was not served for longest. That key's next turn
        comes after the others'."""
        if not self._waiting:
            return None
        keys = self._waiting[max(self._waiting)]
        key = next(iter(keys))
        keys.move_to_end(key)
        return keys[key][0]

    def ahead_of(self, key: str, priority: int) -> int:
        """How many would be served before a newcomer."""
        ahead = 0
        for other, keys in self._waiting.items():
            if other > priority:
                ahead += sum(map(len, keys.values()))
            elif other == priority:
                own = len(keys.get(key, ()))
                ahead += own + sum(min(len(tickets), own + 1) for name, tickets in keys.items() if name != key)
        return ahead

    def sheds_for(self, key: str, priority: int) -> Ticket | None:
        """Who leaves a full line for a newcomer: the newest of the lowest priority's longest key, where that is lower
        than the newcomer's, or has more waiting than the newcomer's key would have. None: the newcomer stays out."""
        if not self._waiting:
            return None
        lowest = min(self._waiting)
        keys = self._waiting[lowest]
        longest = max(keys.values(), key=len)
        if lowest < priority:
            return longest[-1]
        if lowest > priority or len(longest) <= len(keys.get(key, ())) + 1:
            return None
        return longest[-1]

    def kept(self, seconds: float) -> None:
        """A request kept its place for so long."""
        known = self.service_s
        self.service_s = seconds if known is None else known + SMOOTHING * (seconds - known)

    def expected_s(self, ahead: int, places: int) -> float | None:
        """How long a newcomer would wait: each place is free once in `service_s`. None: nothing is measured yet."""
        return None if self.service_s is None else (ahead + 1) * self.service_s / max(places, 1)
