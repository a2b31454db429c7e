"""An encoder server that answers in batches: waits a little for company, then answers all at once."""

from __future__ import annotations

from collections import deque

from tonnage.errors import InputError
from tonnage.sizing.request_log import RequestLog
from tonnage.sizing.step_times import EncoderTimes
from tonnage.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class DynamicBatching:
    """A batch starts once `max_batch` requests wait or the oldest has waited `wait_s`, whichever is first."""

    max_batch: int = 32
    wait_s: float = 0.002


class EncoderServer:
    """One replica over time. A batch takes what its size and its longest request take (padding to the longest)."""

    __slots__ = ("busy_s", "finished", "free_at_s", "in_batch", "log", "peak_tokens", "policy", "queue", "times")

    def __init__(self, times: EncoderTimes, policy: DynamicBatching, log: RequestLog) -> None:
        self.times, self.policy, self.log = times, policy, log
        self.queue: deque[int] = deque()
        self.free_at_s = 0.0
        self.in_batch = 0
        self.busy_s = 0.0
        self.peak_tokens = 0  # nothing is kept between requests
        self.finished: list[int] = []

    def check(self, request: int) -> None:
        tokens, longest = self.log.input_tokens[request], int(self.times.lengths[-1])
        if tokens > longest:
            raise InputError(
                f"request {request} has {tokens:,} tokens; the replica is sized for {longest:,}",
                hint="size the replica with the longest request's length",
            )

    def outstanding(self, at_s: float) -> int:
        return len(self.queue) + (self.in_batch if self.free_at_s > at_s else 0)

    def submit(self, request: int, at_s: float) -> None:
        self.log.arrival_s[request] = at_s
        self.queue.append(request)

    def advance(self, until_s: float, *, stop_at_finish: bool = False) -> None:
        """Starts every batch that starts before `until_s`; with `stop_at_finish`, one batch at most."""
        queue, log, most = self.queue, self.log, self.policy.max_batch
        while queue:
            if len(queue) >= most:
                ready = log.arrival_s[queue[most - 1]]
            else:
                ready = log.arrival_s[queue[0]] + self.policy.wait_s
            start = max(self.free_at_s, ready)
            if start >= until_s:
                return
            self._run(start)
            if stop_at_finish:
                return

    def _run(self, start_s: float) -> None:
        queue, log = self.queue, self.log
        batch = [queue.popleft() for _ in range(min(len(queue), self.policy.max_batch))]
        service = self.times.service_s(len(batch), max(log.input_tokens[request] for request in batch))
        end = start_s + service
        for request in batch:
            log.first_token_s[request] = log.finish_s[request] = end
        self.finished += batch
        self.busy_s += service
        self.free_at_s, self.in_batch = end, len(batch)
