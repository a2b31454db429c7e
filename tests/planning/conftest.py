"""A catalog and workloads for the planning tests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from tonnage.catalog import Catalog, load_catalog
from tonnage.workload.jobs import NO_LIMIT, BuyTerms, Constraints, Lengths, Requests, ServeJob, Team, TrainJob, Workload
from tonnage.workload.known import find_model

AS_OF = datetime(2026, 11, 20, tzinfo=UTC)


@pytest.fixture(scope="session")
def catalog() -> Catalog:
    return load_catalog()


def offers_of(whole: Catalog, *gpus: str) -> Catalog:
    """A catalog with the offers of these GPUs alone: each plan takes a fraction of the time."""
    found = {(one.provider, one.name) for one in whole.instance_types if one.accelerator in gpus}
    return replace(whole, offers=tuple(one for one in whole.offers if (one.provider, one.instance_type) in found))


def train(model: str = "bert-base-uncased", **changes: Any) -> Workload:
    """A fine-tune; `changes` go to the job, but `constraints` and `buy` to the workload."""
    constraints, buy = changes.pop("constraints", Constraints()), changes.pop("buy", BuyTerms())
    job = TrainJob(
        model=find_model(model),
        samples=67_000,
        lengths=Lengths(mean=64, maximum=128),
        epochs=3,
        global_batch=32,
    )
    return Workload(
        name="job",
        job=replace(job, **changes),
        constraints=constraints,
        buy=buy,
        team=Team(),
        as_of=AS_OF,
    )


def serve(model: str = "llama-2-7b", **changes: Any) -> Workload:
    """A service; the same."""
    constraints, buy = changes.pop("constraints", Constraints(max_nodes=NO_LIMIT)), changes.pop("buy", BuyTerms())
    job = ServeJob(
        model=find_model(model),
        requests=Requests(input_tokens=Lengths(mean=200, maximum=400), output_tokens=Lengths(mean=50, maximum=100)),
        rate_per_s=20.0,
        p95_latency_s=5.0,
    )
    return Workload(
        name="service", job=replace(job, **changes), constraints=constraints, buy=buy, team=Team(),
        as_of=AS_OF,
    )  # fmt: skip


@pytest.fixture
def make_train() -> Callable[..., Workload]:
    return train


@pytest.fixture
def make_serve() -> Callable[..., Workload]:
    return serve
