"""A decoder server that batches continuously: each step gives every running request one token and reads prompts.

The scheduler is vLLM's (v1) by default: a step has a token budget; requests that decode take one each, the rest goes
to prompts in order of arrival, cut into chunks. Requests are admitted first come, first served, while the KV cache has
room. A scheduler that reads prompts first stops the decodes while it reads (`prompts_first`).
Between two events (an arrival, a finish, a full cache) nothing changes but the context, so those steps run in a loop of
three additions; a request's last step is known when it starts to decode, so nothing is done per request and step.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import deque
from heapq import heappop, heappush
from typing import Literal

from tonnage.errors import InputError
from tonnage.sizing.request_log import RequestLog
from tonnage.sizing.step_times import DecoderTimes
from tonnage.values import dataclass

GONE = -1
NEVER = 1 << 60


@dataclass(frozen=True, slots=True, kw_only=True)
class ContinuousBatching:
    """How a decoder server schedules; the defaults are vLLM's for online serving.

    `admission`: `recompute` admits on what a request holds now; when the cache is full the request admitted last is
    put back to the head of the queue, and its prompt and what it had written are read again. `reserve` admits only
    what the cache can hold to its last token, so nothing is ever preempted (TensorRT-LLM's «guaranteed no evict»).
    `chunked` False reads each prompt whole, in one step. `prompts_first`: a step reads prompts or decodes, never both,
    and prompts go first (SGLang, TGI). `front_s`: the front end's work on a request, one after another, before the
    scheduler sees it (HTTP, tokeniser); `shared_s`: the same where it takes turns, so that of n requests that come at
    one instant none goes on before n times as long; `reply_s`: what each waits there beside the others. `kv_tokens`:
    what the cache holds, of all requests together. `window_tokens`: a request keeps no more than these.
    `cached_fraction`: of every prompt, found in the prefix cache: not read again, looked at by all, and not held by the
    request (`kv_tokens` leaves out what is held of it once). Blocks of the cache are not modelled: each request wastes
    half a block (8 tokens of vLLM's 16) that `kv_tokens` may leave out.
    """

    kv_tokens: int
    max_requests: int = 256
    step_tokens: int = 2048
    chunked: bool = True
    admission: Literal["recompute", "reserve"] = "recompute"
    window_tokens: int | None = None
    prompts_first: bool = False
    cached_fraction: float = 0.0
    front_s: float = 0.0
    shared_s: float = 0.0
    reply_s: float = 0.0


class DecoderServer:
    """One replica over time.

    `context` counts the tokens that running decodes hold, `growing` how many of them gain one a step (a request at its
    sliding window does not), `used` what is taken of the cache: running decodes and admitted prompts, or reservations.
    """

    __slots__ = (
        "accepted_s", "busy_s", "context", "decoding", "end_step", "events", "finished", "front_free_s", "full_step",
        "growing", "instants", "log", "made", "now_s", "order", "peak_tokens", "pending", "policy", "prefilling",
        "ready_s", "recompute", "skip", "steps", "times", "todo", "together", "used", "waiting", "window",
    )  # fmt: skip

    def __init__(self, times: DecoderTimes, policy: ContinuousBatching, log: RequestLog) -> None:
        self.times, self.policy, self.log = times, policy, log
        count = len(log.input_tokens)
        self.recompute = policy.admission == "recompute"
        self.window = math.inf if policy.window_tokens is None else policy.window_tokens
        self.now_s = self.busy_s = self.front_free_s = self.accepted_s = 0.0
        self.ready_s = [0.0] * count  # when the front end would hand a request over if it did not take turns
        self.together = [0] * count  # which requests came at one instant
        self.instants: list[tuple[float, float]] = []  # when they came, how long they are held together
        self.waiting: deque[int] = deque()
        self.prefilling: deque[int] = deque()
        self.todo = [0] * count  # prompt tokens still to read
        self.skip = [min(int(policy.cached_fraction * tokens), max(tokens - 1, 0)) for tokens in log.input_tokens]
        self.made = [0] * count  # tokens written up to the last time the request began to decode
        self.end_step = [GONE] * count  # step after which a running request is done
        self.full_step = [GONE] * count  # step after which it holds its window; GONE: it does not grow
        self.events: list[tuple[int, int]] = []  # (step, request) a finish; (step, ~request) reaches its window
        self.order: list[int] = []  # running requests as admitted, some of them finished since
        self.steps = self.decoding = self.context = self.growing = self.pending = self.used = self.peak_tokens = 0
        self.finished: list[int] = []

    def check(self, request: int) -> None:
        """Raises InputError where the request could never be answered."""
        longest = self.log.input_tokens[request] + self.log.output_tokens[request]
        if self.log.output_tokens[request] < 1:
            raise InputError(f"request {request} writes no token; a decoder's request writes at least one")
        if self._own(request, longest) > self.policy.kv_tokens:
            raise InputError(
                f"request {request} needs {longest:,} tokens of KV cache; the replica has {self.policy.kv_tokens:,}",
                hint="more tensor parallelism, smaller weights or a larger GPU leave more room for the cache",
            )
        if longest > self.times.contexts[-1] or (
            not self.policy.chunked and longest + self.policy.max_requests > self.times.most_tokens
        ):
            raise InputError(
                f"request {request} has {longest:,} tokens; the replica is sized for {self.times.contexts[-1]:,.0f}",
                hint="size the replica with the longest prompt and answer",
            )

    def outstanding(self, at_s: float) -> int:  # noqa: ARG002
        """Requests not finished. A step under way at `at_s` has already struck off those it finishes."""
        return len(self.waiting) + len(self.prefilling) + self.decoding

    def submit(self, request: int, at_s: float) -> None:
        self.log.arrival_s[request] = at_s
        self.accepted_s = max(at_s, self.accepted_s) + self.policy.shared_s
        if not self.instants or self.instants[-1][0] != at_s:
            self.instants.append((at_s, 0.0))
        self.instants[-1] = (at_s, self.accepted_s - at_s)
        self.together[request] = len(self.instants) - 1
        self.ready_s[request] = self.front_free_s = max(at_s, self.front_free_s) + self.policy.front_s
        if not (self.decoding or self.prefilling or self.waiting):
            self.now_s = max(self.now_s, self._handed_s(request))
        self.waiting.append(request)

    def _handed_s(self, request: int) -> float:
        """When the scheduler sees a request."""
        return self.ready_s[request] + self.instants[self.together[request]][1]

    def advance(self, until_s: float, *, stop_at_finish: bool = False) -> None:
        """Runs every step that starts before `until_s`; with `stop_at_finish`, up to the first that finishes one."""
        while self.now_s < until_s and (self.decoding or self.prefilling or self.waiting):
            handed_s = until_s  # when the next request comes out of the front end
            if self.waiting:
                handed_s = self._handed_s(self.waiting[0])
                if not (self.decoding or self.prefilling) and handed_s > self.now_s:
                    self.now_s = handed_s
                    continue
                self._admit()
                handed_s = self._handed_s(self.waiting[0]) if self.waiting else until_s
            begun_s = self.now_s
            if self.recompute and self.used + self.growing > self.policy.kv_tokens:
                self._preempt()
                continue
            if self.prefilling:
                self._mixed_step()
            else:
                self._decode(min(until_s, handed_s) if handed_s > begun_s else until_s)
            self.busy_s += self.now_s - begun_s
            if self.used > self.peak_tokens:
                self.peak_tokens = self.used
            if self.events and self.events[0][0] <= self.steps:
                self._settle()
            if stop_at_finish and self.finished:
                return

    def _held(self, tokens: int) -> int:
        """Tokens of cache that a request keeps of the `tokens` it has read and written."""
        return int(min(tokens, self.window))

    def _own(self, request: int, tokens: int) -> int:
        """The same without what the prefix cache holds for all."""
        return max(self._held(tokens) - self.skip[request], 0)

    def _admit(self) -> None:
        """Takes waiting requests while there are slots, cache and tokens left in the step to read them with."""
        policy, log, waiting = self.policy, self.log, self.waiting
        running = self.decoding + len(self.prefilling)
        room = policy.step_tokens - (0 if policy.prompts_first else self.decoding)
        while waiting and running < policy.max_requests and self.pending < room:
            request = waiting[0]
            if self._handed_s(request) > self.now_s:
                return
            read = log.input_tokens[request] + self.made[request]
            if self.recompute:
                need, spare = self._own(request, read + 1), running  # one step of growth for all who run
            else:
                need, spare = self._own(request, log.input_tokens[request] + log.output_tokens[request]), 0
            if self.used + need + spare > policy.kv_tokens:
                return
            waiting.popleft()
            self.used += need
            self.todo[request] = read - self.skip[request]
            self.pending += self.todo[request]
            self.prefilling.append(request)
            self.order.append(request)
            running += 1

    def _mixed_step(self) -> None:
        """One step: a token for every running request (none where prompts go first), and prompts within the budget."""
        times, policy, todo, prefilling = self.times, self.policy, self.todo, self.prefilling
        decoding = 0 if policy.prompts_first else self.decoding
        room, new, attention, done = policy.step_tokens - decoding, 0, 0.0, []
        for request in prefilling:
            take = min(todo[request], room - new)
            if not policy.chunked:  # whole prompts; one that exceeds the budget goes alone
                take = todo[request] if todo[request] <= room - new or not new else 0
            if take <= 0:
                break
            read = self.log.input_tokens[request] + self.made[request]
            attention += times.chunk_attention_s(take, read - todo[request] + take)
            todo[request] -= take
            new += take
            if not todo[request]:
                done.append(request)
        seconds = times.linear_s[decoding + new] - times.linear_s[decoding] + attention
        if decoding:
            seconds += times.decode_step_s(decoding, self.context / decoding)
        else:
            seconds += times.decode_s[0][0]
        self.now_s += seconds
        self.pending -= new
        if not policy.prompts_first:
            self._grow(1)
        for request in done:
            prefilling.popleft()
            self._start_decoding(request)

    def _start_decoding(self, request: int) -> None:
        """A prompt is read: its next token is out, and the step of its last one is known."""
        log = self.log
        self.made[request] += 1
        if self.made[request] == 1:
            log.first_token_s[request] = self.now_s + self.policy.reply_s
        tokens = log.input_tokens[request] + self.made[request]
        held = self._held(tokens)
        self.decoding += 1
        self.context += held
        left = log.output_tokens[request] - self.made[request]
        self.end_step[request] = self.steps + left
        heappush(self.events, (self.steps + left, request))
        if tokens < self.window:
            self.growing += 1
            self.full_step[request] = NEVER
            if self.window - tokens < left:
                self.full_step[request] = self.steps + int(self.window) - tokens
                heappush(self.events, (self.full_step[request], ~request))

    def _grow(self, steps: int) -> None:
        self.steps += steps
        self.context += steps * self.growing
        if self.recompute:
            self.used += steps * self.growing

    def _decode(self, until_s: float) -> None:
        """Steps without prompts, up to the next finish, a full cache or `until_s`."""
        count, growing, total = self.decoding, self.growing, self.context
        left = self.events[0][0] - self.steps
        if self.recompute and growing:
            left = min(left, (self.policy.kv_tokens - self.used) // growing)
        row, grid, now, ran = self.times.decode_s[count], self.times.contexts, self.now_s, 0
        last = len(grid) - 2
        while ran < left and now < until_s:
            mean = total / count
            cell = min(bisect_right(grid, mean) - 1, last)
            per_token = (row[cell + 1] - row[cell]) / (grid[cell + 1] - grid[cell])
            step = row[cell] + (mean - grid[cell]) * per_token
            more = per_token * growing / count  # what a step costs more than the one before
            run = left - ran
            if growing and cell < last:
                run = min(run, int((grid[cell + 1] * count - total) // growing) + 1)
            here = ran
            for _ in range(run):
                now += step
                step += more
                ran += 1
                if now >= until_s:
                    break
            total += (ran - here) * growing
        self.now_s = now
        self._grow(ran)

    def _settle(self) -> None:
        """Finishes the requests whose last token the last step wrote; others stop growing at their window."""
        events, log = self.events, self.log
        while events and events[0][0] <= self.steps:
            step, request = heappop(events)
            if request < 0:
                if self.full_step[~request] == step:
                    self._stop_growing(~request)
            elif self.end_step[request] == step:
                log.finish_s[request] = self.now_s + self.policy.reply_s
                self._release(request, log.output_tokens[request])
                self.finished.append(request)
        while self.order and self.end_step[self.order[-1]] == GONE and not self.todo[self.order[-1]]:
            self.order.pop()

    def _release(self, request: int, made: int) -> None:
        """Takes a decoding request that has written `made` tokens out of the batch."""
        read = self.log.input_tokens[request]
        held = self._held(read + made)
        self.end_step[request] = GONE
        self.decoding -= 1
        self.context -= held
        if self.full_step[request] != GONE:
            self._stop_growing(request)
        self.used -= self._own(request, read + (made if self.recompute else self.log.output_tokens[request]))

    def _stop_growing(self, request: int) -> None:
        self.growing -= 1
        self.full_step[request] = GONE

    def _preempt(self) -> None:
        """Puts the request admitted last back to the head of the queue; it will read again what it had written."""
        request = self.order.pop()
        while self.end_step[request] == GONE and not self.todo[request]:
            request = self.order.pop()  # finished since
        if self.todo[request]:
            self.prefilling.remove(request)
            self.pending -= self.todo[request]
            self.used -= self._own(request, self.log.input_tokens[request] + self.made[request] + 1)
            self.todo[request] = 0
        else:
            made = self.log.output_tokens[request] - (self.end_step[request] - self.steps)
            self._release(request, made)
            self.made[request] = made
        self.waiting.appendleft(request)
        self.log.preemptions += 1
