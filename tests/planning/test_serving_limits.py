"""What engines hold and where they run: fixed batches, caches of 8 bits, vendors, devices without fp8."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tonnage.catalog import load_catalog
from tonnage.planning.batch_sizing import size_batch
from tonnage.planning.grounds import Grounds
from tonnage.planning.need import needs_of
from tonnage.planning.sized_park import SizedPark, size_job
from tonnage.sizing.devices import Machine
from tonnage.workload.jobs import BatchJob, Buy, Constraints, Lengths, Requests, Team, Workload
from tonnage.workload.known import find_model

from .conftest import AS_OF

CATALOG, GROUNDS = load_catalog(), Grounds.packaged()
H100 = Machine(
    accelerator=CATALOG.accelerator("H100-SXM"), count=1, intra=None, network_gb_per_s=None, network_latency_us=40.0
)
LONG = Requests(input_tokens=Lengths(mean=1000, maximum=1000), output_tokens=Lengths(mean=1000, maximum=1000))
BATCH = BatchJob(model=find_model("llama-3.1-8b"), requests=LONG, items=10_000, weights="bf16")


@pytest.mark.parametrize("engine", ["pytorch", "onnxruntime", "tensorrt"])
def test_a_fixed_batch_by_default_is_what_the_memory_holds_at_full_length(engine: str) -> None:
    """2,000 tokens of 131,072 bytes a request: the cache shown is that of the batch shown, the margin stays free, one
    request more would take of it, and stating the batch plans the same."""
    job = replace(BATCH, engine=engine)
    run = size_batch(job, [H100], Constraints(), GROUNDS).detail(0)
    batch = int(dict(run.layout_fields)["concurrency"])
    each = 2000 * 131_072 / 2**30
    assert dict(run.memory_parts_gib)["kv cache"] == pytest.approx(batch * each)
    assert run.memory_gib is not None
    free = run.memory_available_gib - run.memory_gib.value
    margin = GROUNDS.assumed.memory_margin_fraction * run.memory_available_gib
    assert margin <= free < margin + each
    stated = size_batch(replace(job, batch=batch), [H100], Constraints(), GROUNDS).detail(0)
    assert stated.memory_gib == run.memory_gib


def test_a_fixed_batch_counts_its_longest_request() -> None:
    """Requests of the same mean and twice the longest length leave half the places."""

    def batch(longest: int) -> int:
        lengths = Lengths(mean=500, maximum=longest)
        job = replace(BATCH, engine="pytorch", requests=Requests(input_tokens=lengths, output_tokens=lengths))
        return int(dict(size_batch(job, [H100], Constraints(), GROUNDS).detail(0).layout_fields)["concurrency"])

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


def sized_on(job: BatchJob, device: str) -> SizedPark:
    """The job on all instance types with that device."""
    work = Workload(name="batch", kind="batch", job=job, constraints=Constraints(), buy=Buy(), team=Team(), as_of=AS_OF)
    instances = [one for one in CATALOG.instance_types if one.accelerator == device and one.accelerator_count in (1, 8)]
    assert instances
    return size_job(work, CATALOG, instances, GROUNDS)


@pytest.mark.parametrize("engine", ["tensorrt-llm", "tensorrt", "lmdeploy"])
def test_engines_of_nvidia_devices_are_refused_on_others(engine: str) -> None:
    """On MI300X the miss says whose devices the engine runs on and names one that runs there, which is then planned."""
    job = replace(BATCH, engine=engine)
    found = sized_on(job, "MI300X")
    assert not len(found.sized.machine)
    for miss in found.unsized.values():
        assert miss.binding == "hardware"
        assert "NVIDIA devices only" in miss.needs
        assert "vllm" in miss.flips_when
        assert "sglang" in miss.flips_when
    for runs in ("vllm", "sglang"):
        assert len(sized_on(replace(job, engine=runs), "MI300X").sized.machine)
    assert len(sized_on(job, "H100-SXM").sized.machine)
