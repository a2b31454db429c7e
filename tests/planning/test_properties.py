"""Properties over generated workloads: no traceback, no nonsense, and orders that must hold."""

from __future__ import annotations

import math
import os
from dataclasses import replace
from decimal import Decimal
from functools import lru_cache

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tonnage.catalog import Catalog, load_catalog
from tonnage.planning import Plan, make_plan
from tonnage.planning.plan import MachineOption
from tonnage.sizing.estimates import Figure
from tonnage.workload.jobs import (
    BatchJob,
    BuyTerms,
    Constraints,
    Job,
    Lengths,
    Requests,
    ServeJob,
    TabularJob,
    Team,
    TrainJob,
    Workload,
)
from tonnage.workload.known import find_model

from .conftest import AS_OF

MODELS = (
    "bert-base-uncased",
    "gpt2",
    "llama-2-7b",
    "llama-65b",
    "mixtral-8x7b-v0.1",
    "t5-base",
    "vit-base-patch16-224",
    "resnet-50",
)
EXAMPLES = int(os.environ.get("TONNAGE_EXAMPLES", "12"))  # `make test-slow` tries more
SMALL = settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@lru_cache
def small_catalog() -> Catalog:
    """Every 25th offer: enough variety, fast enough to plan hundreds of times."""
    catalog = load_catalog()
    return replace(catalog, offers=catalog.offers[::25])


lengths = st.integers(1, 4096).flatmap(
    lambda longest: st.floats(1, longest).map(lambda mean: Lengths(mean=mean, maximum=longest))
)
models = st.sampled_from(MODELS).map(find_model)
train_jobs = st.builds(
    TrainJob,
    model=models,
    samples=st.integers(1, 10**9),
    lengths=lengths,
    epochs=st.floats(0.01, 100),
    global_batch=st.integers(1, 4096),
    method=st.sampled_from(["full", "lora", "qlora"]),
    precision=st.sampled_from(["auto", "fp32", "tf32", "fp16", "bf16", "bf16-true", "fp8"]),
    optimizer=st.sampled_from(["adamw", "adamw-8bit", "sgd", "adafactor"]),
    attention=st.sampled_from(["eager", "sdpa", "flash"]),
    recompute=st.sampled_from([None, "none", "selective", "full"]),
    micro_batch=st.sampled_from([None, 1, 3, 8]),
).filter(lambda job: job.method == "full" or job.model.architecture != "convolution")
requests = st.builds(Requests, input_tokens=lengths, output_tokens=lengths)
inference = {
    "requests": requests,
    "weights": st.sampled_from(["fp32", "fp16", "bf16", "fp8", "int8", "int4"]),
}
serve_jobs = st.builds(
    ServeJob, model=models, rate_per_s=st.floats(0.001, 1e5), p95_latency_s=st.sampled_from([None, 0.05, 2.0, 60.0]),
    spare_replicas=st.integers(0, 2), **inference,
)  # fmt: skip
batch_jobs = st.builds(BatchJob, model=models, items=st.integers(1, 10**9), **inference)
tabular_jobs = st.builds(
    TabularJob, rows=st.integers(1, 10**9), features=st.integers(1, 10**4),
    method=st.sampled_from(["boosted-trees", "mlp"]),
)  # fmt: skip
constraints = st.builds(
    Constraints,
    deadline_s=st.sampled_from([None, 60.0, 86400.0]),
    budget_usd=st.sampled_from([None, 0.01, 100.0]),
    max_gpus=st.sampled_from([None, 1, 16]),
    max_nodes=st.sampled_from([1, 4]),
    interruptible=st.booleans(),
)


def workload(job: Job, limits: Constraints) -> Workload:
    return Workload(name="w", job=job, constraints=limits, buy=BuyTerms(), team=Team(), as_of=AS_OF)


workloads = st.builds(workload, st.one_of(train_jobs, serve_jobs, batch_jobs, tabular_jobs), constraints)


def figures(plan: Plan) -> list[Figure]:
    found = [figure for _, figure, _ in plan.need.figures]
    for option in plan.options:
        found += [figure for figure in (option.cost_usd, option.time_s) if figure]
        if isinstance(option, MachineOption):  # tokens are bought without a machine
            found += [option.run.memory_gib, *(rate for _, rate in option.run.rates)]
            found += [figure for figure in (option.run.time_s, option.run.latency_p95_s) if figure]
    return found


@SMALL
@given(workloads)
def test_no_nonsense(work: Workload) -> None:
    """Any workload gives a plan; every figure is finite, not negative, and inside its own interval."""
    plan = make_plan(work, small_catalog())
    for figure in figures(plan):
        assert all(math.isfinite(x) and x >= 0 for x in (figure.value, figure.low, figure.high))
        assert figure.low <= figure.value * (1 + 1e-9)
        assert figure.value <= figure.high * (1 + 1e-9)
    assert plan.options or plan.refused
    for option in plan.options:
        if isinstance(option, MachineOption):
            assert option.run.memory_gib.value <= option.run.memory_available_gib


@SMALL
@given(st.one_of(train_jobs, serve_jobs, batch_jobs), st.floats(1.0, 4.0))
def test_more_memory_never_makes_a_plan_infeasible(job: Job, factor: float) -> None:
    """With more memory on every device, whatever could be bought before can be bought still."""
    catalog = small_catalog()
    larger = replace(
        catalog,
        accelerators=tuple(
            replace(
                device,
                memory_gib=None if device.memory_gib is None else device.memory_gib * factor,
                usable_memory_gib=None if device.usable_memory_gib is None else device.usable_memory_gib * factor,
            )
            for device in catalog.accelerators
        ),
    )
    before, after = (make_plan(workload(job, Constraints(max_nodes=2)), one) for one in (catalog, larger))
    kept = {(o.provider, o.instance_type, o.purchase) for o in after.options}
    assert {(o.provider, o.instance_type, o.purchase) for o in before.options} <= kept


@SMALL
@given(st.one_of(train_jobs, serve_jobs, batch_jobs), st.integers(0, 10**6), st.floats(0.05, 0.999))
def test_a_cheaper_offer_never_ranks_lower(job: Job, pick: int, factor: float) -> None:
    """Lowering one offer's price never gives its machine a worse rank."""
    catalog = small_catalog()
    work = workload(job, Constraints(max_nodes=2, trust="any"))  # a price far below its like is not relied on
    before = make_plan(work, catalog)
    if not before.options:
        return
    chosen = before.options[pick % len(before.options)]
    key = (chosen.provider, chosen.instance_type, chosen.region, chosen.purchase)
    offers = tuple(
        replace(o, usd_per_instance_hour=o.usd_per_instance_hour * Decimal(repr(factor)))
        if (o.provider, o.instance_type, o.region, o.purchase) == key
        else o
        for o in catalog.offers
    )
    after = make_plan(work, replace(catalog, offers=offers))
    rank = next(o.rank for o in after.options if (o.provider, o.instance_type, o.purchase) == (key[0], key[1], key[3]))
    assert rank <= chosen.rank
