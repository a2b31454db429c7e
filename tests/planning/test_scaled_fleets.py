"""A service whose traffic is stated: its machines come and go where that is cheaper, and never cost more."""

from __future__ import annotations

import pytest

from tonnage.api import load_workload
from tonnage.catalog import Catalog
from tonnage.planning import make_plan
from tonnage.planning.plan import MachineOption, Plan
from tonnage.planning.reasons.notes import FixedFleetNote, ScaledFleetNote

WORK = """
kind: serve
model: llama-7b
serve:
  rate_per_s: 100
  input_tokens: {mean: 150, max: 384}
  output_tokens: {mean: 8, max: 16}
  p95_latency: 500ms
  weights: fp16
  spare_replicas: 1
  TRAFFIC
constraints: {gpus: [A100-80GB-PCIe, L40S], providers: [aws, runpod]}
BUY
"""

NOTES = ScaledFleetNote | FixedFleetNote


def planned(catalog: Catalog, traffic: str = "", buy: str = "") -> Plan:
    return make_plan(load_workload(WORK.replace("TRAFFIC", traffic).replace("BUY", buy), catalog=catalog), catalog)


def machines(plan: Plan) -> dict[tuple[str, ...], MachineOption]:
    return {
        (one.provider, one.instance_type, one.purchase, one.platform): one
        for one in plan.options
        if isinstance(one, MachineOption)
    }


def test_machines_that_follow_the_traffic_are_priced_by_their_hours(catalog: Catalog) -> None:
    fixed, followed = (machines(planned(catalog, traffic)) for traffic in ("", "traffic: {peak_to_trough: 10}"))
    scaled = {key: note for key, one in followed.items() for note in one.run.notes if isinstance(note, ScaledFleetNote)}
    assert scaled
    for key, note in scaled.items():
        option, hours = followed[key], followed[key].ledger.lines[0].quantity
        assert option.count == note.fixed_machines == fixed[key].count
        assert 1 <= note.least_machines < note.most_machines <= option.count
        assert note.machine_hours_per_day < note.fixed_machine_hours_per_day
        assert float(hours) == pytest.approx(note.machine_hours_per_day * 730.0 / 24.0)
        assert option.cost_usd.value < fixed[key].cost_usd.value
        assert note.kept_fraction >= 0.99


def test_every_fleet_that_may_follow_the_traffic_is_simulated(catalog: Catalog) -> None:
    text = WORK.replace("TRAFFIC", "traffic: {peak_to_trough: 10}").replace("BUY", "")
    text = text.replace(
        "{gpus: [A100-80GB-PCIe, L40S], providers: [aws, runpod]}", "{gpus: 24GB.., providers: [runpod]}"
    )
    options = machines(make_plan(load_workload(text, catalog=catalog), catalog))
    fleets = [one for one in options.values() if one.count > 2 and one.purchase == "on_demand"]
    unknown = [one.instance_type for one in fleets if not any(isinstance(note, NOTES) for note in one.run.notes)]
    assert len({one.count for one in fleets}) > 3
    assert not unknown


def test_no_option_is_dearer_than_with_a_fixed_fleet(catalog: Catalog) -> None:
    fixed = machines(planned(catalog))
    for traffic in ("{peak_to_trough: 3}", f"{{hourly: {[1] * 23 + [100]}}}"):
        for key, one in machines(planned(catalog, f"traffic: {traffic}")).items():
            assert one.cost_usd.value <= fixed[key].cost_usd.value * (1 + 1e-9)


def test_a_steady_rate_keeps_its_machines_and_says_so(catalog: Catalog) -> None:
    best = planned(catalog, "traffic: {peak_to_trough: 1}").options[0]
    assert isinstance(best, MachineOption)
    assert not any(isinstance(note, ScaledFleetNote) for note in best.run.notes)


def test_reserved_machines_are_paid_all_month(catalog: Catalog) -> None:
    buy = "buy: {purchases: [reserved_1y]}"
    fixed, followed = (planned(catalog, traffic, buy) for traffic in ("", "traffic: {peak_to_trough: 10}"))
    assert [one.cost_usd for one in fixed.options] == [one.cost_usd for one in followed.options]


def test_replicas_that_are_fixed_stay(catalog: Catalog) -> None:
    text = WORK.replace("TRAFFIC", "traffic: {peak_to_trough: 10}").replace("BUY", "layout: {replicas: 5}")
    plan = make_plan(load_workload(text, catalog=catalog), catalog)
    notes = [note for one in machines(plan).values() for note in one.run.notes]
    assert plan.options
    assert not any(isinstance(note, ScaledFleetNote | FixedFleetNote) for note in notes)
