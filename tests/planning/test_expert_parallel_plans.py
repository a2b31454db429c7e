"""Plans that may deal out experts, attend on each device for itself, or read and write in two pools."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tonnage.catalog import load_catalog
from tonnage.errors import InputError
from tonnage.planning.calibrated_model import CalibratedModel
from tonnage.planning.layouts.replica_layouts import ReplicaLayout, replica_layouts
from tonnage.planning.layouts.serve_sizing import size_service
from tonnage.planning.plan import RunDetail
from tonnage.planning.reasons.misses import NodesMiss, PoolLinkMiss, PoolSizesMiss
from tonnage.planning.sized import Sized
from tonnage.sizing.devices import Machine
from tonnage.workload.jobs import Constraints, Lengths, Requests, ServeJob
from tonnage.workload.known import find_model

CATALOG, CALIBRATED = load_catalog(), CalibratedModel.packaged()
EIGHT = Machine(
    accelerator=CATALOG.accelerator("H100-SXM"), count=8, intra=CATALOG.link("nvlink4"), network_gb_per_s=400.0,
    network_latency_us=10.0,
)  # fmt: skip
CHAT = Requests(input_tokens=Lengths(mean=1000, maximum=1000), output_tokens=Lengths(mean=500, maximum=500))
MIXTURE = ServeJob(
    model=find_model("qwen3-235b-a22b"), requests=CHAT, rate_per_s=20.0, weights="fp8", engine="sglang",
    p95_latency_s=60.0,
)  # fmt: skip
LONG = Requests(input_tokens=Lengths(mean=4000, maximum=4000), output_tokens=Lengths(mean=400, maximum=400))
DENSE = ServeJob(
    model=find_model("llama-3.1-70b"), requests=LONG, rate_per_s=40.0, weights="fp8", engine="vllm", p95_ttft_s=1.0,
    p95_tpot_s=0.025,
)  # fmt: skip


def sized(job: ServeJob, machine: Machine = EIGHT) -> Sized:
    return size_service(job, [machine], Constraints(max_nodes=64), CALIBRATED)


def shown(job: ServeJob, machine: Machine = EIGHT) -> RunDetail:
    return sized(job, machine).detail(0)


def forced(**layout: int) -> RunDetail:
    return shown(replace(MIXTURE, **layout))


SEARCHED = [  # engine, layouts tried over 8 devices
    ("vllm", {(1, 1), (8, 1), (8, 8)}),
    ("sglang", {(1, 1), (8, 1), (8, 8)}),
    ("tensorrt-llm", {(1, 1), (8, 1), (8, 8)}),
    ("tgi", {(1, 1)}),
]


@pytest.mark.parametrize(("engine", "pairs"), SEARCHED)
def test_the_search_tries_what_the_engine_runs(engine: str, pairs: set[tuple[int, int]]) -> None:
    """Whole experts and attention on each device are tried for mixtures, where the engine has them."""
    layouts = replica_layouts(replace(MIXTURE, engine=engine), 8)  # type: ignore[arg-type]
    assert {(one.experts, one.groups) for one in layouts if one.devices == 8} == pairs
    assert layouts[0] == ReplicaLayout(1)


def test_dense_models_and_a_degree_alone_are_plain() -> None:
    """A dense model has no experts to deal out; an engine told `tensor_parallel` alone cuts every expert."""
    assert all(one.experts == one.groups == 1 for one in replica_layouts(DENSE, 8))
    assert replica_layouts(replace(MIXTURE, tensor_parallel=8), 8) == [ReplicaLayout(8)]


def test_degrees_of_one_are_the_plain_plan() -> None:
    """Naming degrees of 1 gives the figures of the plain layout."""
    plain, same = forced(tensor_parallel=8), forced(tensor_parallel=8, expert_parallel=1, attention_data_parallel=1)
    assert plain == same


def test_a_forced_layout_is_shown_and_says_that_no_row_has_it() -> None:
    """Text, fields and the interval name the degrees; the interval is wider than that of the plain layout."""
    plain = forced(tensor_parallel=8)
    spread = forced(tensor_parallel=8, expert_parallel=8, attention_data_parallel=8)
    fields = dict(spread.layout_fields)
    assert (fields["expert_parallel"], fields["attention_data_parallel"]) == (8, 8)
    assert "tp 8, ep 8, dp attention 8" in spread.layout
    assert any("layout: experts dealt out" in one.unknown for one in spread.intervals)
    assert not any("layout: experts dealt out" in one.unknown for one in plain.intervals)
    widths = [run.intervals[0].spread.high_factor / run.intervals[0].spread.low_factor for run in (plain, spread)]
    assert widths[1] > widths[0]


def test_the_search_never_takes_more_machines_than_the_plain_layout() -> None:
    """More layouts can only make a fleet smaller."""
    for rate in (5.0, 20.0, 80.0):
        job = replace(MIXTURE, rate_per_s=rate)
        plain = replace(job, expert_parallel=1, attention_data_parallel=1)
        assert sized(job).nodes[0] <= sized(plain).nodes[0]


def test_two_pools_keep_both_promises_with_the_stated_replicas() -> None:
    """Forced pools are planned as stated; the first token is in time by one, each further one by the other."""
    run = shown(replace(DENSE, tensor_parallel=8, prefill_replicas=14, decode_replicas=8))
    fields = dict(run.layout_fields)
    assert (fields["prefill_replicas"], fields["decode_replicas"], fields["nodes"]) == (14, 8, 22)
    assert "14 prefill and 8 decode replicas" in run.layout
    first, token = (dict(dict(run.percentiles)[of])["p95"] for of in ("ttft", "tpot"))
    assert first <= 1.0
    assert token <= 0.025


def test_the_search_takes_two_pools_where_they_need_fewer_machines() -> None:
    """Long prompts and a tight time per token: pools beat replicas that do both, and never take more machines."""
    free, one_pool = sized(DENSE), sized(replace(DENSE, prefill_replicas=0, decode_replicas=0))
    assert "prefill" in free.detail(0).layout
    assert free.nodes[0] < one_pool.nodes[0]
    easy = replace(DENSE, p95_ttft_s=30.0, p95_tpot_s=1.0)
    assert sized(easy).nodes[0] <= sized(replace(easy, prefill_replicas=0, decode_replicas=0)).nodes[0]


def test_forced_pools_that_do_not_fit_are_refused_by_name() -> None:
    """No layout: its breakdown is an error that says where the reason is, and the miss says it."""
    none = sized(replace(DENSE, tensor_parallel=8, prefill_replicas=1, decode_replicas=1))
    assert len(none.machine) == 0
    assert none.misses
    with pytest.raises(InputError, match="none fits") as caught:
        none.detail(0)
    assert "misses" in (caught.value.hint or "")


def test_pools_of_several_machine_types_are_shown_as_each_alone() -> None:
    """What requests see is worked out for all fleets at once, and belongs to the right one."""
    slow, other = replace(EIGHT, network_gb_per_s=100.0), CATALOG.accelerator("A100-80GB-SXM")
    machines = [EIGHT, replace(EIGHT, accelerator=other), slow]
    job = replace(DENSE, weights="int8", p95_ttft_s=3.0)
    together = size_service(job, machines, Constraints(max_nodes=64), CALIBRATED)
    assert len(together.machine) == len(machines)
    found = {int(index): together.detail(row) for row, index in enumerate(together.machine)}
    assert all("prefill" in one.layout for one in found.values())
    assert [found[index] for index in range(len(machines))] == [shown(job, machine) for machine in machines]


@pytest.mark.parametrize("first", [None, 400.0])
def test_an_unknown_network_of_one_machine_type_is_none_of_another(first: float | None) -> None:
    """The same devices stand in both; pools over several machines need the network of their own."""
    job = replace(DENSE, tensor_parallel=8, prefill_replicas=14, decode_replicas=8)
    networks = [first, 400.0 if first is None else None]
    machines = [replace(EIGHT, network_gb_per_s=one) for one in networks]
    found = size_service(job, machines, Constraints(max_nodes=64), CALIBRATED)
    assert found.machine.tolist() == [networks.index(400.0)]
    assert isinstance(found.misses[networks.index(None)], PoolLinkMiss)


def test_pools_never_read_more_than_their_products_allow() -> None:
    """Prompts a second times their FLOP stay below what the devices of the reading pool multiply."""
    run = shown(replace(DENSE, tensor_parallel=8, prefill_replicas=14, decode_replicas=8))
    capacity = dict(run.rates)["requests_per_s"].value
    peak = 14 * 8 * (EIGHT.accelerator.dense_fp8_tflops or 0.0) * 1e12
    assert capacity * 4000 * 2 * 69e9 < peak


def test_a_slower_link_between_the_pools_delays_the_first_token() -> None:
    """Keys and values go over the machines' network before the first token is written on."""
    job = replace(DENSE, tensor_parallel=8, prefill_replicas=14, decode_replicas=8, p95_ttft_s=3.0)
    slow = replace(EIGHT, network_gb_per_s=20.0)
    firsts = [dict(dict(shown(job, machine).percentiles)["ttft"])["p95"] for machine in (EIGHT, slow)]
    assert firsts[1] > firsts[0] + 0.02


def test_pools_that_do_not_carry_the_rate_name_the_sizes_that_would() -> None:
    """The miss says how many replicas of each; they then hold."""
    job = replace(DENSE, tensor_parallel=8, prefill_replicas=2, decode_replicas=2)
    found = sized(job)
    assert not len(found.machine)
    miss = found.misses[0]
    assert miss.binding == "layout"
    assert isinstance(miss, PoolSizesMiss)
    assert (miss.given_prefill_replicas, miss.given_decode_replicas) == (2, 2)


def test_pools_beyond_the_machines_allowed_name_that_limit() -> None:
    """22 machines under `max_nodes: 8`: the pools would do, the limit does not."""
    job = replace(DENSE, tensor_parallel=8, prefill_replicas=14, decode_replicas=8)
    miss = size_service(job, [EIGHT], Constraints(max_nodes=8), CALIBRATED).misses[0]
    assert isinstance(miss, NodesMiss)
    assert miss.allowed_nodes == 8


def test_pools_over_several_machines_need_a_known_network() -> None:
    """Without a published network both pools stand in one machine, or are refused for that."""
    closed = replace(EIGHT, network_gb_per_s=None)
    job = replace(DENSE, tensor_parallel=4, rate_per_s=1.0)
    assert "1 prefill and 1 decode" in shown(replace(job, prefill_replicas=1, decode_replicas=1), closed).layout
    miss = sized(replace(job, prefill_replicas=2, decode_replicas=2), closed).misses[0]
    assert isinstance(miss, PoolLinkMiss)
