"""The largest load within promised percentiles, on replicas of a decoder."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tonnage.calibration.store import calibrated_engines
from tonnage.catalog import load_catalog
from tonnage.sizing.decoder_curves import DecoderCurves, lay_out_decoder
from tonnage.sizing.decoder_loads import p95_seen, serve_load
from tonnage.sizing.decoder_reading import states_of
from tonnage.sizing.decoder_replicas import decoder_rows
from tonnage.sizing.decoder_seen import SEEN, Seen
from tonnage.sizing.devices import Machine
from tonnage.sizing.inference_devices import serving_devices
from tonnage.sizing.promises import LEAST_SHARE, LatencyLimits, endless, largest_rate
from tonnage.sizing.schedulers import SCHEDULERS
from tonnage.sizing.served_formats import FORMATS
from tonnage.workload.jobs import Lengths, Requests
from tonnage.workload.known import find_model

CHAT = Requests(input_tokens=Lengths(mean=1155, maximum=4000), output_tokens=Lengths(mean=211, maximum=1000))
SLOTS = np.array([1.0, 16.0, 256.0])
LIMITS_S: dict[Seen, float] = {"ttft": 0.5, "tpot": 0.02, "latency": 5.0}


def curves(scheduler: str = "vllm") -> DecoderCurves:
    """Replicas of one H100 with 1, 16 and 256 slots."""
    device = load_catalog().accelerator("H100-SXM")
    machine = Machine(accelerator=device, count=1, intra=None, network_gb_per_s=None, network_latency_us=0.0)
    rows = decoder_rows(
        find_model("llama-3.1-8b"), FORMATS["bf16"], SCHEDULERS[scheduler], serving_devices([machine] * 3, "bf16"),
        [device] * 3, [CHAT] * 3, tensor_parallel=np.ones(3), concurrency=SLOTS,
    )  # fmt: skip
    engine = calibrated_engines()["llm-python"]
    return lay_out_decoder(rows, engine).under(engine)


def limits(**seconds: float | list[float]) -> LatencyLimits:
    return LatencyLimits(**{f"{name}_s": np.full(3, seconds.get(name, math.inf)) for name in SEEN})


@pytest.mark.parametrize("scheduler", ["vllm", "sglang", "static"])
def test_percentiles_asked_for_are_those_of_the_whole_load(scheduler: str) -> None:
    there, load = curves(scheduler), endless(np.array([0.1, 1.0, 3.0]))
    seen = serve_load(there, load)
    for of in ((name,) for name in SEEN):
        (found,) = p95_seen(there, load, of).items()
        assert np.array_equal(found[1], getattr(seen, found[0]).at["p95"])
    assert set(p95_seen(there, load, SEEN)) == set(SEEN)


def test_states_at_hand_change_no_percentile() -> None:
    """Those of some rows are those that the rows alone have."""
    there, some = curves(), np.array([2, 0])
    load, states = endless(np.array([3.0, 0.1])), states_of(there).take(some)
    alone, at_hand = (p95_seen(there.take(some), load, SEEN, given) for given in (None, states))
    for name in SEEN:
        assert np.array_equal(alone[name], at_hand[name])


@pytest.mark.parametrize("name", SEEN)
def test_the_largest_load_keeps_a_promise_and_a_little_more_breaks_it(name: Seen) -> None:
    there, promised = curves(), limits(**{name: LIMITS_S[name]})
    rate, kept = largest_rate(there, promised)
    assert np.all(promised.kept(there, endless(rate))[kept])
    full = serve_load(there, endless(rate)).capacity_per_s
    bound = kept & (rate < 0.95 * full)
    assert bound.any()
    assert not np.any(promised.kept(there, endless(rate * 1.03))[bound])


def test_what_cannot_be_kept_is_told_and_the_others_are_found_beside_it() -> None:
    """One impossible promise among three rows changes no other row."""
    there, alike = curves(), limits(ttft=0.5)
    rate, kept = largest_rate(there, alike)
    assert kept.all()
    mixed, some = largest_rate(there, limits(ttft=[0.5, 1e-6, 0.5]))
    assert some.tolist() == [True, False, True]
    assert np.array_equal(mixed[some], rate[some])
    none, never = largest_rate(there, limits(ttft=1e-6))
    assert not never.any()
    assert np.all(none <= serve_load(there, endless(rate)).capacity_per_s * LEAST_SHARE * 1.001)


def test_without_a_promise_it_is_the_capacity() -> None:
    there = curves()
    rate, kept = largest_rate(there, limits())
    assert kept.all()
    assert rate == pytest.approx(serve_load(there, endless(np.ones(3))).capacity_per_s)
