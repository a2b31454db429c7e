"""What happened to each request: plain lists while a simulation runs."""

from __future__ import annotations

import math

from tonnage.sizing.arrivals import Stream


class RequestLog:
    """One entry per request. Times are NaN until they happen."""

    __slots__ = ("arrival_s", "finish_s", "first_token_s", "input_tokens", "output_tokens", "preemptions")

    def __init__(self, stream: Stream) -> None:
        count = len(stream)
        self.input_tokens: list[int] = stream.input_tokens.tolist()
        self.output_tokens: list[int] = stream.output_tokens.tolist()
        self.arrival_s = [math.nan] * count
        self.first_token_s = [math.nan] * count
        self.finish_s = [math.nan] * count
        self.preemptions = 0
