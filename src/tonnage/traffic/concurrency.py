"""How many requests of a batch go out at a time, found by feedback: as many as still bring more answers a second.

Latency says little here: a service that batches answers each request more slowly and all of them sooner. So the law
climbs the throughput: it doubles while that pays, then tries steps up and down, more and more seldom, and gives way
where the service says 429.
"""

from __future__ import annotations

from typing import Final, Literal

FIRST: Final = 4
MOST: Final = 1024
PAYS: Final = 1.10  # throughput over that before, where a doubling paid
STEP_PAYS: Final = 1.03  # the same for a step of an eighth
KEEPS: Final = 0.98  # fewer at a time are kept where they bring at least this share
SHORTEST_WINDOW_S: Final = 0.2
ANSWERS_PER_PLACE: Final = 2  # a window holds this many answers for each request in flight
REST_WINDOWS: Final = 8  # between two rounds of trying; twice as many after each round that found nothing better
LONGEST_REST_WINDOWS: Final = 64
BACK_OFF: Final = 0.7  # of the number, on a 429 or 503

Trying = Literal["doubling", "up", "down", "rest"]


class ConcurrencySearch:
    """`limit` is how many requests may be in flight now; `answered` and `refused` record what arrived, and when."""

    def __init__(self, *, first: int = FIRST, most: int = MOST, now_s: float = 0.0) -> None:
        self.limit = min(first, most)
        self._most = most
        self._trying: Trying = "doubling"
        self._base: tuple[int, float] = (0, 0.0)  # limit, answers a second of the best known place
        self._rest, self._next_rest = 0, REST_WINDOWS
        self._given_way = False  # in this window
        self._begin(now_s)

    def answered(self, now_s: float) -> None:
        """An answer came."""
        self._count += 1
        if self._count >= ANSWERS_PER_PLACE * self.limit and now_s - self._since_s >= SHORTEST_WINDOW_S:
            self._judge(self._count / (now_s - self._since_s))
            self._begin(now_s)

    def refused(self, now_s: float) -> None:
        """The service asked for less. Once a window: those refused together say it once."""
        if self._given_way:
            return
        self.limit = max(1, int(BACK_OFF * self.limit))
        self._trying, self._rest, self._base = "rest", REST_WINDOWS, (self.limit, 0.0)
        self._next_rest = REST_WINDOWS
        self._begin(now_s)
        self._given_way = True

    def _begin(self, now_s: float) -> None:
        self._since_s, self._count, self._given_way = now_s, 0, False

    def _judge(self, rate: float) -> None:
        """The window at `limit` brought `rate` answers a second: go on from the better of it and the place before."""
        limit, before = self._base
        if self._trying == "doubling":
            if rate > PAYS * before:
                self._base = (self.limit, rate)
                self._try("doubling", 2 * self.limit)
            else:
                self._try("down", limit - limit // 4)
        elif self._trying == "up":
            if rate > STEP_PAYS * before:
                self._base, self._next_rest = (self.limit, rate), REST_WINDOWS
                self._try("up", self.limit + max(1, self.limit // 8))
            else:
                self._try("down", limit - max(1, limit // 8))
        elif self._trying == "down":
            if rate >= KEEPS * before:
                self._base = (self.limit, max(rate, before))
                self._try("down", self.limit - max(1, self.limit // 8))
            else:
                self._try("rest", limit)
        elif self._rest > 0:
            self._rest -= 1
            self._base = (self.limit, rate)
        else:
            self._base = (self.limit, rate)
            self._try("up", self.limit + max(1, self.limit // 8))

    def _try(self, what: Trying, limit: int) -> None:
        wanted = max(1, min(limit, self._most))
        if wanted == self._base[0] and what != "rest":  # at an end: there is nothing to try
            what = "rest"
        if what == "rest":
            self._rest, self._next_rest = self._next_rest, min(2 * self._next_rest, LONGEST_REST_WINDOWS)
        self._trying, self.limit = what, wanted
