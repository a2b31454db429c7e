"""What answers took in the last minute, at the balancer: the whole, to the first piece, for each token after it."""

from __future__ import annotations

import math
import re
from collections import Counter, deque
from typing import Final

from tonnage.values import dataclass

WINDOW_S: Final = 60.0
SLICE_S: Final = 5.0
RATIO: Final = 1.05  # between two edges: a percentile is right to 5 %
LEAST_S: Final = 1e-5
FEWEST: Final = 20  # answers, below which a 95th percentile is one answer's
FEWEST_EVENTS: Final = 4  # of a stream, below which nothing is said of its tokens
TAIL_BYTES: Final = 2048  # of a stream, in which its last `usage` is
USAGE: Final = re.compile(rb'"completion_tokens"\s*:\s*(\d+)')


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerTimes:
    """Seconds of one whole answer since its request came; of a stream also to its first piece, and for each output
    token after it (None: not known)."""

    whole_s: float
    first_s: float | None = None
    per_token_s: float | None = None


class AnswerLatencies:
    """Of all answers of a service: 95th percentiles of the last minute."""

    def __init__(self) -> None:
        self._whole, self._first, self._per_token = LatencyWindow(), LatencyWindow(), LatencyWindow()

    def add(self, at_s: float, times: AnswerTimes) -> None:
        """An answer that ended at `at_s` of a clock that only goes forward."""
        self._whole.add(at_s, times.whole_s)
        if times.first_s is not None:
            self._first.add(at_s, times.first_s)
        if times.per_token_s is not None:
            self._per_token.add(at_s, times.per_token_s)

    def document(self, at_s: float) -> dict[str, float | None]:
        """As JSON carries it; None: too few answers, or none that stream."""
        return {
            "p95_s": self._whole.p95_s(at_s), "ttft_p95_s": self._first.p95_s(at_s),
            "tpot_p95_s": self._per_token.p95_s(at_s),
        }  # fmt: skip


class StreamClock:
    """Times the pieces of one stream of server-sent events, which end in empty lines.

    Tokens are those of the last `usage` in the stream, which engines send where the request asks for it
    (`stream_options`). Without it an event is taken for a token, and there are two more: the start of a chat and
    `[DONE]`. `event_per_token`: whether the engine sends one for each; with speculative decoding it does not.
    """

    def __init__(self, *, event_per_token: bool = True) -> None:
        self.first_s: float | None = None
        self._event_per_token = event_per_token
        self._tail = b""
        self._last_s = 0.0
        self._events = 0
        self._ended = False  # whether the last byte so far ended a line

    def note(self, at_s: float, piece: bytes) -> None:
        """A piece that came at `at_s`.

        >>> clock = StreamClock()
        >>> for at_s, piece in ((1.0, b"data: a\\n"), (1.0, b"\\ndata: b\\n\\n"), (1.5, b"data: c\\r\\n\\r\\n")):
        ...     clock.note(at_s, piece)
        >>> clock.note(2.0, b"data: d\\n\\ndata: [DONE]\\n\\n")
        >>> clock.first_s, clock.per_token_s
        (1.0, 0.3333333333333333)
        >>> clock.note(3.0, b'data: {"usage": {"completion_tokens": 9}}\\n\\n')
        >>> clock.per_token_s
        0.25
        """
        if self.first_s is None:
            self.first_s = at_s
        self._last_s = at_s
        self._tail = (self._tail + piece)[-TAIL_BYTES:]
        plain = piece.replace(b"\r", b"")
        joined = b"\n" + plain if self._ended else plain
        self._events += joined.count(b"\n\n")
        self._ended = joined.endswith(b"\n") and not joined.endswith(b"\n\n")

    @property
    def per_token_s(self) -> float | None:
        """The mean time of an output token after the first piece; None where there are too few, or it is not known how
        many there are."""
        if self.first_s is None or self._events < FEWEST_EVENTS:
            return None
        counts = USAGE.findall(self._tail)
        if not counts and not self._event_per_token:
            return None
        later = int(counts[-1]) - 1 if counts else self._events - 2
        return (self._last_s - self.first_s) / later if later > 0 else None


class LatencyWindow:
    """Counts in steps of 5 %, in slices of five seconds: its memory does not grow with the rate."""

    def __init__(self) -> None:
        self._slices: deque[tuple[float, Counter[int]]] = deque()

    def add(self, at_s: float, took_s: float) -> None:
        """An answer that ended at `at_s` of a clock that only goes forward."""
        if not self._slices or at_s - self._slices[-1][0] >= SLICE_S:
            self._slices.append((at_s, Counter()))
            self._forget(at_s)
        self._slices[-1][1][math.ceil(math.log(max(took_s, LEAST_S) / LEAST_S, RATIO))] += 1

    def p95_s(self, at_s: float) -> float | None:
        """The 95th percentile of the last minute, at most 5 % too high; None with fewer than twenty answers.

        >>> window = LatencyWindow()
        >>> for number in range(100):
        ...     window.add(number / 10, 0.2 if number < 90 else 2.0)
        >>> 2.0 <= window.p95_s(10.0) <= 2.1
        True
        >>> window.p95_s(100.0) is None
        True
        """
        self._forget(at_s)
        steps: Counter[int] = Counter()
        for _, counts in self._slices:
            steps.update(counts)
        total = steps.total()
        if total < FEWEST:
            return None
        below = 0
        for step in sorted(steps):
            below += steps[step]
            if below >= 0.95 * total:
                return float(LEAST_S * RATIO**step)
        raise AssertionError("the counts add up to their total")

    def _forget(self, at_s: float) -> None:
        while self._slices and self._slices[0][0] <= at_s - WINDOW_S:
            self._slices.popleft()
