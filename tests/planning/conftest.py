"""A catalog and workloads for the planning tests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from tonnage.catalog import Catalog, load_catalog
from tonnage.catalog.grammar import parse_gpu_filter
from tonnage.planning import Option, Plan
from tonnage.workload.jobs import (
    NO_LIMIT,
    BatchJob,
    BuyTerms,
    Constraints,
    Lengths,
    Requests,
    ServeJob,
    Team,
    TrainJob,
    Workload,
)
from tonnage.workload.known import find_model

AS_OF = datetime(2026, 11, 20, tzinfo=UTC)
Maker = Callable[..., Workload]
T4 = Constraints(gpus=(parse_gpu_filter("T4:1"),), providers=("aws",), regions=("us-east-1",), max_nodes=1)


@pytest.fixture(scope="session")
def catalog() -> Catalog:
    return load_catalog()


def offers_of(whole: Catalog, *gpus: str) -> Catalog:
    """A catalog with the offers of these GPUs alone: each plan takes a fraction of the time."""
    found = {(one.provider, one.name) for one in whole.instance_types if one.accelerator in gpus}
    return replace(whole, offers=tuple(one for one in whole.offers if (one.provider, one.instance_type) in found))


def train(model: str = "bert-base-uncased", **changes: Any) -> Workload:
    """A fine-tune; `changes` go to the job, but `constraints` and `buy` to the workload."""
    job = TrainJob(
        model=find_model(model), samples=67_000, lengths=Lengths(mean=64, maximum=128), epochs=3, global_batch=32
    )
    return _workload("job", job, changes)


def serve(model: str = "llama-2-7b", **changes: Any) -> Workload:
    """A service; the same."""
    job = ServeJob(model=find_model(model), requests=_requests(), rate_per_s=20.0, p95_latency_s=5.0)
    return _workload("service", job, {"constraints": Constraints(max_nodes=NO_LIMIT)} | changes)


def batch(model: str = "llama-3.1-8b", **changes: Any) -> Workload:
    """A million requests of 200 tokens in and 50 out; the same."""
    return _workload("batch", BatchJob(model=find_model(model), requests=_requests(), items=1_000_000), changes)


def pick(plan: Plan, name: str, purchase: str = "on_demand", platform: str = "vm") -> Option:
    """The one option of a plan that is bought so."""
    wanted = (name, purchase, platform)
    [found] = [one for one in plan.options if (one.instance_type, one.purchase, one.platform) == wanted]
    return found


def lines(option: Option) -> dict[str, Any]:
    """The lines of an option's bill, by the first words of what they are for."""
    return {line.what.split(",")[0]: line for line in option.ledger.lines}


def _requests() -> Requests:
    return Requests(input_tokens=Lengths(mean=200, maximum=400), output_tokens=Lengths(mean=50, maximum=100))


def _workload(name: str, job: TrainJob | ServeJob | BatchJob, changes: dict[str, Any]) -> Workload:
    constraints, buy = changes.pop("constraints", Constraints()), changes.pop("buy", BuyTerms())
    job = replace(job, **changes)
    return Workload(name=name, job=job, constraints=constraints, buy=buy, team=Team(), as_of=AS_OF)


@pytest.fixture
def make_train() -> Callable[..., Workload]:
    return train


@pytest.fixture
def make_serve() -> Callable[..., Workload]:
    return serve
