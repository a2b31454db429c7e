"""The simulation against queueing theory: M/M/1, M/D/1, Little's law, and one request alone."""

from __future__ import annotations

import numpy as np
import pytest

from tonnage.sizing.arrivals import Arrivals, ClosedLoop, Deterministic, FixedLengths, Poisson, Stream
from tonnage.sizing.continuous_batching import ContinuousBatching
from tonnage.sizing.dynamic_batching import DynamicBatching
from tonnage.sizing.percentiles import Served
from tonnage.sizing.replica_model import ReplicaModel
from tonnage.sizing.simulation import serve, simulate
from tonnage.sizing.step_times import DecoderTimes, EncoderTimes

COUNT = 100_000  # the mean wait's own noise over these is about 1.5 % at 0.7 load


def constant_encoder(service_s: float, *, batch: int = 1, wait_s: float = 0.0) -> ReplicaModel:
    """A server whose batches take `service_s` whatever is in them."""
    times = EncoderTimes(lengths=[1.0, 1e6], batch_s=[[service_s, service_s]] * batch)
    return ReplicaModel(times=times, policy=DynamicBatching(max_batch=batch, wait_s=wait_s))


def one_by_one_decoder(step_s: float) -> ReplicaModel:
    """A decoder that runs one request at a time: every step, prompt or not, takes `step_s`."""
    times = DecoderTimes(
        contexts=[1.0, 1e6], decode_s=[[step_s] * 2, [step_s] * 2], linear_s=[0.0] * 9, chunks=[1.0, 2.0],
        keys=[1.0, 2.0], attention_s=[[0.0, 0.0], [0.0, 0.0]],
    )  # fmt: skip
    return ReplicaModel(times=times, policy=ContinuousBatching(kv_tokens=1_000_000, max_requests=1, step_tokens=8))


def exponential_lengths(stream: Stream, mean: float, *, output: bool) -> Stream:
    """The same arrivals with geometric lengths (a discrete exponential)."""
    drawn = np.random.default_rng(9).geometric(1.0 / mean, len(stream)).astype(np.int64)
    if output:
        return Stream(at_s=stream.at_s, input_tokens=stream.input_tokens, output_tokens=drawn)
    return Stream(at_s=stream.at_s, input_tokens=drawn, output_tokens=stream.output_tokens)


def mean_wait_s(served: Served, service_s: np.ndarray) -> float:
    return float((served.latency_s - service_s).mean())


@pytest.mark.parametrize("load", [0.3, 0.5, 0.7])
def test_m_d_1(load: float) -> None:
    """Poisson arrivals, constant service S: mean wait = S·u / (2(1 - u)) (Pollaczek-Khinchine), within 5 %."""
    service_s = 0.02
    traffic = Arrivals(process=Poisson(rate_per_s=load / service_s), lengths=FixedLengths(input_tokens=1),
                      requests=COUNT)  # fmt: skip
    served = serve(constant_encoder(service_s), traffic.draw(0))
    expected = service_s * load / (2 * (1 - load))
    assert mean_wait_s(served, np.full(COUNT, service_s)) == pytest.approx(expected, rel=0.05)
    assert served.busy_s / served.span_s == pytest.approx(load, rel=0.02)


@pytest.mark.parametrize("load", [0.3, 0.5, 0.7])
def test_m_m_1(load: float) -> None:
    """Poisson arrivals, exponential service of mean S: mean wait = S·u / (1 - u), within 5 %."""
    mean, second_s = 1000.0, 1e-5  # tokens, seconds a token
    times = EncoderTimes(lengths=[0.0, 1e6], batch_s=[[0.0, 1e6 * second_s]])
    replica = ReplicaModel(times=times, policy=DynamicBatching(max_batch=1, wait_s=0.0))
    traffic = Arrivals(process=Poisson(rate_per_s=load / (mean * second_s)), lengths=FixedLengths(input_tokens=1),
                      requests=COUNT)  # fmt: skip
    stream = exponential_lengths(traffic.draw(0), mean, output=False)
    served = serve(replica, stream)
    used = (stream.input_tokens * second_s).mean() / np.diff(stream.at_s).mean()  # what was drawn, not what was asked
    expected = mean * second_s * used / (1 - used)
    assert mean_wait_s(served, stream.input_tokens * second_s) == pytest.approx(expected, rel=0.05)


@pytest.mark.parametrize("load", [0.3, 0.7])
def test_decoder_one_at_a_time_is_m_g_1(load: float) -> None:
    """Geometric answers, one request at a time: wait = λ·E[S²] / (2(1 - u)) (Pollaczek-Khinchine), within 5 %."""
    step_s, mean = 0.01, 30.0
    traffic = Arrivals(process=Poisson(rate_per_s=load / (mean * step_s)), lengths=FixedLengths(input_tokens=1),
                      requests=COUNT // 2)  # fmt: skip
    stream = exponential_lengths(traffic.draw(0), mean, output=True)
    service = stream.output_tokens * step_s
    served = serve(one_by_one_decoder(step_s), stream)
    rate = 1.0 / np.diff(stream.at_s).mean()
    expected = rate * (service**2).mean() / (2 * (1 - rate * service.mean()))
    assert mean_wait_s(served, service) == pytest.approx(expected, rel=0.05)


def test_littles_law_holds_exactly() -> None:
    """Time-average of the number in the system, swept event by event = arrivals x mean latency / span, to 1e-9."""
    traffic = Arrivals(process=Poisson(rate_per_s=40.0), lengths=FixedLengths(input_tokens=1), requests=5_000)
    served = serve(constant_encoder(0.06, batch=4, wait_s=0.01), traffic.draw(0))
    times = np.concatenate([served.arrival_s, served.finish_s])
    steps = np.concatenate([np.ones(5_000), -np.ones(5_000)])
    order = np.lexsort((steps, times))
    inside = np.cumsum(steps[order])[:-1]
    mean_inside = float((inside * np.diff(times[order])).sum()) / served.span_s
    assert mean_inside == pytest.approx(5_000 / served.span_s * served.latency_s.mean(), rel=1e-9)
    assert inside.min() >= 0


def test_batches_start_when_full_or_after_the_wait() -> None:
    """Requests every 4 ms, batches of 4 within 10 ms: three arrive (0, 4, 8 ms) and the batch starts at 10 ms."""
    traffic = Arrivals(process=Deterministic(rate_per_s=250.0), lengths=FixedLengths(input_tokens=1), requests=6)
    waited = serve(constant_encoder(0.001, batch=4, wait_s=0.010), traffic.draw(0))
    assert waited.finish_s * 1e3 == pytest.approx([11, 11, 11, 23, 23, 23])
    full = serve(constant_encoder(0.001, batch=2, wait_s=0.010), traffic.draw(0))
    assert full.finish_s * 1e3 == pytest.approx([5, 5, 13, 13, 21, 21])


def test_closed_loop_follows_the_interactive_response_time_law() -> None:
    """One user, think Z, service S: throughput 1 / (S + Z). Many users: the server's 1 / S (Denning and Buzen 1978)."""
    service_s, think_s = 0.05, 0.2

    def rate(users: int) -> float:
        traffic = Arrivals(process=ClosedLoop(users=users, think_s=think_s), lengths=FixedLengths(input_tokens=1),
                          requests=20_000)  # fmt: skip
        return simulate(constant_encoder(service_s), traffic, seed=1).requests_per_s

    assert rate(1) == pytest.approx(1 / (service_s + think_s), rel=0.02)
    assert rate(50) == pytest.approx(1 / service_s, rel=0.01)


def test_closed_loop_keeps_its_law_with_several_users() -> None:
    """Users = throughput x (latency + think time), the law for any number of users, within 2 %."""
    traffic = Arrivals(process=ClosedLoop(users=6, think_s=0.2), lengths=FixedLengths(input_tokens=1), requests=20_000)
    seen = simulate(constant_encoder(0.05, batch=2, wait_s=0.01), traffic, seed=1, warm_up_fraction=0.0)
    assert seen.requests_per_s * (seen.latency_s.mean + 0.2) == pytest.approx(6, rel=0.02)


def test_all_at_once_takes_the_servers_rate() -> None:
    """99 requests at time 0, one after the other: the last leaves at 99 S, the mean at 50 S."""
    traffic = Arrivals(
        process=Deterministic(rate_per_s=float("inf")), lengths=FixedLengths(input_tokens=1), requests=99
    )
    seen = simulate(constant_encoder(0.01), traffic, seed=0, warm_up_fraction=0.0)
    assert seen.latency_s.maximum == pytest.approx(0.99)
    assert seen.latency_s.mean == pytest.approx(0.5)
    assert seen.requests_per_s == pytest.approx(100.0)


def test_joining_the_shortest_queue_waits_less_than_taking_turns() -> None:
    """Four servers, exponential service, 0.9 load: the shortest queue waits least (with constant service: turns)."""
    mean, second_s, load = 1000.0, 2e-5, 0.9
    times = EncoderTimes(lengths=[0.0, 1e6], batch_s=[[0.0, 1e6 * second_s]])
    replica = ReplicaModel(times=times, policy=DynamicBatching(max_batch=1, wait_s=0.0))
    traffic = Arrivals(process=Poisson(rate_per_s=4 * load / (mean * second_s)), lengths=FixedLengths(input_tokens=1),
                      requests=COUNT)  # fmt: skip
    stream = exponential_lengths(traffic.draw(0), mean, output=False)
    turns = serve(replica, stream, replicas=4, dispatch="round_robin").latency_s.mean()
    shortest = serve(replica, stream, replicas=4, dispatch="least_loaded").latency_s.mean()
    assert shortest < 0.7 * turns


def test_constant_service_in_turns_is_one_queue_before_all_servers() -> None:
    """Four servers of constant service taking turns answer first come, first served: M/D/4 from one queue, exactly."""
    service_s = 0.02
    traffic = Arrivals(process=Poisson(rate_per_s=180.0), lengths=FixedLengths(input_tokens=1), requests=5_000)
    stream = traffic.draw(0)
    free = [0.0] * 4
    finish = []
    for at_s in stream.at_s.tolist():
        server = free.index(min(free))
        free[server] = max(free[server], at_s) + service_s
        finish.append(free[server])
    assert serve(constant_encoder(service_s), stream, replicas=4).finish_s == pytest.approx(finish)
