"""The search is exact: what it ranks first is what trying every single combination by itself finds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product

import pytest

from tonnage.catalog import Catalog
from tonnage.planning import make_plan
from tonnage.planning.plan import Objective, Option
from tonnage.workload.jobs import BuyTerms, Constraints, TrainJob, Workload

Maker = Callable[..., Workload]
SHARDINGS = ("ddp", "zero1", "zero2", "zero3")
RECOMPUTE = ("none", "selective", "full")
MICRO_BATCHES = (1, 2, 4, 8, 16, 32)
NODES = (1, 2)
MACHINES = ("g4dn.12xlarge", "p4d.24xlarge")


def every_combination(work: Workload, catalog: Catalog) -> list[Option]:
    """The options of each machine x node count x sharding x recomputation x micro-batch, planned one at a time."""
    assert isinstance(work.job, TrainJob)
    found = []
    for machine in {one.instance_type for one in catalog.offers}:
        alone = replace(catalog, offers=tuple(one for one in catalog.offers if one.instance_type == machine))
        for nodes, sharding, recompute, micro_batch in product(NODES, SHARDINGS, RECOMPUTE, MICRO_BATCHES):
            job = replace(work.job, sharding=sharding, recompute=recompute, micro_batch=micro_batch)
            limits = replace(work.constraints, max_nodes=nodes)
            found += make_plan(replace(work, job=job, constraints=limits), alone).options
    return found


@pytest.mark.parametrize(
    ("model", "objective", "machines"),
    [
        ("bert-base-uncased", "cost", ("p4d.24xlarge",)),
        pytest.param("bert-base-uncased", "cost", MACHINES, marks=pytest.mark.slow),
        pytest.param("gpt2-xl", "time", MACHINES, marks=pytest.mark.slow),
    ],
)
def test_the_winner_is_the_best_of_all_combinations(
    catalog: Catalog, make_train: Maker, model: str, objective: Objective, machines: tuple[str, ...]
) -> None:
    """Machines on demand and on spot, one node or two, all layouts: no combination beats the plan's winner."""
    chosen = [one for one in catalog.offers if one.provider == "aws" and one.region == "us-east-1"]
    small = replace(catalog, offers=tuple(one for one in chosen if one.instance_type in machines))
    assert {one.purchase for one in small.offers} >= {"on_demand", "spot"}
    limits = Constraints(max_nodes=max(NODES), trust="any", accept_risk=("memory",))
    work = make_train(
        model, constraints=limits, buy=BuyTerms(purchases=("on_demand", "spot")), samples=2_000_000, tensor_parallel=1,
        pipeline_parallel=1,
    )  # fmt: skip
    best = make_plan(work, small, objective=objective).best
    assert best is not None
    assert best.time_s is not None
    combinations = every_combination(work, small)
    if objective == "cost":
        assert best.cost_usd.value == min(one.cost_usd.value for one in combinations)
    else:
        assert best.time_s.value == min(one.time_s.value for one in combinations if one.time_s)
