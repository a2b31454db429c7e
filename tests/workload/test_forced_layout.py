"""A layout that the user fixes: read from text and from the file, and refused with the limit that it breaks."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from tonnage.errors import InputError, WorkloadError
from tonnage.workload.file.layout_fields import TrainLayoutFields
from tonnage.workload.forced_layout import SHORT, force_layout, parse_layout
from tonnage.workload.jobs import BatchJob, TrainJob, Workload
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
    text = "nodes=2,gpus=16,dp=4,tp=2,pp=2,cp=1,sharding=zero3,recompute=full,mb=4,accumulation=4"
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
    """Every short form stands for a key of a training layout."""
    assert set(SHORT.values()) <= set(TrainLayoutFields.model_fields)


IMPOSSIBLE = [  # text, the key, what the error says
    ("mb=0", "micro_batch", "found 0"),
    ("tp=-2", "tensor_parallel", "found -2"),
    ("tp=5", "tensor_parallel", "does not divide the 12 heads"),
    ("pp=13", "pipeline_parallel", "more stages than"),
    ("gpus=8,dp=4,tp=4", "gpus", "data_parallel 4 x tensor_parallel 4 takes 16"),
    ("gpus=8,dp=2,tp=2,pp=1,cp=1", "gpus", "takes 4"),
    ("gpus=9,nodes=2", "gpus", "does not divide over 2 nodes"),
    ("dp=3", "data_parallel", "does not divide the global batch (64)"),
    ("mb=128", "micro_batch", "does not divide the global batch (64)"),
    ("dp=8,mb=4,accumulation=1", "accumulation", "is 32 samples, which is not the global batch (64)"),
    ("dp=1,sharding=zero3", "sharding", "nothing to share"),
    ("sharding=zero9", "sharding", "expected one of"),
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
