"""How far the closed forms of decoders and encoders are from the simulation, over random replicas. About a minute.

    python benchmarks/closed_form_error.py [--cases 60] [--seed 11] [--list]

A case: a model, a GPU, request lengths (three in ten all alike, else log-normal), a concurrency. The closed form says
the rate it carries and the latency it shows; the simulation is given that rate as Poisson arrivals. Printed: closed
form over simulated, by kind of case. Cases whose cache does not hold the concurrency are drawn again.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from dataclasses import replace
from statistics import median

import numpy as np

from tonnage.calibration.store import calibrated_engines
from tonnage.catalog import load_catalog
from tonnage.errors import TonnageError
from tonnage.sizing.arrivals import Arrivals, FixedLengths, Poisson, SpreadLengths, TokenLengths
from tonnage.sizing.assumptions import Assumptions
from tonnage.sizing.decoder_curves import lay_out_decoder
from tonnage.sizing.decoder_loads import serve_load
from tonnage.sizing.decoder_reading import capacity_per_s
from tonnage.sizing.decoder_replicas import cache_room, decoder_rows
from tonnage.sizing.devices import Devices, Machine
from tonnage.sizing.dynamic_batching import DynamicBatching
from tonnage.sizing.encoder_replicas import encoder_replicas
from tonnage.sizing.inference_devices import serving_devices
from tonnage.sizing.promises import endless
from tonnage.sizing.replica_model import ReplicaModel
from tonnage.sizing.schedulers import SCHEDULERS
from tonnage.sizing.served_formats import FORMATS
from tonnage.sizing.simulation import simulate
from tonnage.workload.jobs import Lengths, Requests
from tonnage.workload.known import find_model
from tonnage.workload.shapes import ModelShape

DECODERS = ("llama-3.1-8b", "llama-2-7b", "mistral-7b", "gpt2", "qwen2.5-7b", "llama-2-13b", "llama-3.2-3b")
ENCODERS = ("bert-base-uncased", "bert-large-uncased")
GPUS = ("A100-80GB-SXM", "H100-SXM", "A100-40GB-SXM", "L4", "V100-32GB", "A10G", "T4")
SPREADS = (("decoder, lengths alike", False, True), ("decoder, lengths spread", False, False),
           ("encoder, lengths alike", True, True), ("encoder, lengths spread", True, False))  # fmt: skip


def device(name: str, assumed: Assumptions) -> Devices:
    """One GPU as plans serve on it, the speed of its usual host included."""
    accelerator = load_catalog().accelerator(name)
    machine = Machine(accelerator=accelerator, count=1, intra=None, network_gb_per_s=None, network_latency_us=40.0)
    return serving_devices([machine], "fp16", assumed)


def between(random: np.random.Generator, low: float, high: float) -> int:
    return int(math.exp(random.uniform(math.log(low), math.log(high))))


def drawn_requests(random: np.random.Generator, *, encoder: bool) -> Requests:
    fixed = random.random() < 0.3
    prompt, answer = (between(random, 16, 256), 1) if encoder else (between(random, 50, 3000), between(random, 10, 500))
    longest = [n if fixed else n * int(random.integers(2, 3 if encoder else 8)) for n in (prompt, answer)]
    output = None if encoder else Lengths(mean=answer, maximum=longest[1])
    return Requests(input_tokens=Lengths(mean=prompt, maximum=longest[0]), output_tokens=output)


def lengths_of(requests: Requests) -> tuple[TokenLengths, bool]:
    prompt, output = requests.input_tokens, requests.output_tokens
    if prompt.maximum == prompt.mean:
        return FixedLengths(input_tokens=prompt.maximum, output_tokens=output.maximum if output else 0), True
    return SpreadLengths(requests=requests), False


def closed_form(
    shape: ModelShape, gpus: Devices, gpu: str, requests: Requests, batch: float, assumed: Assumptions
) -> dict[str, float] | None:
    """The load that `batch` in flight carry, and what requests see there; None where the cache holds fewer."""
    if requests.output_tokens is None:
        one = np.ones(1)
        found = encoder_replicas(
            shape, requests, gpus, "fp16", one, one * batch, assumed, calibrated_engines()["fused"]
        )
        return {"rate": float(found.requests_per_s[0]), "mean latency": float(found.latency_mean_s[0]),
                "p95 latency": float(found.latency_p95_s[0])}  # fmt: skip
    rows = decoder_rows(shape, FORMATS["fp16"], SCHEDULERS["vllm"], gpus, [load_catalog().accelerator(gpu)], [requests],
                        tensor_parallel=np.ones(1), concurrency=np.array([256.0]))  # fmt: skip
    if float(cache_room(rows, np.array([256.0]))[0]) < batch:
        return None
    engine = calibrated_engines()["llm-python"]
    curves = lay_out_decoder(rows, engine).under(engine)
    rate = float(capacity_per_s(curves, np.array([batch]))[0])
    seen = serve_load(curves, endless(np.array([rate])))
    return {"rate": rate, "mean latency": float(seen.latency.mean[0]), "p95 latency": float(seen.latency.at["p95"][0]),
            "p95 TTFT": float(seen.ttft.at["p95"][0]), "mean TPOT": float(seen.tpot.mean[0])}  # fmt: skip


def cases(count: int, seed: int, assumed: Assumptions) -> Iterator[tuple[str, bool, bool, dict[str, float]]]:
    """(what, encoder?, alike?, closed form over simulated by quantity)."""
    random, found = np.random.default_rng(seed), 0
    while found < count:
        encoder = found % 4 == 3
        model, gpu = str(random.choice(ENCODERS if encoder else DECODERS)), str(random.choice(GPUS))
        requests, batch = drawn_requests(random, encoder=encoder), 2.0 ** int(random.integers(0, 8))
        shape, gpus = find_model(model), device(gpu, assumed)
        engine = calibrated_engines()["fused" if encoder else "llm-python"]
        policy = DynamicBatching(max_batch=int(batch), wait_s=0.0) if encoder else None
        try:
            replica = ReplicaModel.from_sizing(shape, gpus, requests, weights="fp16", engine=engine, policy=policy)
        except TonnageError:
            continue  # does not fit
        closed = closed_form(shape, gpus, gpu, requests, batch, assumed)
        if closed is None:
            continue
        found += 1
        rate, p95 = closed["rate"], closed["p95 latency"]
        lengths, alike = lengths_of(requests)
        trial = int(min(20_000, max(6_000, 40 * rate * p95)))
        seen = simulate(replica, Arrivals(process=Poisson(rate_per_s=rate), lengths=lengths, requests=trial), seed=1)
        measured = {"mean latency": seen.latency_s.mean, "p95 latency": seen.latency_s.p95}
        if not encoder and seen.tpot_s is not None:
            measured |= {"p95 TTFT": seen.ttft_s.p95, "mean TPOT": seen.tpot_s.mean}
        ratios = {name: closed[name] / value for name, value in measured.items()}
        yield f"{model} {gpu} {requests} {batch:g} at once, {rate:.3g}/s", encoder, alike, ratios


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=60)
    parser.add_argument("--seed", type=int, default=11)
    parser.add_argument("--list", action="store_true", help="print every case")
    parser.add_argument("--attention-half-length", type=float, help="tokens; 1 puts decode attention at bandwidth")
    given = parser.parse_args()
    assumed = Assumptions()
    if given.attention_half_length is not None:
        assumed = replace(assumed, attention_half_length_tokens=given.attention_half_length)
    drawn = list(cases(given.cases, given.seed, assumed))
    if given.list:
        for what, _, _, ratios in drawn:
            print(what, {name: round(ratio, 2) for name, ratio in ratios.items()})
    for name, encoder, alike in SPREADS:
        chosen = [ratios for _, e, a, ratios in drawn if (e, a) == (encoder, alike)]
        for quantity in chosen[0] if chosen else ():
            errors = [100 * (ratios[quantity] - 1) for ratios in chosen if quantity in ratios]
            absolute = [abs(error) for error in errors]
            print(f"{name}, {quantity}: {len(errors)} cases, median abs. error {median(absolute):.0f} %, "
                  f"p90 {np.quantile(absolute, 0.9):.0f} %, bias {median(errors):+.0f} %")  # fmt: skip


if __name__ == "__main__":
    main()
