"""What is shown beside the cheapest way stands on prices that are relied on, as the cheapest way does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

from tonnage.catalog import Catalog
from tonnage.comparison.comparing import compare
from tonnage.comparison.request import CompareRequest
from tonnage.planning import Option, Plan
from tonnage.planning.reasons.risks import UndatedPriceRisk
from tonnage.sizing.estimates import Figure
from tonnage.workload.jobs import Workload


def with_a_doubted_twin(option: Option) -> tuple[Option, Option]:
    """The option at a dated price, and one that is faster, on more GPUs, for less money, at a price without a date."""
    sure = replace(option, risks=())
    doubted = replace(
        sure, rank=2, instance_type="p5.48xlarge", gpu="H100-SXM", gpu_count=8.0, purchase="spot",
        time_s=Figure(value=36.0, low=30.0, high=40.0),
        cost_usd=Figure(value=1.0, low=1.0, high=1.0), risks=(UndatedPriceRisk(),),
    )  # fmt: skip
    return sure, doubted


def test_a_doubted_price_is_no_choice(
    catalog: Catalog,
    workloads: dict[str, Workload],
    ask: Callable[..., CompareRequest],
    planned: Callable[[Workload, Catalog], Plan],
) -> None:
    """Neither the fastest way, nor the front, nor a way of buying, nor a number of GPUs is taken from it."""

    def planner(workload: Workload, offered: Catalog) -> Plan:
        plan = planned(workload, offered)
        return replace(plan, options=with_a_doubted_twin(plan.options[0]))

    found = compare(ask(), [workloads["tune.yaml"]], catalog, planner, as_of=datetime(2026, 11, 20, tzinfo=UTC))
    [row] = found.totals["self-managed-aws"].rows
    shown = [row.option, row.fastest, *row.front, *row.purchases, *row.by_devices.values()]
    assert {one.gpu for one in shown if one is not None} == {"T4"}
    assert row.options == 2, "it is counted all the same"
