"""Continuous batching, request by request: what a replica with a step time and a prefill time makes of arrivals."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np

from tonnage.sizing.estimates import Array


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaRates:
    """One replica's speed: seconds of a decode step at each of `batches` in flight, seconds to read one prompt token.

    `step_s` is taken between the given batches by straight lines. `slots`: most requests in flight;
    `chunk_tokens`: most prompt tokens read in one step; `front_s`: the front end's work on each request, one after
    another, before the scheduler sees it.
    """

    batches: Array
    step_s: Array
    prompt_token_s: float
    slots: int
    chunk_tokens: float
    front_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """What each request saw, in seconds, in order of arrival; and when the last one was done."""

    ttft_s: Array
    tpot_s: Array
    latency_s: Array
    makespan_s: float


def simulate(
    rates: ReplicaRates, *, arrivals_s: Array, input_tokens: Array, output_tokens: Array, users: int | None = None
) -> Served:
    """Serve the requests first come, first served. `users`: that many clients each wait for an answer before asking
    again, and `arrivals_s` is not read.

    Each step gives every request in flight a token and reads up to `chunk_tokens` of waiting prompts; a request
    enters when a slot is free and leaves after its last token (Yu et al. 2022, Orca; Agrawal et al. 2024,
    arXiv:2403.02310 for mixing prompts into decode steps).
    """
    count = len(input_tokens)
    table = np.interp(np.arange(rates.slots + 1), rates.batches, rates.step_s).tolist()
    prompts, outputs = input_tokens.tolist(), np.maximum(np.rint(output_tokens), 1).astype(int).tolist()
    asked = [0.0] * count if users is not None else _through_front(arrivals_s, rates.front_s).tolist()
    first, done = [0.0] * count, [0.0] * count
    waiting: deque[list[float]] = deque()  # [request, prompt tokens left]
    leaving: list[tuple[int, int]] = []  # (step in which it gets its last token, request)
    now, step, entered, flying, reading, finished = 0.0, 0, 0, 0, 0, 0
    while finished < count:
        allowed = count if users is None else min(count, finished + users)
        while entered < allowed and (users is not None or asked[entered] <= now):
            if users is not None:
                asked[entered] = now
            waiting.append([entered, prompts[entered]])
            entered += 1
        if not flying and not waiting:
            now = asked[entered]
            continue
        budget, read, started = rates.chunk_tokens, 0.0, []
        while (
            waiting and budget > 0 and (waiting[0][1] < prompts[int(waiting[0][0])] or flying + reading < rates.slots)
        ):
            head = waiting[0]
            if head[1] == prompts[int(head[0])]:
                reading += 1
            share = min(head[1], budget)
            head[1] -= share
            budget, read = budget - share, read + share
            if head[1] <= 0:
                started.append(int(waiting.popleft()[0]))
        step += 1
        now += table[flying] + read * rates.prompt_token_s
        while leaving and leaving[0][0] <= step:
            done[heappop(leaving)[1]] = now
            flying, finished = flying - 1, finished + 1
        for request in started:
            first[request], reading = now, reading - 1
            if outputs[request] == 1:
                done[request], finished = now, finished + 1
            else:
                heappush(leaving, (step + outputs[request] - 1, request))
                flying += 1
    begin, end = np.array(first), np.array(done)
    ask = arrivals_s if users is None else np.array(asked) - rates.front_s
    return Served(
        ttft_s=begin - ask,
        tpot_s=(end - begin) / np.maximum(np.array(outputs) - 1, 1),
        latency_s=end - ask,
        makespan_s=float(end.max() - ask.min()),
    )


def _through_front(arrivals_s: Array, front_s: float) -> Array:
    """When each request leaves a front end that takes `front_s` for one after another.

    leaves_i = max(arrives_i, leaves_(i-1)) + front = (i+1)·front + max over j <= i of (arrives_j - j·front).
    """
    spent = front_s * np.arange(len(arrivals_s))
    return np.asarray(np.maximum.accumulate(arrivals_s - spent) + spent + front_s)
