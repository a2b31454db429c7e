"""What money alone does not get at once: a risk of the offers it is of, with how far ahead."""

from __future__ import annotations

from dataclasses import replace

from tonnage.api import load_workload
from tonnage.catalog import Catalog
from tonnage.planning import make_plan
from tonnage.planning.plan import Option
from tonnage.planning.reasons.risks import CapacityRisk
from tonnage.reports.reasons.risks import risk_words
from tonnage.workload.quotas import Quota

WORK = """
kind: train
model: bert-base-uncased
data: {samples: 67_000, seq_len: 128, epochs: 3}
constraints: {providers: [aws, gcp], gpus: [H100-SXM, H200, B200, V100-16GB], deadline: 24h}
"""


def capacity(option: Option) -> list[CapacityRisk]:
    return [risk for risk in option.risks if isinstance(risk, CapacityRisk)]


def test_capacity_blocks_and_reservations_are_risks_of_on_demand(catalog: Catalog) -> None:
    """P5 on demand says so with its days; a smaller machine of the same GPU and other ways to buy do not."""
    options = make_plan(load_workload(WORK, catalog=catalog), catalog).options
    found = {
        one.instance_type: capacity(one) for one in options if one.purchase == "on_demand" and one.platform == "vm"
    }
    assert [(risk.way, risk.lead_days, risk.longest_days) for risk in found["p5.48xlarge"]] == [
        ("capacity block", 56, 182)
    ]
    assert [risk.way for risk in found["a3-megagpu-8g"]] == ["future reservation"]
    assert found["p3.2xlarge"] == []
    assert "booked up to 56 days ahead, for 182 days at most" in risk_words(found["p5.48xlarge"][0])


def test_a_quota_is_a_risk_where_the_deadline_leaves_no_time_for_it(catalog: Catalog) -> None:
    """P on spot with a day to go: a risk; with a week, or with a stated quota, none."""
    workload = load_workload(WORK, catalog=catalog)
    later = replace(workload, constraints=replace(workload.constraints, deadline_s=14 * 86_400.0))
    own = Quota(provider="aws", name="P", limit=400, unit="vCPU", families=("p3",))
    stated = replace(workload, constraints=replace(workload.constraints, quotas=(own,)))
    ways = []
    for one in (workload, later, stated):
        options = make_plan(one, catalog).options
        spot = [option for option in options if (option.instance_type, option.purchase) == ("p3.2xlarge", "spot")]
        assert spot
        ways.append({risk.way for option in spot for risk in capacity(option)})
    assert ways == [{"quota"}, set(), set()]
