"""What the gateway has seen of a deployment: whether it is well, how long it takes, how much it has under way."""

from __future__ import annotations

from collections import deque
from typing import Final

FAILURES_TO_OPEN: Final = 5  # in a row
FIRST_REST_S: Final = 2.0  # without requests after it; twice as long each time, up to the longest
LONGEST_REST_S: Final = 60.0
FIRST_BUSY_REST_S: Final = 0.1  # where a busy deployment does not say how long; twice as long while it stays busy
LONGEST_BUSY_REST_S: Final = 5.0
SMOOTHING: Final = 0.1  # the share of the newest latency in the mean
WINDOW_S: Final = 60.0
FEWEST_RETRIES: Final = 10  # in a window, however few requests there were


class DeploymentHealth:
    """Of one deployment, in one worker. Times are of a monotonic clock, in seconds."""

    def __init__(self, first_byte_s: float | None = None) -> None:
        self.first_byte_s = first_byte_s  # expected, then measured; None: nothing is known
        self.output_tokens = 256.0  # a mean of its answers
        self.token_line = LoadLine()  # seconds an output token, of whole requests
        self.request_line = LoadLine()  # seconds a request that writes no tokens
        self.under_way = 0
        self.failures = 0
        self.not_before_s = 0.0
        self._rest_s = FIRST_REST_S
        self._busy_rest_s = FIRST_BUSY_REST_S
        self._probing = False

    def expect(
        self, *, token_s: float | None = None, output_tokens: float | None = None, request_s: float | None = None
    ) -> None:
        """What others have measured of it, one request at a time: seconds an output token, output tokens a request,
        seconds of a request without any."""
        if output_tokens:
            self.output_tokens = output_tokens
        if token_s is not None:
            self.token_line.add(1, token_s)
        if request_s is not None:
            self.request_line.add(1, request_s)

    def available(self, now_s: float) -> bool:
        """Whether it may be asked: it is well, or has rested and no request is trying it."""
        if now_s < self.not_before_s:
            return False
        return self.failures < FAILURES_TO_OPEN or not self._probing

    def begin(self) -> None:
        self.under_way += 1
        if self.failures >= FAILURES_TO_OPEN:
            self._probing = True

    def succeed(self, first_byte_s: float, output_tokens: int | None, took_s: float) -> None:
        """`took_s`: from the request to the end of its answer."""
        if output_tokens:
            self.token_line.add(self.under_way, took_s / output_tokens)
        else:
            self.request_line.add(self.under_way, took_s)
        self.under_way -= 1
        self.failures, self._probing, self._rest_s = 0, False, FIRST_REST_S
        self._busy_rest_s = FIRST_BUSY_REST_S
        known = self.first_byte_s
        self.first_byte_s = first_byte_s if known is None else known + SMOOTHING * (first_byte_s - known)
        if output_tokens:
            self.output_tokens += SMOOTHING * (output_tokens - self.output_tokens)

    def answer_s(self, output_tokens: float, places: float | None) -> float | None:
        """When one more request is expected to be answered whole: the wait for a place, then its output tokens at the
        seconds a token that so many in flight take; None: nothing is measured.

        `output_tokens` 0: it writes none. `places`: requests that it holds at a time, None: not known. Of `c` places
        that are all taken one becomes free every S/c on average, S being the time of a request.
        """
        line = self.token_line if output_tokens else self.request_line
        each_s = line.at(self.under_way + 1 if places is None else min(self.under_way + 1, max(int(places), 1)))
        if each_s is None:
            return None
        service_s = each_s * (output_tokens or 1.0)
        if places is None or self.under_way < places:
            return service_s
        return service_s + (self.under_way - places + 1.0) / places * service_s

    def fail(self, now_s: float) -> None:
        self.under_way -= 1
        self.failures += 1
        self._probing = False
        if self.failures >= FAILURES_TO_OPEN:
            self.not_before_s = now_s + self._rest_s
            self._rest_s = min(2.0 * self._rest_s, LONGEST_REST_S)

    def leave(self) -> None:
        """A request that says nothing of it: refused by the client's own fault, or given up."""
        self.under_way -= 1
        self._probing = False

    def busy(self, now_s: float, asked_s: float | None) -> float:
        """It takes no more requests now. Returns the seconds that it rests: as it asked (0: it may be asked again at
        once), else a little, and longer each time until it answers."""
        self.leave()
        rest_s = self._busy_rest_s if asked_s is None else asked_s
        if asked_s is None:
            self._busy_rest_s = min(2.0 * self._busy_rest_s, LONGEST_BUSY_REST_S)
        self.not_before_s = max(self.not_before_s, now_s + rest_s)
        return rest_s


class RetryBudget:
    """Retries of a route may be a share of its requests of the last minute, so that they cannot add to an overload."""

    def __init__(self, share: float) -> None:
        self.share = share
        self._requests: deque[float] = deque()
        self._retries: deque[float] = deque()

    def request(self, now_s: float) -> None:
        self._requests.append(now_s)
        _forget(self._requests, now_s)

    def take(self, now_s: float) -> bool:
        """Whether one more retry may be made; it counts then."""
        _forget(self._requests, now_s)
        _forget(self._retries, now_s)
        if len(self._retries) >= max(FEWEST_RETRIES, self.share * len(self._requests)):
            return False
        self._retries.append(now_s)
        return True


def _forget(times: deque[float], now_s: float) -> None:
    while times and times[0] < now_s - WINDOW_S:
        times.popleft()


RECENT: Final = 0.1  # the share of the newest measurement in the means
LONG: Final = 0.02  # and in the slope, which noise disturbs more
LEAST_SPREAD: Final = 0.25  # requests in flight, squared: of less no slope can be read
FEWEST: Final = 8  # measurements before a slope is read


class LoadLine:
    """The mean of the last seconds, and their slope over requests in flight by least squares; newer ones count more.

    The slope lies between none (what is asked does not share anything) and proportional (requests share one machine).
    Where requests in flight have not varied it is not known: more than so far are taken as proportional.

    >>> line = LoadLine()
    >>> line.at(1) is None
    True
    >>> line.add(2, 0.5)
    >>> line.at(1), line.at(4)
    (0.5, 1.0)
    """

    __slots__ = ("_count", "_n", "_nn", "_nt", "_seconds", "_t", "_under_way", "_weight")

    def __init__(self) -> None:
        self._count = 0
        self._seconds = self._under_way = 0.0  # recent means
        self._weight = self._n = self._t = self._nn = self._nt = 0.0

    def add(self, under_way: int, seconds: float) -> None:
        """A measurement, with the requests in flight then, this one too (1 or more)."""
        self._count += 1
        share = max(RECENT, 1.0 / self._count)
        self._seconds += share * (seconds - self._seconds)
        self._under_way += share * (under_way - self._under_way)
        keep = 1.0 - LONG
        self._weight = keep * self._weight + 1.0
        self._n = keep * self._n + under_way
        self._t = keep * self._t + seconds
        self._nn = keep * self._nn + under_way * under_way
        self._nt = keep * self._nt + under_way * seconds

    def at(self, under_way: int) -> float | None:
        """Seconds with so many requests in flight; None: nothing is measured."""
        if not self._count:
            return None
        slope = self._slope()
        if slope is None:
            return self._seconds * max(under_way / self._under_way, 1.0)
        return self._seconds + slope * (under_way - self._under_way)

    def _slope(self) -> float | None:
        """Seconds a request in flight. `a·n` is the most: a line through the origin."""
        n, t = self._n / self._weight, self._t / self._weight
        spread = self._nn / self._weight - n * n
        if self._count < FEWEST or spread < LEAST_SPREAD:
            return None
        slope = (self._nt / self._weight - n * t) / spread
        return min(max(slope, 0.0), self._seconds / self._under_way)
