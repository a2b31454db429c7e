"""The event loop of the decoder against a plain one that touches every request in every step."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.sizing.whole_steps import prefill_step_s

from tonnage.sizing.arrivals import Stream
from tonnage.sizing.continuous_batching import ContinuousBatching
from tonnage.sizing.percentiles import Served
from tonnage.sizing.replica_model import ReplicaModel
from tonnage.sizing.simulation import serve
from tonnage.sizing.step_times import DecoderTimes


def made_up_times() -> DecoderTimes:
    """Step times with every effect in them: a kink in context, prompts that cost above 20 tokens, attention p·k."""
    contexts = [1.0, 16.0, 64.0, 4096.0]
    decode = [[0.001] * 4]
    decode += [[0.004 + 1e-5 * b * c ** (1 if c < 60 else 0.9) for c in contexts] for b in range(1, 33)]
    linear = [0.0] + [0.003 + 1e-4 * max(n - 20, 0) for n in range(1, 4097)]
    chunks, keys = [1.0, 64.0, 4096.0], [1.0, 128.0, 8192.0]
    attention = [[1e-8 * p * k for k in keys] for p in chunks]
    return DecoderTimes(
        contexts=contexts, decode_s=decode, linear_s=linear, chunks=chunks, keys=keys, attention_s=attention
    )


def plain(times: DecoderTimes, policy: ContinuousBatching, stream: Stream) -> tuple[np.ndarray, np.ndarray, int, int]:
    """The same rules with no bookkeeping: first-token and finish times, fullest cache, preemptions."""
    prompt, output = stream.input_tokens.tolist(), stream.output_tokens.tolist()
    window = policy.window_tokens or 10**9
    count = len(prompt)
    first, finish = np.full(count, np.nan), np.full(count, np.nan)
    made, read = [0] * count, [0] * count
    handed, free = [], 0.0
    for at in stream.at_s.tolist():
        free = max(at, free) + policy.front_s
        handed.append(free)
    arrivals, waiting, running = list(zip(handed, range(count), strict=True)), [], []
    now, fullest, preempted = 0.0, 0, 0

    def target(r: int) -> int:
        return prompt[r] + start_made[r]

    def decoding(r: int) -> bool:
        return read[r] >= target(r)

    def taken(r: int) -> int:
        if policy.admission == "reserve":
            return min(prompt[r] + output[r], window)
        return min(prompt[r] + made[r] + (0 if decoding(r) else 1), window)

    start_made = [0] * count
    while arrivals or waiting or running:
        if not waiting and not running:
            now = max(now, arrivals[0][0])
        while arrivals and arrivals[0][0] <= now:
            waiting.append(arrivals.pop(0)[1])
        while waiting and len(running) < policy.max_requests:
            r = waiting[0]
            behind = sum(target(x) - read[x] for x in running if not decoding(x))
            if behind >= policy.step_tokens - (0 if policy.prompts_first else sum(decoding(x) for x in running)):
                break
            reserve = policy.admission == "reserve"
            need = min(prompt[r] + (output[r] if reserve else made[r] + 1), window)
            spare = 0 if reserve else len(running)
            if sum(map(taken, running)) + need + spare > policy.kv_tokens:
                break
            start_made[r], read[r] = made[r], 0
            running.append(waiting.pop(0))
        decodes = [r for r in running if decoding(r)]
        grow = sum(prompt[r] + made[r] < window for r in decodes)
        if policy.admission == "recompute" and sum(map(taken, running)) + grow > policy.kv_tokens:
            r = running.pop()
            start_made[r], read[r] = made[r], 0
            waiting.insert(0, r)
            preempted += 1
            continue
        if policy.prompts_first and len(decodes) < len(running):
            decodes = []
        room, new, attention, ready = policy.step_tokens - len(decodes), 0, 0.0, []
        for r in [r for r in running if not decoding(r)]:
            left = target(r) - read[r]
            take = min(left, room - new)
            if not policy.chunked:
                take = left if left <= room - new or new == 0 else 0
            if take <= 0:
                break
            read[r] += take
            attention += times.chunk_attention_s(take, read[r])
            new += take
            if decoding(r):
                ready.append(r)
        seconds = times.linear_s[len(decodes) + new] - times.linear_s[len(decodes)] + attention
        if decodes:
            held = sum(min(prompt[r] + made[r], window) for r in decodes)
            seconds += times.decode_step_s(len(decodes), held / len(decodes))
        else:
            seconds += times.decode_s[0][0]
        now += seconds
        for r in decodes + ready:
            made[r] += 1
            if made[r] == 1:
                first[r] = now
        fullest = max(fullest, sum(map(taken, running)))
        for r in list(running):
            if made[r] == output[r]:
                finish[r] = now
                running.remove(r)
    return first + policy.reply_s, finish + policy.reply_s, fullest, preempted


def random_stream(seed: int, *, rate: float, longest: int) -> Stream:
    random = np.random.default_rng(seed)
    return Stream(
        at_s=np.cumsum(random.exponential(1.0 / rate, 120)),
        input_tokens=random.integers(1, longest, 120),
        output_tokens=random.integers(1, longest, 120),
    )


ROOMY = ContinuousBatching(kv_tokens=100_000, max_requests=32, step_tokens=64)
POLICIES = {
    "roomy": ROOMY,
    "few slots": replace(ROOMY, max_requests=3),
    "small cache": replace(ROOMY, kv_tokens=400),
    "small cache, reserved": replace(ROOMY, kv_tokens=400, admission="reserve"),
    "whole prompts": replace(ROOMY, chunked=False),
    "window": replace(ROOMY, window_tokens=70),
    "window, small cache": replace(ROOMY, window_tokens=70, kv_tokens=300),
    "prompts first": replace(ROOMY, prompts_first=True),
    "prompts first, small cache": replace(ROOMY, prompts_first=True, kv_tokens=400),
    "front end": replace(ROOMY, front_s=0.03, reply_s=0.5),
    "whole prompts, small cache": replace(ROOMY, chunked=False, kv_tokens=350, step_tokens=40),
}


@pytest.mark.parametrize("rate", [2.0, 20.0, 200.0])
@pytest.mark.parametrize("name", POLICIES)
def test_event_loop_is_the_plain_loop(name: str, rate: float) -> None:
    """First tokens, finishes, fullest cache and preemptions are those of the plain loop, to a nanosecond."""
    policy, stream = POLICIES[name], random_stream(len(name), rate=rate, longest=150)
    first, finish, fullest, preempted = plain(made_up_times(), policy, stream)
    served = serve(ReplicaModel(times=made_up_times(), policy=policy), stream)
    assert served.finish_s == pytest.approx(finish, abs=1e-9)
    assert served.first_token_s == pytest.approx(first, abs=1e-9)
    assert (served.peak_kv_tokens, served.preemptions) == (fullest, preempted)


def test_small_cache_preempts_and_reservation_does_not() -> None:
    """The two admissions differ where the cache is small: one preempts (so the rows above test it), one never."""
    stream = random_stream(1, rate=200.0, longest=150)

    def run(name: str) -> Served:
        return serve(ReplicaModel(times=made_up_times(), policy=POLICIES[name]), stream)

    assert run("small cache").preemptions > 20
    assert run("small cache, reserved").preemptions == 0
    assert run("window, small cache").preemptions > 0
    assert run("small cache").peak_kv_tokens <= 400


def test_one_request_alone_takes_its_prefill_and_its_steps() -> None:
    """Latency = prefill of p tokens (in chunks of the budget) + output - 1 decode steps at growing context."""
    times, p, n = made_up_times(), 50, 40
    stream = Stream(at_s=np.array([3.0]), input_tokens=np.array([p]), output_tokens=np.array([n]))
    served = serve(ReplicaModel(times=times, policy=ROOMY), stream)
    steps = sum(times.decode_step_s(1, p + 1 + done) for done in range(n - 1))
    assert served.first_token_s[0] - 3.0 == pytest.approx(prefill_step_s(times, p), rel=1e-12)
    assert served.latency_s[0] == pytest.approx(prefill_step_s(times, p) + steps, rel=1e-9)


def test_the_front_end_serves_one_request_after_another() -> None:
    """Ten requests at once through a front end of 0.1 s each: the last sees its first token after at least a second."""
    stream = Stream(at_s=np.zeros(10), input_tokens=np.full(10, 10), output_tokens=np.full(10, 5))
    served = serve(ReplicaModel(times=made_up_times(), policy=replace(ROOMY, front_s=0.1)), stream)
    assert served.first_token_s.max() > 1.0
    assert served.first_token_s.min() < 0.2


def test_a_front_end_that_takes_turns_holds_all_that_come_at_once() -> None:
    """Ten requests at once, 0.1 s of work each in turns: nobody's first token before a second, and all soon after it;
    one that comes later, alone, waits its own 0.1 s."""
    at_s = np.array([0.0] * 10 + [100.0])
    stream = Stream(at_s=at_s, input_tokens=np.full(11, 10), output_tokens=np.full(11, 5))
    alone, turns = (
        serve(ReplicaModel(times=made_up_times(), policy=replace(ROOMY, shared_s=each)), stream).first_token_s
        for each in (0.0, 0.1)
    )
    assert turns[:10].min() > 1.0
    assert turns[:10].max() < 1.0 + alone[:10].max() + 0.1
    assert turns[10] - 100.0 == pytest.approx(alone[10] - 100.0 + 0.1)


def test_prompts_first_hands_out_first_tokens_sooner_and_others_later() -> None:
    """All at once: reading first brings the mean first token forward and holds up the tokens after it."""
    stream = Stream(at_s=np.zeros(30), input_tokens=np.full(30, 100), output_tokens=np.full(30, 20))

    def seen(policy: ContinuousBatching) -> tuple[float, float]:
        served = serve(ReplicaModel(times=made_up_times(), policy=policy), stream)
        return float(served.first_token_s.mean()), float((served.finish_s - served.first_token_s).mean())

    mixed, first = seen(ROOMY), seen(replace(ROOMY, prompts_first=True))
    assert first[0] < mixed[0]
    assert first[1] > mixed[1]
