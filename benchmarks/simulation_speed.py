"""How long the serving simulation takes for 20,000 requests on one core. Figure held to: 5 s.

    python benchmarks/simulation_speed.py                      # made-up chat lengths
    python benchmarks/simulation_speed.py TRACE.csv [--json]   # a trace's own arrivals and lengths as well

Prints seconds by load: an idle service (many short steps), a busy one, an overloaded one, a cache that is too small,
four replicas, a closed loop, an encoder; and the search for the largest rate.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from time import perf_counter

from tonnage.calibration.store import calibrated_engines
from tonnage.catalog import load_catalog
from tonnage.sizing.arrivals import Arrivals, Bursty, ClosedLoop, Poisson, SpreadLengths, TraceReplay
from tonnage.sizing.assumptions import Assumptions
from tonnage.sizing.continuous_batching import ContinuousBatching
from tonnage.sizing.devices import Devices, Machine, stack
from tonnage.sizing.replica_model import ReplicaModel
from tonnage.sizing.simulation import largest_rate, simulate
from tonnage.sizing.traces import load_trace
from tonnage.workload.jobs import Lengths, Requests
from tonnage.workload.known import find_model

REQUESTS = 20_000
CHAT = Requests(input_tokens=Lengths(mean=1155, maximum=14050), output_tokens=Lengths(mean=211, maximum=1000))
SENTENCES = Requests(input_tokens=Lengths(mean=60, maximum=512), output_tokens=None)


def device(name: str, precision: str) -> Devices:
    """One accelerator of the catalog as a row of columns."""
    machine = Machine(
        accelerator=load_catalog().accelerator(name),
        count=1,
        intra=None,
        network_gb_per_s=None,
        network_latency_us=40.0,
    )
    return stack([machine], precision, Assumptions())


def seconds(call: Callable[[], object], repeats: int = 3) -> float:
    """Of the fastest of `repeats` runs."""
    times = []
    for _ in range(repeats):
        start = perf_counter()
        call()
        times.append(perf_counter() - start)
    return min(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("trace", nargs="?", type=Path, help="CSV: arrived_at, num_prefill_tokens, num_decode_tokens")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    figures: dict[str, float] = {}

    def measure(name: str, call: Callable[[], object]) -> None:
        figures[name] = round(seconds(call), 3)
        print(f"{name}: {figures[name]:.3f} s", flush=True)

    gpu, shape = device("H100-SXM", "bf16"), find_model("llama-3.1-8b")
    measure(
        "tables of a decoder",
        lambda: ReplicaModel.from_sizing(shape, gpu, CHAT, weights="bf16", engine=calibrated_engines()["llm-python"]),
    )
    decoder = ReplicaModel.from_sizing(shape, gpu, CHAT, weights="bf16", engine=calibrated_engines()["llm-python"])
    assert isinstance(decoder.policy, ContinuousBatching)
    tight = decoder.with_policy(replace(decoder.policy, kv_tokens=30_000))
    chat = Arrivals(process=Poisson(rate_per_s=1.0), lengths=SpreadLengths(requests=CHAT), requests=REQUESTS)

    def run(name: str, replica: ReplicaModel, traffic: Arrivals, *, replicas: int = 1) -> None:
        measure(name, lambda: simulate(replica, traffic, seed=0, replicas=replicas, dispatch="least_loaded"))

    for rate in (0.1, 1.0, 5.0, 20.0):
        run(f"decoder, {rate:g} requests/s", decoder, replace(chat, process=Poisson(rate_per_s=rate)))
    run("decoder, bursty 5 requests/s", decoder, replace(chat, process=Bursty(rate_per_s=5.0, variation=4.0)))
    run("decoder, small cache, 20 requests/s", tight, replace(chat, process=Poisson(rate_per_s=20.0)))
    run("decoder, closed loop of 64 users", decoder, replace(chat, process=ClosedLoop(users=64, think_s=1.0)))
    run("4 decoders, 20 requests/s", decoder, replace(chat, process=Poisson(rate_per_s=20.0)), replicas=4)
    if given.trace is not None:
        trace = load_trace(given.trace)
        replayed = ReplicaModel.from_sizing(
            shape, gpu, weights="bf16", engine=calibrated_engines()["llm-python"],
            requests=Requests(
                input_tokens=Lengths(mean=1, maximum=int(trace.input_tokens.max())),
                output_tokens=Lengths(mean=1, maximum=int(trace.output_tokens.max())),
            ),
        )  # fmt: skip
        run(
            f"decoder, {given.trace.name} ({len(trace):,} requests)",
            replayed,
            Arrivals(process=TraceReplay(trace=trace)),
        )
    bert = ReplicaModel.from_sizing(
        find_model("bert-base-uncased"),
        device("T4", "fp16"),
        SENTENCES,
        weights="fp16",
        engine=calibrated_engines()["fused"],
    )
    sentences = Arrivals(
        process=Poisson(rate_per_s=500.0), lengths=SpreadLengths(requests=SENTENCES), requests=REQUESTS
    )
    run("encoder, 500 requests/s", bert, sentences)
    lengths = SpreadLengths(requests=CHAT)
    measure("largest rate with p95 <= 10 s", lambda: largest_rate(decoder, lengths, p95_latency_s=10.0))
    if given.json:
        print(json.dumps({"simulation_s": figures}))


if __name__ == "__main__":
    main()
