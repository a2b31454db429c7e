"""One rule of trust for the price of a machine, wherever it is sold: a doubted fee is no reason to take a doubted
machine price under it."""

from __future__ import annotations

import pytest
from tests.planning.conftest import offers_of, train

from tonnage.catalog import Catalog
from tonnage.catalog.market import Platform
from tonnage.planning import Plan, make_plan
from tonnage.planning.plan import PriceTrusted
from tonnage.workload.jobs import Constraints, Trust


def planned(catalog: Catalog, platform: Platform, trust: Trust = "dated") -> Plan:
    """BERT on a T4 of AWS, whose spot price has no date and whose on-demand price has one."""
    limits = Constraints(platforms=(platform,), providers=("aws",), trust=trust)
    return make_plan(train(constraints=limits), offers_of(catalog, "T4"))


@pytest.mark.parametrize("platform", ["vm", "databricks", "sagemaker"])
def test_the_machine_under_a_fee_is_bought_as_it_is_without(catalog: Catalog, platform: Platform) -> None:
    """The fees of both platforms are old; still the best there stands on the dated on-demand price, as the plain
    machine does, and the undated spot price is named beside it."""
    plan = planned(catalog, platform)
    assert plan.best is not None
    assert plan.best.purchase == "on_demand"
    assert plan.best.doubt_level == (0 if platform == "vm" else 1)
    assert all(one.doubt_level == plan.best.doubt_level for one in plan.choices)
    [trusted] = [one for one in plan.cheaper if isinstance(one, PriceTrusted)]
    assert trusted.option.purchase == "spot"
    assert trusted.saves_usd > 0


@pytest.mark.parametrize("platform", ["vm", "databricks"])
def test_any_price_may_win_where_so_asked(catalog: Catalog, platform: Platform) -> None:
    """`trust: any` lets the undated one win on each alike."""
    best = planned(catalog, platform, "any").best
    assert best is not None
    assert best.purchase == "spot"
