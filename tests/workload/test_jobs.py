"""What a job of any kind answers: its kind, whether it ends, what it promises, itself in fp16."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, get_args

import pytest

from tonnage.errors import InputError
from tonnage.workload.jobs import Job, Kind, Workload
from tonnage.workload.loading import parse_workload

FILES: dict[Kind, str] = {
    "train": "model: bert-base-uncased\ndata: {samples: 1000, seq_len: 128}\ntrain: {global_batch: 64}\n",
    "serve": "model: gpt2\nserve: {rate_per_s: 2, input_tokens: 64, output_tokens: 16, p95_latency: 2 s, p95_ttft: 1 s,"
    " hours_per_month: 100}\n",
    "batch": "model: gpt2\nbatch: {items: 10, input_tokens: 64, output_tokens: 16}\n",
    "tabular": "tabular: {rows: 100, features: 2}\n",
}


def read(kind: Kind) -> Workload:
    as_of = datetime(2026, 11, 20, tzinfo=UTC)
    return parse_workload(f"kind: {kind}\n{FILES[kind]}", file="one.yaml", folder=None, as_of=as_of)


def test_every_kind_of_a_file_is_one_of_the_job() -> None:
    """The key of the file, the class of the job and the names of the union are the same list."""
    assert {kind: read(kind).kind for kind in FILES} == {kind: kind for kind in get_args(Kind)}
    assert {type(read(kind).job) for kind in FILES} == set(get_args(Job))


def test_a_service_alone_has_no_end_and_promises() -> None:
    """Promised latencies that are stated, in seconds; a month's requests on its bill, a batch's items on its own."""
    assert [kind for kind in FILES if read(kind).is_service] == ["serve"]
    assert {kind: read(kind).job.promises for kind in FILES if kind != "serve"} == {
        "train": {}, "batch": {}, "tabular": {},
    }  # fmt: skip
    assert read("serve").job.promises == {"latency": 2.0, "ttft": 1.0}
    assert read("serve").service.requests_per_bill == 2 * 100 * 3600
    assert read("batch").batch.requests_per_bill == 10


@pytest.mark.parametrize(("kind", "changed"), [("train", "precision"), ("serve", "weights"), ("batch", "weights")])
def test_in_fp16(kind: Kind, changed: str) -> None:
    """One field is another: the arithmetic of a training run, the weights of what answers."""
    stated: Any = read(kind).job
    job = replace(stated, **{changed: "fp32" if kind == "train" else "int8"})
    assert job.in_fp16() == replace(job, **{changed: "fp16"})


def test_another_kind_is_named() -> None:
    """Who asks for a service and has a table is told of which kind it is."""
    with pytest.raises(InputError, match="of kind tabular, not a service"):
        _ = read("tabular").service
    with pytest.raises(InputError, match="of kind train, not a batch"):
        _ = read("train").batch
