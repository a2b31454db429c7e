"""What engines hold and where they run: fixed batches, caches of 8 bits, vendors, devices without fp8."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tonnage.catalog import load_catalog
from tonnage.catalog.grammar import parse_gpu_filter
from tonnage.planning.assumed import assumptions_used
from tonnage.planning.calibrated_model import CalibratedModel
from tonnage.planning.layouts.batch_sizing import size_batch
from tonnage.planning.layouts.serve_sizing import size_service
from tonnage.planning.need import needs_of
from tonnage.planning.plan import RunDetail
from tonnage.planning.reasons.changes import SetField
from tonnage.planning.reasons.misses import (
    ConcurrencyMiss,
    DegreesMiss,
    MemoryMiss,
    NoFp8Miss,
    NoMxfp4Miss,
    NvidiaOnlyMiss,
    UnpublishedMiss,
)
from tonnage.planning.sized_machines import SizedMachines, size_job
from tonnage.planning.sizes import make_size_report
from tonnage.reports.reasons.miss_words import miss_words
from tonnage.reports.size import render_size
from tonnage.sizing.devices import Machine
from tonnage.workload.jobs import BatchJob, BuyTerms, Constraints, Lengths, Requests, ServeJob, Team, TrainJob, Workload
from tonnage.workload.known import find_model

from .conftest import AS_OF

CATALOG, CALIBRATED = load_catalog(), CalibratedModel.packaged()
FORMATS: tuple[Any, ...] = ("bf16", "fp8")
H100 = Machine(
    accelerator=CATALOG.accelerator("H100-SXM"), count=1, intra=None, network_gb_per_s=None, network_latency_us=40.0
)
LONG = Requests(input_tokens=Lengths(mean=1000, maximum=1000), output_tokens=Lengths(mean=1000, maximum=1000))
BATCH = BatchJob(model=find_model("llama-3.1-8b"), requests=LONG, items=10_000, weights="bf16")


def encoder(**changes: Any) -> ServeJob:
    lengths = Requests(input_tokens=Lengths(mean=128, maximum=128), output_tokens=None)
    return ServeJob(model=find_model("bert-base"), requests=lengths, rate_per_s=5.0, weights="bf16", **changes)


SERVED = ServeJob(model=find_model("llama-3.1-8b"), requests=LONG, rate_per_s=1.0, weights="bf16")
PAIR = replace(H100, count=2, intra=CATALOG.link("nvlink4"))


@pytest.mark.parametrize("job", [SERVED, encoder()], ids=["decoder", "encoder"])
def test_a_degree_over_the_gpus_of_a_machine_says_so(job: ServeJob) -> None:
    """Beside a machine that takes the degree, and where none does: no machine is left out without a reason."""
    four = replace(job, tensor_parallel=4)
    for machines in ([PAIR], [PAIR, replace(PAIR, count=4)]):
        sized = size_service(four, machines, Constraints(), CALIBRATED)
        miss = sized.misses[0]
        assert isinstance(miss, DegreesMiss)
        assert (miss.binding, miss.degrees, miss.needed_gpus, miss.gpus) == ("layout", ("tensor parallel 4",), 4, 2)
        assert sized.machine.tolist() == [1] * (len(machines) - 1)


def test_a_degree_over_the_gpus_is_said_of_a_batch_too() -> None:
    """None of the machines takes a copy."""
    miss = size_batch(replace(BATCH, tensor_parallel=4), [H100, PAIR], Constraints(), CALIBRATED).misses
    assert {index: (one.kind, getattr(one, "gpus", 0)) for index, one in miss.items()} == {
        0: ("degrees", 1), 1: ("degrees", 2),
    }  # fmt: skip


@pytest.mark.parametrize("job", [SERVED, encoder()], ids=["decoder", "encoder"])
def test_a_link_that_nobody_rates_is_the_limit_where_memory_is_not(job: ServeJob) -> None:
    """Two devices hold a copy; how fast they talk is not known."""
    apart = replace(PAIR, intra=None)
    miss = size_service(replace(job, tensor_parallel=2), [apart], Constraints(), CALIBRATED).misses[0]
    assert isinstance(miss, UnpublishedMiss)
    assert (miss.binding, miss.what) == ("network", "link bandwidth")


@pytest.mark.parametrize("engine", ["pytorch", "onnxruntime", "tensorrt"])
def test_a_fixed_batch_by_default_is_what_the_memory_holds_at_full_length(engine: Any) -> None:
    """2,000 tokens of 131,072 bytes a request, and what its prompt takes while it is read: the cache shown is that of
    the batch shown, the margin stays free, one request more would take of it, and stating the batch plans the same."""
    job = replace(BATCH, engine=engine)
    run = size_batch(job, [H100], Constraints(), CALIBRATED).detail(0)
    batch = int(dict(run.layout_fields)["concurrency"])
    each = 2000 * 131_072 / 2**30
    parts = dict(run.memory_parts_gib)
    assert parts["kv cache"] == pytest.approx(batch * each)
    each += parts["activations"] / batch
    assert run.memory_gib is not None
    free = run.memory_available_gib - run.memory_gib.value
    margin = CALIBRATED.assumed.memory_margin_fraction * run.memory_available_gib
    assert margin <= free < margin + each
    stated = size_batch(replace(job, batch=batch), [H100], Constraints(), CALIBRATED).detail(0)
    assert stated.memory_gib == run.memory_gib


def test_a_fixed_batch_counts_its_longest_request() -> None:
    """Requests of the same mean and twice the longest length leave half the places."""

    def batch(longest: int) -> int:
        lengths = Lengths(mean=500, maximum=longest)
        job = replace(BATCH, engine="onnxruntime", requests=Requests(input_tokens=lengths, output_tokens=lengths))
        return int(dict(size_batch(job, [H100], Constraints(), CALIBRATED).detail(0).layout_fields)["concurrency"])

    assert batch(1000) == pytest.approx(2 * batch(2000), abs=1)


def test_what_it_needs_counts_the_cache_in_its_own_format() -> None:
    """131,072 bytes a token of Llama 3.1 8B at 16 bits, half of that in fp8, stated or as TensorRT-LLM keeps it."""

    def shown(job: BatchJob) -> tuple[float, float]:
        figures = {name: figure.value for name, figure, _ in needs_of(job).figures}
        return figures["kv_cache_bytes_per_token"], figures["kv_cache_per_request_gib"]

    per_token, per_request = shown(BATCH)
    assert per_token == 131_072
    for small in (replace(BATCH, kv_cache="fp8"), replace(BATCH, weights="fp8", engine="tensorrt-llm")):
        assert shown(small) == (per_token / 2, per_request / 2)


ONE_PASS = Requests(input_tokens=Lengths(mean=128, maximum=128), output_tokens=None)


@pytest.mark.parametrize(
    ("model", "engine"),
    [("llama-3.1-8b", "vllm"), ("bert-base", "tensorrt"), ("bert-base", "pytorch"), ("resnet-50", "pytorch")],
)
def test_a_judgement_of_memory_is_listed_where_memory_hangs_on_it(model: str, engine: Any) -> None:
    """What a plan lists of context and workspace is what changes its bytes, and nothing else."""
    one_pass: dict[str, Any] = {} if engine == "vllm" else {"requests": ONE_PASS}
    job = replace(BATCH, model=find_model(model), engine=engine, weights="fp16", **one_pass)
    work = Workload(name="batch", job=job, constraints=Constraints(), buy=BuyTerms(), team=Team(), as_of=AS_OF)
    listed = {one.name for one in assumptions_used(work, CALIBRATED)}

    def bytes_with(**changes: float) -> list[tuple[tuple[str, float], ...]]:
        assumed = replace(CALIBRATED, assumed=replace(CALIBRATED.assumed, **changes))
        found = size_batch(job, [H100], Constraints(), assumed)
        return [found.detail(place).memory_parts_gib for place in range(len(found.machine))]

    names = {"runtime_context_gib", "library_workspace_gib"}
    assert listed & names == {name for name in names if bytes_with(**{name: 0.4}) != bytes_with()}
    assert ("cublas_workspace_gib" in listed) == ((model, engine) == ("bert-base", "pytorch"))


def sized_on(job: BatchJob, device: str) -> SizedMachines:
    """The job on all instance types with that device."""
    work = Workload(name="batch", job=job, constraints=Constraints(), buy=BuyTerms(), team=Team(), as_of=AS_OF)
    instances = [one for one in CATALOG.instance_types if one.accelerator == device and one.accelerator_count in (1, 8)]
    assert instances
    return size_job(work, CATALOG, instances, CALIBRATED)


@pytest.mark.parametrize("engine", ["tensorrt-llm", "tensorrt", "lmdeploy"])
def test_engines_of_nvidia_devices_are_refused_on_others(engine: Any) -> None:
    """On MI300X the miss says whose devices the engine runs on and names one that runs there, which is then planned."""
    job = replace(BATCH, engine=engine)
    found = sized_on(job, "MI300X")
    assert not len(found.sized.machine)
    for miss in found.unsized.values():
        assert isinstance(miss, NvidiaOnlyMiss)
        assert miss.lifted_by == (SetField(key="engine", value="vllm", alike=("sglang",)),)
    for runs in ("vllm", "sglang"):
        assert len(sized_on(replace(job, engine=runs), "MI300X").sized.machine)
    assert len(sized_on(job, "H100-SXM").sized.machine)


def test_an_engine_that_would_lift_a_refusal_runs_the_model() -> None:
    """On MI300X an encoder-decoder under TensorRT-LLM is sent to TGI: vLLM and SGLang do not run it."""
    found = sized_on(replace(BATCH, model=find_model("t5-base"), engine="tensorrt-llm"), "MI300X")
    assert {miss.lifted_by for miss in found.unsized.values()} == {(SetField(key="engine", value="tgi"),)}


@pytest.mark.parametrize("engine", [None, "vllm", "sglang"])
def test_fp8_weights_on_devices_without_fp8_are_held_so_and_multiplied_in_16_bit(engine: Any) -> None:
    """On A100 the weights take half of what they take in bf16 (tables stay), the cache 16 bits, and prompts are read no
    faster than in bf16."""

    def shown(job: BatchJob) -> RunDetail:
        return sized_on(job, "A100-80GB-SXM").sized.detail(0)

    plain, small = (shown(replace(BATCH, engine=engine, weights=weights)) for weights in FORMATS)
    weights, before = (dict(run.memory_parts_gib)["weights"] for run in (small, plain))
    assert 0.5 < weights / before < 0.6
    assert dict(small.layout_fields)["weights"] == "fp8"
    assert dict(small.layout_fields)["kv_cache"] == "fp16"
    assert "16 bit" in small.layout
    one = replace(BATCH, engine=engine, batch=1)
    first = [dict(shown(replace(one, weights=weights)).time_parts) for weights in FORMATS]
    assert first[1]["ttft p95"] >= first[0]["ttft p95"]


def test_fp8_under_an_engine_that_multiplies_in_fp8_is_refused_where_the_device_has_none() -> None:
    """TensorRT-LLM on A100: the miss says that the device has no fp8; on H100 it is planned."""
    job = replace(BATCH, engine="tensorrt-llm", weights="fp8")
    found = sized_on(job, "A100-80GB-SXM")
    assert not len(found.sized.machine)
    assert all(isinstance(miss, NoFp8Miss) for miss in found.unsized.values())
    assert len(sized_on(job, "H100-SXM").sized.machine)


def test_mxfp4_is_refused_where_the_engine_does_not_multiply_it() -> None:
    """TensorRT-LLM on A100: the miss names vLLM, which runs there; on H100 it is planned."""
    job = replace(BATCH, model=find_model("gpt-oss-20b"), engine="tensorrt-llm", weights="mxfp4")
    found = sized_on(job, "A100-80GB-SXM")
    assert not len(found.sized.machine)
    for miss in found.unsized.values():
        assert isinstance(miss, NoMxfp4Miss)
        assert miss.lifted_by == (SetField(key="engine", value="vllm"),)
    assert len(sized_on(replace(job, engine="vllm"), "A100-80GB-SXM").sized.machine)
    assert len(sized_on(job, "H100-SXM").sized.machine)


@pytest.mark.parametrize(("model", "weights"), [("llama-3.1-8b", "fp8"), ("gpt-oss-20b", "mxfp4")])
def test_a_format_without_a_rate_names_itself_in_the_remedy(model: str, weights: Any) -> None:
    """On T4, which multiplies neither fp8 nor bf16, fp16 is what runs, in place of the format that was asked for."""
    found = sized_on(replace(BATCH, model=find_model(model), weights=weights), "T4").unsized
    assert found
    for miss in found.values():
        assert isinstance(miss, UnpublishedMiss)
        assert miss_words(miss).lifts == f"fp16 in place of {weights}"


def test_a_fixed_batch_over_the_cache_names_the_batch() -> None:
    """2,000 tokens of 131,072 bytes a request: 2,048 of them are the limit, and a batch that the cache holds lifts it;
    weights in fp8 are not advised to be fp8."""
    job = replace(BATCH, engine="pytorch", weights="fp8", batch=2048)
    found = sized_on(job, "H100-SXM").sized.misses
    assert found
    for miss in found.values():
        assert isinstance(miss, ConcurrencyMiss)
        (change,) = miss.lifted_by
        assert isinstance(change, SetField)
        assert (miss.asked_requests, change.key) == (2048, "batch")
        assert change.value == int(miss.held_requests) < 2048


PASSES = BatchJob(
    model=find_model("bert-large-uncased"), weights="fp16", items=10_000,
    requests=Requests(input_tokens=Lengths(mean=128, maximum=128), output_tokens=None),
)  # fmt: skip
STEPS = TrainJob(
    model=find_model("bert-base-uncased"), samples=10_000, lengths=Lengths(mean=128, maximum=128), epochs=1,
    global_batch=32,
)  # fmt: skip


@pytest.mark.parametrize(
    ("job", "says"),
    [(BATCH, "what is in use"), (PASSES, "what a pass holds"), (STEPS, "what a step needs at its peak")],
)
def test_size_says_which_memory_it_shows(job: Any, says: str) -> None:
    """Of each kind of work what the figure counts, and why nvidia-smi shows more: an engine's pool, blocks that an
    allocator keeps."""
    terms = Constraints(gpus=(parse_gpu_filter("H100-SXM:1"),))
    work = Workload(name="work", job=job, constraints=terms, buy=BuyTerms(), team=Team(), as_of=AS_OF)
    text = " ".join(render_size(make_size_report(work, CATALOG), "md").split())
    assert f"Memory is {says}" in text
    assert "nvidia-smi" in text
    assert "shows more" in text


@pytest.mark.parametrize(("device", "advice"), [("V100-16GB", "int4"), ("A100-40GB-SXM", "int8"), ("L4", "fp8")])
def test_smaller_weights_of_an_encoder_are_of_a_format_the_device_multiplies(device: str, advice: str) -> None:
    """An encoder too large for a device by its weights is advised the first smaller format that the device has a rate
    for (A100 has no fp8, V100 no int8 either); what is kept free is the plan's own margin, not an engine's."""
    room = CATALOG.accelerator(device).memory_gib or 0.0
    wide = replace(PASSES.model, name="wide", layers=round(60 * room))  # 25 MB a layer in 16 bits: 1.4 x the room
    found = sized_on(replace(PASSES, model=wide, tensor_parallel=1), device).sized.misses
    one = [miss for miss in found.values() if isinstance(miss, MemoryMiss) and miss.tensor_parallel == 1]
    assert one
    for miss in one:
        (change,) = miss.lifted_by
        assert isinstance(change, SetField)
        assert (change.key, change.value) == ("weights", advice)
        assert "10% kept free" in miss_words(miss).has
        assert "engine" not in miss_words(miss).has
