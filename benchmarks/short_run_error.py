"""How far the closed form of short runs is from the simulation: 8 to 200 requests at a rate, or all at once.

    python benchmarks/short_run_error.py [--cases 40] [--seed 5] [--runs 24] [--list]

A case: a model, a GPU, request lengths, a number of requests, a rate from a tenth of the capacity to three times it
(one in five: all at once). The simulation draws `--runs` runs of Poisson arrivals, no warm-up left out; each run's
mean and percentiles are those a benchmark program prints; the closed form is held against their mean over the runs.
Printed: closed form over simulated, and how many cases say that a request waits longer than the run lasts.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from statistics import median

import numpy as np

from closed_form_error import DECODERS, GPUS, between, device, drawn_requests, lengths_of
from tonnage.calibration.store import calibrated_engines
from tonnage.catalog import load_catalog
from tonnage.sizing.arrivals import Arrivals, Deterministic, Poisson
from tonnage.sizing.assumptions import Assumptions
from tonnage.sizing.decoder_curves import DecoderCurves, lay_out_decoder
from tonnage.sizing.decoder_loads import serve_load
from tonnage.sizing.decoder_reading import capacity_per_s
from tonnage.sizing.decoder_replicas import decoder_rows
from tonnage.sizing.decoder_seen import DecoderLoad
from tonnage.sizing.replica_model import ReplicaModel, kv_tokens_of
from tonnage.sizing.schedulers import SCHEDULERS, usual_policy
from tonnage.sizing.served_formats import FORMATS
from tonnage.sizing.simulation import simulate
from tonnage.workload.jobs import Requests
from tonnage.workload.known import find_model

FEWEST = 64.0  # in flight: with fewer the longest prompts do not fit
QUANTITIES = ("mean TTFT", "p50 TTFT", "p99 TTFT", "mean TPOT", "p99 TPOT", "mean latency", "requests/s")
LOADS = (("below half of the capacity", 0.0, 0.5), ("up to the capacity", 0.5, 1.0), ("beyond it", 1.0, 9.0),
         ("all at once", math.inf, math.inf))  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One case: its load as a share of the capacity, and closed form over simulated by quantity."""

    what: str
    used: float
    ratios: dict[str, float]
    outlasts: bool  # a request waits longer than the whole run lasts


def curves_of(model: str, gpu: str, requests: Requests, assumed: Assumptions) -> DecoderCurves | None:
    """One replica under the engine's own limits; None where its cache holds fewer than `FEWEST` requests."""
    rows = decoder_rows(
        find_model(model), FORMATS["fp16"], SCHEDULERS["vllm"], device(gpu, assumed), [load_catalog().accelerator(gpu)],
        [requests], tensor_parallel=np.ones(1), concurrency=np.array([np.nan]),
    )  # fmt: skip
    if float(rows.slots[0]) < FEWEST:
        return None
    engine = calibrated_engines()["llm-python"]
    return lay_out_decoder(rows, engine).under(engine)


def replica_of(curves: DecoderCurves, gpu: str, requests: Requests) -> ReplicaModel:
    """The same replica for the simulation: the scheduler's limits, the cache that its own rule leaves."""
    rows, engine = curves.rows, curves.engine
    usual = usual_policy("vllm", load_catalog().accelerator(gpu), kv_tokens=1)
    tokens = kv_tokens_of(
        rows.shape, rows.devices, weights="fp16", tensor_parallel=1, step_tokens=usual.step_tokens,
        requests=usual.max_requests,
    )  # fmt: skip
    policy = replace(usual, kv_tokens=tokens, front_s=engine.request_us * 1e-6, reply_s=engine.reply_us * 1e-6)
    return ReplicaModel.from_sizing(rows.shape, rows.devices, requests, weights="fp16", engine=engine, policy=policy)


def closed_form(curves: DecoderCurves, count: int, rate_per_s: float) -> tuple[dict[str, float], float]:
    """What the requests see, and the seconds from the first to the last answer."""
    load = DecoderLoad(requests=np.array([float(count)]), rate_per_s=np.array([rate_per_s]), users=np.array([np.inf]))
    seen = serve_load(curves, load)
    figures = (seen.ttft.mean, seen.ttft.at["p50"], seen.ttft.at["p99"], seen.tpot.mean, seen.tpot.at["p99"],
               seen.latency.mean, seen.requests_per_s)  # fmt: skip
    return {name: float(one[0]) for name, one in zip(QUANTITIES, figures, strict=True)}, float(seen.makespan_s[0])


def simulated(replica: ReplicaModel, traffic: Arrivals, runs: int) -> dict[str, float]:
    """The mean over the runs of what each prints."""
    found = []
    for seed in range(runs):
        seen = simulate(replica, traffic, seed=seed, warm_up_fraction=0.0)
        tpot = seen.tpot_s
        found.append((seen.ttft_s.mean, seen.ttft_s.p50, seen.ttft_s.p99, tpot.mean if tpot else math.nan,
                      tpot.p99 if tpot else math.nan, seen.latency_s.mean, seen.requests_per_s))  # fmt: skip
    return dict(zip(QUANTITIES, np.mean(np.array(found), axis=0).tolist(), strict=True))


def cases(count: int, seed: int, runs: int, assumed: Assumptions) -> Iterator[Compared]:
    random, done = np.random.default_rng(seed), 0
    while done < count:
        model, gpu = str(random.choice(DECODERS)), str(random.choice(GPUS))
        requests = drawn_requests(random, encoder=False)
        asked = between(random, 8, 200)
        used = math.inf if random.random() < 0.2 else math.exp(random.uniform(math.log(0.1), math.log(3.0)))
        curves = curves_of(model, gpu, requests, assumed)
        if curves is None:
            continue
        replica = replica_of(curves, gpu, requests)
        done += 1
        rate = float(capacity_per_s(curves, curves.rows.slots)[0]) * used
        closed, lasts = closed_form(curves, asked, rate)
        process = Poisson(rate_per_s=rate) if math.isfinite(rate) else Deterministic(rate_per_s=rate)
        measured = simulated(replica, Arrivals(process=process, lengths=lengths_of(requests)[0], requests=asked), runs)
        yield Compared(
            what=f"{model} {gpu} {requests} {asked} requests at {used:.2f} of the capacity", used=used,
            ratios={name: closed[name] / measured[name] for name in QUANTITIES},
            outlasts=closed["p99 TTFT"] > lasts,
        )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=40)
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--runs", type=int, default=24)
    parser.add_argument("--list", action="store_true", help="print every case")
    given = parser.parse_args()
    drawn = list(cases(given.cases, given.seed, given.runs, Assumptions()))
    if given.list:
        for one in drawn:
            print(one.what, {name: round(ratio, 2) for name, ratio in one.ratios.items()})
    for title, low, high in LOADS:
        chosen = [one for one in drawn if low <= one.used < high or one.used == low == high]
        for name in QUANTITIES if chosen else ():
            errors = [100 * (one.ratios[name] - 1) for one in chosen]
            absolute = [abs(error) for error in errors]
            print(f"{title}, {name}: {len(errors)} cases, median abs. error {median(absolute):.0f} %, "
                  f"p90 {np.quantile(absolute, 0.9):.0f} %, bias {median(errors):+.0f} %")  # fmt: skip
    print(f"first tokens later than the run's end: {sum(one.outlasts for one in drawn)} of {len(drawn)} cases")


if __name__ == "__main__":
    main()
