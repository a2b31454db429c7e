"""A layout that the user fixes: read from text and from the file, and refused with the limit that it breaks."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from tonnage.errors import InputError, WorkloadError
from tonnage.workload.file.layout_fields import ServingLayoutFields, TrainLayoutFields
from tonnage.workload.forced_layout import SHORT, force_layout, parse_layout
from tonnage.workload.jobs import BatchJob, ServeJob, TrainJob, Workload
from tonnage.workload.loading import parse_workload

AS_OF = datetime(2026, 11, 20, tzinfo=UTC)
TRAIN = """\
kind: train
model: bert-base-uncased
data: {samples: 1000, seq_len: 128}
train: {global_batch: 64}
"""
BATCH = "kind: batch\nmodel: gpt2\nbatch: {items: 10, input_tokens: 64, output_tokens: 16}\n"


def read(text: str) -> Workload:
    return parse_workload(text, file="bad.yaml", folder=None, as_of=AS_OF)


def test_text_and_file_say_the_same() -> None:
    """The keys of `layout:` and of `--layout` land in the same fields of the job."""
    text = "nodes=2,gpus=16,dp=4,tp=2,pp=2,vp=3,cp=1,sharding=zero3,recompute=full,mb=4,accumulation=4"
    stated = parse_layout(text, TrainLayoutFields)
    assert set(stated) == set(TrainLayoutFields.model_fields)
    keys = "".join(f"  {name}: {value}\n" for name, value in stated.items())
    assert read(f"{TRAIN}layout:\n{keys}").job == force_layout(read(TRAIN), text).job


def test_text_goes_before_the_file() -> None:
    """What the text names replaces the file's; what it leaves out stays."""
    work = force_layout(read(f"{TRAIN}layout: {{data_parallel: 2, micro_batch: 8}}\n"), "mb=16")
    assert isinstance(work.job, TrainJob)
    assert (work.job.data_parallel, work.job.micro_batch) == (2, 16)


def test_serving_keys_are_read() -> None:
    """A batch of requests has keys of its own in the same grammar."""
    work = force_layout(read(BATCH), "tp=2,replicas=3,concurrency=7")
    assert isinstance(work.job, BatchJob)
    assert (work.job.tensor_parallel, work.job.replicas, work.job.concurrency) == (2, 3, 7)


def test_short_forms_name_real_keys() -> None:
    """Every short form stands for a key of a layout, of training or of serving."""
    assert set(SHORT.values()) <= {*TrainLayoutFields.model_fields, *ServingLayoutFields.model_fields}


IMPOSSIBLE = [  # text, the key, what the error says
    ("mb=0", "micro_batch", "found 0"),
    ("tp=-2", "tensor_parallel", "found -2"),
    ("tp=5", "tensor_parallel", "does not divide the 12 heads"),
    ("pp=13", "pipeline_parallel", "more stages than"),
    ("vp=2", "virtual_stages", "no pipeline to interleave"),
    ("pp=3,vp=3", "virtual_stages", "do not divide the 12 layers"),
    ("pp=2,vp=3,accumulation=1", "accumulation", "interleaved stages do not divide"),
    ("gpus=8,dp=4,tp=4", "gpus", "data_parallel 4 x tensor_parallel 4 takes 16"),
    ("gpus=8,dp=2,tp=2,pp=1,cp=1", "gpus", "takes 4"),
    ("gpus=9,nodes=2", "gpus", "does not divide over 2 nodes"),
    ("dp=3", "data_parallel", "does not divide the global batch (64)"),
    ("mb=128", "micro_batch", "does not divide the global batch (64)"),
    ("dp=8,mb=4,accumulation=1", "accumulation", "is 32 samples, which is not the global batch (64)"),
    ("dp=1,sharding=zero3", "sharding", "nothing to share"),
    ("sharding=zero9", "sharding", "expected one of"),
    ("tp=2.5", "tensor_parallel", "expected a whole number"),
    ("micro_batch=1e9", "micro_batch", "expected at most 1,000,000"),
    ("recompute=some", "recompute", "expected one of"),
]


@pytest.mark.parametrize(("text", "key", "said"), IMPOSSIBLE)
def test_impossible_text_names_the_limit(text: str, key: str, said: str) -> None:
    """A layout that cannot be is refused with the key and the limit it breaks."""
    with pytest.raises(InputError) as caught:
        force_layout(read(TRAIN), text)
    assert caught.value.message.startswith(f"--layout: {key}: ")
    assert said in caught.value.message


@pytest.mark.parametrize(("text", "key", "said"), IMPOSSIBLE)
def test_impossible_file_names_line_and_key(text: str, key: str, said: str) -> None:
    """The same in a file, with the line and the key."""
    stated = parse_layout(text, TrainLayoutFields)
    keys = "".join(f"  {name}: {value}\n" for name, value in stated.items())
    with pytest.raises(WorkloadError) as caught:
        read(f"{TRAIN}layout:\n{keys}")
    assert (caught.value.key, caught.value.line) == (f"layout.{key}", 6 + list(stated).index(key))
    assert said in caught.value.message


@pytest.mark.parametrize("text", ["", " , ", "tp", "tp=", "tensor=2", "tp=2,tensor_parallel=2", "tp=two"])
def test_text_that_is_no_layout(text: str) -> None:
    """What is no list of key=value is refused with an example or the known keys."""
    with pytest.raises(InputError, match="--layout: "):
        force_layout(read(TRAIN), text)


OTHER_LIMITS: list[tuple[str, dict[str, Any]]] = [
    ("train: {global_batch: 64, micro_batch: 4}\nlayout: {micro_batch: 8}\n", {"key": "layout.micro_batch"}),
    ("constraints: {max_gpus: 4}\nlayout: {tensor_parallel: 2, data_parallel: 4}\n", {"key": "layout.tensor_parallel"}),
    ("constraints: {max_nodes: 2}\nlayout: {nodes: 4}\n", {"key": "layout.nodes"}),
    ("train: {global_batch: 64, tensor_parallel: 4}\nlayout: {gpus: 6}\n", {"key": "layout.gpus"}),
]


@pytest.mark.parametrize(("keys", "expected"), OTHER_LIMITS)
def test_layout_against_the_other_keys(keys: str, expected: dict[str, Any]) -> None:
    """A layout that contradicts `train` or `constraints` is refused at its own key."""
    kept = "\n".join(line for line in TRAIN.splitlines() if not ("train:" in line and "train:" in keys)) + "\n"
    with pytest.raises(WorkloadError) as caught:
        read(kept + keys)
    assert caught.value.key == expected["key"]


SERVE = """\
kind: serve
model: {model}
serve: {{rate_per_s: 5, input_tokens: 200, output_tokens: 100, {more}}}
"""
MIXTURE, DENSE = "qwen3-30b-a3b", "llama-3.1-8b"
IMPOSSIBLE_SERVING = [  # model, more of the job, text, key, what the error says
    (DENSE, "engine: vllm", "tp=2,ep=2", "expert_parallel", "has no experts"),
    (DENSE, "engine: vllm", "tp=2,dp_attention=2", "attention_data_parallel", "has no experts"),
    (MIXTURE, "engine: vllm", "tp=4,ep=2", "expert_parallel", "vllm takes 1 or 4"),
    (MIXTURE, "engine: sglang", "tp=4,ep=3", "expert_parallel", "sglang takes 1 or a divisor"),
    (MIXTURE, "engine: tensorrt-llm", "tp=4,dp_attention=2", "attention_data_parallel", "takes 1 or 4"),
    (MIXTURE, "engine: tgi", "tp=4,ep=4", "expert_parallel", "which tgi does not run"),
    (MIXTURE, "engine: vllm", "batch=8,tp=4,ep=4", "expert_parallel", "a fixed batch does not run"),
    (DENSE, "engine: vllm", "prefill=2", "prefill_replicas", "needs decode_replicas"),
    (DENSE, "engine: tgi", "prefill=1,decode=1", "prefill_replicas", "tgi does not hand"),
    (DENSE, "engine: vllm", "prefill=1,decode=1,replicas=2", "replicas", "copies that both read and write"),
    (DENSE, "p95_latency: 20s", "prefill=1,decode=1", "prefill_replicas", "p95_latency spans both"),
    (DENSE, "engine: vllm", "batch=8,concurrency=4", "concurrency", "beside batch 8"),
]


@pytest.mark.parametrize(("model", "more", "text", "key", "said"), IMPOSSIBLE_SERVING)
def test_a_serving_layout_that_cannot_be_is_refused_with_its_limit(
    model: str, more: str, text: str, key: str, said: str
) -> None:
    """What an engine or a model does not do is refused in `--layout`, by key and limit."""
    with pytest.raises(InputError) as caught:
        force_layout(read(SERVE.format(model=model, more=more)), text)
    assert key in str(caught.value)
    assert said in str(caught.value)


def test_degrees_of_experts_and_pools_are_read() -> None:
    """`ep`, `dp_attention`, `prefill` and `decode` land in the job."""
    work = force_layout(read(SERVE.format(model=MIXTURE, more="engine: sglang")), "tp=8,ep=8,dp_attention=8")
    assert isinstance(work.job, ServeJob)
    assert (work.job.tensor_parallel, work.job.expert_parallel, work.job.attention_data_parallel) == (8, 8, 8)
    pools = force_layout(read(SERVE.format(model=DENSE, more="engine: vllm")), "prefill=2,decode=6").job
    assert isinstance(pools, ServeJob)
    assert (pools.prefill_replicas, pools.decode_replicas) == (2, 6)


def test_half_a_degree_names_the_whole_ones() -> None:
    """`tp=2.5` was told to write 2.5."""
    with pytest.raises(InputError) as caught:
        force_layout(read(TRAIN), "tp=2.5")
    assert caught.value.hint == "write 2 or 3"


def test_requests_in_flight_mean_nothing_to_a_model_that_answers_in_one_pass() -> None:
    """`concurrency` of an encoder was ignored; it is refused, and `batch` named."""
    encoder = "kind: serve\nmodel: bert-base-uncased\nserve: {rate_per_s: 5, input_tokens: 64, p95_latency: 1s}\n"
    with pytest.raises(InputError, match="answers in one pass") as caught:
        force_layout(read(encoder), "concurrency=8")
    assert caught.value.hint == "batch: 8"
