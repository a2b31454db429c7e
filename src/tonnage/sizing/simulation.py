"""Requests through replicas, event by event: latency percentiles under load, and the largest load that keeps them."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np

from tonnage.errors import InputError
from tonnage.sizing.arrivals import Arrivals, Poisson, Stream, TokenLengths
from tonnage.sizing.continuous_batching import ContinuousBatching
from tonnage.sizing.percentiles import Served, ServingPercentiles
from tonnage.sizing.replica_model import ReplicaModel, Server
from tonnage.sizing.request_log import RequestLog
from tonnage.values import dataclass

Dispatch = Literal["round_robin", "least_loaded"]
WARM_UP_FRACTION = 0.1
HORIZON_PROMISES = 20.0  # a load 5 % too high piles up one promise of delay over this many
FEWEST_REQUESTS, MOST_REQUESTS = 5_000, 40_000
RATE_TOLERANCE = 0.01


def simulate(
    replica: ReplicaModel,
    arrivals: Arrivals,
    *,
    seed: int,
    replicas: int = 1,
    dispatch: Dispatch = "round_robin",
    warm_up_fraction: float = WARM_UP_FRACTION,
) -> ServingPercentiles:
    """Latency percentiles, throughput and cache use of `replicas` equal replicas under `arrivals`.

    Same inputs, same figures, to the last bit. Raises InputError for a request that no replica could ever answer.
    """
    served = serve(replica, arrivals.draw(seed), replicas=replicas, dispatch=dispatch)
    return ServingPercentiles.of(served, warm_up_fraction=warm_up_fraction)


def serve(replica: ReplicaModel, stream: Stream, *, replicas: int = 1, dispatch: Dispatch = "round_robin") -> Served:
    """Every request of `stream`, answered. A closed loop's users stay with one replica each (user mod replicas)."""
    if replicas < 1:
        raise InputError(f"{replicas} replicas: at least one is needed")
    log = RequestLog(stream)
    servers = [replica.server(log) for _ in range(replicas)]
    for request in range(len(stream)):
        servers[0].check(request)
    if stream.users is None:
        _open_loop(servers, stream, dispatch)
    elif dispatch == "least_loaded" and replicas > 1:
        raise InputError("a closed loop's users stay with their replica", hint="use dispatch='round_robin'")
    else:
        for index, server in enumerate(servers):
            _closed_loop(server, stream, index, replicas)
    order = np.argsort(np.array(log.arrival_s), kind="stable")
    policy = replica.policy
    return Served(
        arrival_s=np.array(log.arrival_s)[order],
        first_token_s=np.array(log.first_token_s)[order],
        finish_s=np.array(log.finish_s)[order],
        input_tokens=stream.input_tokens[order],
        output_tokens=stream.output_tokens[order],
        replicas=replicas,
        busy_s=sum(server.busy_s for server in servers),
        peak_kv_tokens=max(server.peak_tokens for server in servers),
        kv_tokens=policy.kv_tokens if isinstance(policy, ContinuousBatching) else None,
        preemptions=log.preemptions,
    )


def _open_loop(servers: Sequence[Server], stream: Stream, dispatch: Dispatch) -> None:
    """Each arrival goes to the next replica in turn, or to the one with the fewest requests (the first of equals)."""
    turn, count = 0, len(servers)
    for request, at_s in enumerate(stream.at_s.tolist()):
        if dispatch == "least_loaded":
            for server in servers:
                server.advance(at_s)
            chosen = min(servers, key=lambda server: server.outstanding(at_s))
        else:
            chosen = servers[turn]
            turn = (turn + 1) % count
            chosen.advance(at_s)
        chosen.submit(request, at_s)
    for server in servers:
        server.advance(math.inf)


def _closed_loop(server: Server, stream: Stream, index: int, replicas: int) -> None:
    """The users `index`, `index` + replicas, ... of a closed loop, each sending its next request after a think time."""
    assert stream.users is not None
    assert stream.think_s is not None
    count, think = len(stream), stream.think_s.tolist()
    ready = [think[count + user] for user in range(index, stream.users, replicas)]
    heapq.heapify(ready)
    requests = iter(range(index, count, replicas) if ready else ())
    request = next(requests, None)
    if not ready and index < count and stream.users <= index:
        raise InputError(f"{stream.users} users cannot keep {replicas} replicas apart", hint="fewer replicas")
    while request is not None:
        server.advance(ready[0] if ready else math.inf, stop_at_finish=True)
        if server.finished:
            for done in server.finished:
                heapq.heappush(ready, server.log.finish_s[done] + think[done])
            server.finished.clear()
            continue
        server.submit(request, heapq.heappop(ready))
        request = next(requests, None)
    server.advance(math.inf)


@dataclass(frozen=True, slots=True, kw_only=True)
class LargestRate:
    """The largest Poisson rate that keeps a promise, and what the requests see there."""

    rate_per_s: float
    seen: ServingPercentiles


def largest_rate(
    replica: ReplicaModel,
    lengths: TokenLengths,
    *,
    p95_latency_s: float | None = None,
    p95_ttft_s: float | None = None,
    seed: int = 0,
    replicas: int = 1,
    dispatch: Dispatch = "round_robin",
) -> LargestRate | None:
    """The largest Poisson rate at which both p95 promises hold; None where they fail even without a queue.

    Bisection on the logarithm of the rate, to 1 %, every trial with the same unit draws. A trial lasts at least 20
    promises (5,000 to 40,000 requests), so that an overload shows as latency: 5 % too much load delays the last request
    by one promise.
    """
    promise = min(p95_latency_s or math.inf, p95_ttft_s or math.inf)
    if not math.isfinite(promise):
        raise InputError("no promise is stated", hint="give p95_latency_s, p95_ttft_s or both")
    longest_promise = max(p95_latency_s or 0.0, p95_ttft_s or 0.0)

    def trial(rate: float) -> ServingPercentiles:
        count = int(min(max(FEWEST_REQUESTS, HORIZON_PROMISES * rate * longest_promise), MOST_REQUESTS))
        traffic = Arrivals(process=Poisson(rate_per_s=rate), lengths=lengths, requests=count)
        return simulate(replica, traffic, seed=seed, replicas=replicas, dispatch=dispatch)

    def keeps(seen: ServingPercentiles) -> bool:
        return seen.latency_s.p95 <= (p95_latency_s or math.inf) and seen.ttft_s.p95 <= (p95_ttft_s or math.inf)

    return _bisect(trial, keeps, start=replicas / longest_promise)


def _bisect(
    trial: Callable[[float], ServingPercentiles], keeps: Callable[[ServingPercentiles], bool], *, start: float
) -> LargestRate | None:
    """From one request a promise: doubled while it keeps or quartered until it does, then halved in logarithm."""
    low, seen = start, trial(start)
    for _ in range(6):
        if keeps(seen):
            break
        low /= 4.0
        seen = trial(low)
    if not keeps(seen):
        return None
    high = low
    while True:
        high *= 2.0
        tried = trial(high)
        if not keeps(tried):
            break
        low, seen = high, tried
    while high / low > 1.0 + RATE_TOLERANCE:
        middle = math.sqrt(low * high)
        tried = trial(middle)
        if keeps(tried):
            low, seen = middle, tried
        else:
            high = middle
    return LargestRate(rate_per_s=low, seen=seen)
