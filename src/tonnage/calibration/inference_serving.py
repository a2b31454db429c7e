"""Served rows -> figures: the requests each row describes, through the simulation of `sizing`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tonnage.calibration.inference_reading import Case
from tonnage.sizing.arrivals import (
    CHAT_LONGEST,
    ChatLengths,
    ClosedLoop,
    Deterministic,
    FixedLengths,
    Poisson,
    Process,
    Traffic,
)
from tonnage.sizing.continuous_batching import ContinuousBatching
from tonnage.sizing.engines import Engine
from tonnage.sizing.estimates import Array
from tonnage.sizing.inference_devices import host_factor, serving_devices
from tonnage.sizing.inference_memory import cache_slots
from tonnage.sizing.percentiles import Served
from tonnage.sizing.replica_model import ReplicaModel
from tonnage.sizing.schedulers import usual_policy
from tonnage.sizing.simulation import serve
from tonnage.sizing.step_times import DecoderSteps, DecoderTimes

USUAL_PROMPTS = 500
MOST_PROMPTS = 3000
PERCENTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
COARSE = 2.0  # grid of step times beside the one we size services with: a fifth of the work, 2 % of its seconds
SEED = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """Served cases that share their step times: one model, engine and group of devices; one policy for each case."""

    places: tuple[int, ...]
    cases: tuple[Case, ...]
    policies: tuple[ContinuousBatching, ...]
    steps: DecoderSteps

    def figures(self, engine: Engine) -> dict[int, dict[str, float]]:
        """What each case's requests see, by the case's place."""
        times = self.steps.times(engine)
        done: dict[tuple[object, ...], dict[str, float]] = {}
        out = {}
        for place, case, policy in zip(self.places, self.cases, self.policies, strict=True):
            load = (policy, case.replicas, case.rate_per_s, case.users, case.prompts, case.input_tokens,
                    case.output_tokens, case.varied_lengths)  # fmt: skip
            if load not in done:
                done[load] = _seen(case, _served(case, times, policy, engine))
            out[place] = done[load]
        return out


def services(cases: Sequence[Case], engine: Engine) -> tuple[Service, ...]:
    """The cases (of one shape, class and format) by device, group size and engine's name."""
    alike: dict[tuple[str, int, str], list[int]] = {}
    for place, case in enumerate(cases):
        alike.setdefault((case.machine.accelerator.name, case.tensor_parallel, case.row.engine), []).append(place)
    return tuple(_service([cases[place] for place in places], places, engine) for places in alike.values())


def _service(cases: Sequence[Case], places: Sequence[int], engine: Engine) -> Service:
    first = cases[0]
    longest = [int(_longest(case)) for case in cases]
    devices = serving_devices([first.machine], first.served.compute)
    tensor = np.array([float(first.tensor_parallel)])
    room = int(cache_slots(first.shape, first.served, devices, tensor, 1.0)[0])
    policies = []
    for case, most in zip(cases, longest, strict=True):
        policy = usual_policy(case.row.engine, case.machine.accelerator, kv_tokens=max(room, most + 1))
        slots = min(policy.max_requests, case.users or MOST_PROMPTS, _count(case), policy.step_tokens - 1)
        policies.append(replace(policy, max_requests=slots))
    widest = max(policy.max_requests for policy in policies)
    step_tokens = max(policy.step_tokens for policy in policies)
    steps = DecoderSteps.lay_out(
        first.shape, devices, first.served, engine, tensor_parallel=float(first.tensor_parallel),
        most_requests=max(widest, 2), most_tokens=max(step_tokens, max(longest) + widest),
        longest_tokens=max(longest), host_factor=host_factor(first.machine.accelerator), coarse=COARSE,
    )  # fmt: skip
    return Service(places=tuple(places), cases=tuple(cases), policies=tuple(policies), steps=steps)


def _longest(case: Case) -> float:
    """Prompt and answer of the longest request that may be drawn."""
    spread = 1.1 * CHAT_LONGEST if case.varied_lengths else 1.0
    return spread * (case.input_tokens + case.output_tokens) + 2.0


def _count(case: Case) -> int:
    return min(case.prompts or USUAL_PROMPTS, MOST_PROMPTS)


def _served(case: Case, times: DecoderTimes, policy: ContinuousBatching, engine: Engine) -> Served:
    front = replace(policy, front_s=engine.request_us * 1e-6, reply_s=engine.reply_us * 1e-6)
    lengths: ChatLengths | FixedLengths
    if case.varied_lengths:
        lengths = ChatLengths(input_tokens=case.input_tokens, output_tokens=case.output_tokens)
    else:
        lengths = FixedLengths(
            input_tokens=max(round(case.input_tokens), 1), output_tokens=max(round(case.output_tokens), 1)
        )
    traffic = Traffic(process=_process(case), lengths=lengths, requests=_count(case))
    return serve(ReplicaModel(times=times, policy=front), traffic.draw(SEED))


def _process(case: Case) -> Process:
    """How requests reach one of the replicas."""
    if case.users:
        return ClosedLoop(users=case.users)
    return (
        Poisson(rate_per_s=case.rate_per_s / case.replicas)
        if case.rate_per_s
        else Deterministic(rate_per_s=float("inf"))
    )


def _seen(case: Case, served: Served) -> dict[str, float]:
    requests = case.replicas * len(served.arrival_s) / served.span_s
    out = {"requests": requests, "tokens": requests * case.output_tokens,
           "total": requests * (case.input_tokens + case.output_tokens)}  # fmt: skip
    several = served.output_tokens > 1
    columns: dict[str, Array] = {
        "ttft": served.first_token_s - served.arrival_s,
        "tpot": (served.finish_s - served.first_token_s)[several] / (served.output_tokens[several] - 1),
        "latency": served.latency_s,
    }
    for name, values in columns.items():
        if len(values):
            out[name] = float(values.mean())
            out.update({f"{name}_{key}": float(np.quantile(values, q)) for key, q in PERCENTILES.items()})
    return out
