"""Hosts in plans: where they hold devices up, time, fleet and risk say so; where they do not, nothing changes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tonnage.api import load_workload
from tonnage.catalog import Catalog
from tonnage.planning import make_plan
from tonnage.planning.calibrated_model import CalibratedModel
from tonnage.planning.layouts.train_sizing import WAITS
from tonnage.planning.plan import Option, Plan
from tonnage.planning.reasons.distances import DoubtedDistance
from tonnage.planning.reasons.risks import HostLimitRisk, UnknownHostRisk
from tonnage.planning.sizes import make_size_report
from tonnage.reports.reasons.risks import risk_words
from tonnage.workload.host import HostTerms
from tonnage.workload.jobs import Workload

EXAMPLES = Path(__file__).parents[2] / "examples"
CALIBRATED = CalibratedModel.packaged()
TRAIN = """
kind: train
model: resnet-50
data: {samples: 1_281_167, epochs: 90}
train: {global_batch: 1024, precision: fp16}
constraints: {gpus: [A100-80GB, H100-SXM, T4], max_nodes: 1}
buy: {purchases: [on_demand]}
"""
BATCH = """
kind: batch
model: resnet-50
batch: {items: 50_000_000}
constraints: {gpus: [H100-SXM, T4], max_nodes: 2}
buy: {purchases: [on_demand]}
"""
SERVE = """
kind: serve
model: resnet-50
serve: {rate_per_s: 20_000, p95_latency: 200ms}
constraints: {gpus: [H100-SXM], max_nodes: 64}
buy: {purchases: [on_demand]}
"""


def planned(text: str, catalog: Catalog, **host: object) -> tuple[Workload, Plan]:
    workload = load_workload(text, catalog=catalog)
    workload = replace(workload, host=HostTerms(**host))  # type: ignore[arg-type]
    return workload, make_plan(workload, catalog, calibrated=CALIBRATED)


def limit(option: Option) -> HostLimitRisk | None:
    return next((risk for risk in option.risks if isinstance(risk, HostLimitRisk)), None)


def test_a_training_on_pictures_is_as_fast_as_its_hosts(catalog: Catalog) -> None:
    """Eight H100 on 96 vCPUs wait for JPEGs: the rate is the host's, the step says how long it waits, the risk why."""
    _, plan = planned(TRAIN, catalog)
    one = next(one for one in plan.options if one.instance_type == "Standard_ND96isr_H100_v5")
    risk, host = limit(one), one.run.host
    assert risk is not None
    assert host is not None
    assert host.items_per_s is not None
    rate = dict(one.run.rates)["samples_per_s"]
    assert rate.value == pytest.approx(host.items_per_s.value)
    assert rate.value < host.devices_per_s
    assert one.run.time_s is not None
    assert one.run.time_s.value == pytest.approx(90 * 1_281_167 / rate.value, rel=0.01)
    parts = dict(one.run.time_parts)
    assert sum(parts.values()) == pytest.approx(1024 / rate.value, rel=1e-6)
    assert parts[WAITS] > 0
    assert f"host: JPEG decoding on {risk.vcpus:g} vCPUs" in risk_words(risk)


def test_prepared_input_holds_nothing_up(catalog: Catalog) -> None:
    """With arrays in place of JPEGs the same machines are faster, and no option speaks of hosts."""
    _, raw = planned(TRAIN, catalog)
    _, prepared = planned(TRAIN, catalog, input="prepared")
    slow = {one.identity: one for one in raw.options}
    for one in prepared.options:
        assert one.run.host is None
        assert limit(one) is None
        assert one.time_s is not None
        before = slow.get(one.identity)
        if before is not None and before.time_s is not None:
            assert one.time_s.value <= before.time_s.value * (1 + 1e-9)


def test_more_vcpus_decode_more(catalog: Catalog) -> None:
    """T4 machines with the same device and more vCPUs take no longer; the hosts' rate is proportional to the vCPUs."""
    _, plan = planned(TRAIN, catalog)
    found = [one for one in plan.options if (one.gpu, one.gpu_count, one.provider) == ("T4", 1, "aws")]
    machines = {one.instance_type: (catalog.instance_type(one.instance_type, "aws"), one.run.host) for one in found}
    each = {
        host.items_per_s.value / (machine.vcpus or 0)
        for machine, host in machines.values()
        if host is not None and host.items_per_s is not None and host.stage == "JPEG decoding"
    }
    assert len(machines) > 2
    assert max(each) == pytest.approx(min(each))
    ordered = sorted(found, key=lambda one: machines[one.instance_type][0].vcpus or 0)
    times = [one.time_s.value for one in ordered if one.time_s is not None]
    assert times == sorted(times, reverse=True)


def test_a_batch_of_pictures_is_as_fast_as_its_hosts(catalog: Catalog) -> None:
    """50 million pictures: time is items over the slower rate, at both ends of the interval too."""
    workload, plan = planned(BATCH, catalog)
    bound = [one for one in plan.options if limit(one)]
    assert bound
    for one in bound:
        host, time = one.run.host, one.run.time_s
        assert host is not None
        assert time is not None
        assert host.items_per_s is not None
        assert time.value == pytest.approx(50e6 / host.items_per_s.value)
        assert time.high >= 50e6 / host.items_per_s.low * (1 - 1e-9)
        rows = [row for row in make_size_report(workload, catalog, calibrated=CALIBRATED).rows if row.gpu == one.gpu]
        assert any(row.run.host is not None for row in rows)


def test_a_service_takes_the_machines_that_its_hosts_need(catalog: Catalog) -> None:
    """20,000 pictures a second at 80 % of what hosts decode; what each machine carries is in the option."""
    _, raw = planned(SERVE, catalog)
    _, prepared = planned(SERVE, catalog, input="prepared")
    fewest = {(one.provider, one.instance_type): one.count for one in prepared.options}
    bound = [one for one in raw.options if limit(one)]
    assert bound
    for one in bound:
        host = one.run.host
        assert host is not None
        assert host.items_per_s is not None
        assert host.items_per_s.value * 0.8 >= 20_000 * (1 - 1e-9)
        assert host.items_per_s.value / one.count * (one.count - 1) * 0.8 < 20_000
        assert one.count >= fewest[one.provider, one.instance_type]
        assert one.run.utilisation == pytest.approx(20_000 / host.items_per_s.value)


def test_unknown_vcpus_are_said(catalog: Catalog) -> None:
    """Where the catalog states no vCPUs the devices' rate stands, and the option says how many it takes; devices that
    four a GPU feed say nothing."""
    without = replace(catalog, instance_types=tuple(replace(one, vcpus=None) for one in catalog.instance_types))
    _, plan = planned(TRAIN, without)
    assert plan.options
    for one in plan.options:
        assert one.run.host is not None
        assert one.run.host.items_per_s is None
        said = [risk for risk in one.risks if isinstance(risk, UnknownHostRisk)]
        needed = one.run.host.needed_vcpus / one.count
        assert [risk.needed_vcpus for risk in said] == ([needed] if needed > 4 * one.gpu_count else [])
    assert any(isinstance(risk, UnknownHostRisk) for one in plan.options for risk in one.risks)


def test_a_host_that_nobody_states_wins_only_where_none_is_stated(catalog: Catalog) -> None:
    """Machines whose vCPUs are stated come first, however dear; `trust: any` ranks them by
    cost; and where nobody states any, the cheapest is the best all the same."""
    cheapest = planned(BATCH, catalog)[1].options[0]
    hidden = {(cheapest.provider, cheapest.instance_type)}
    partly = replace(
        catalog,
        instance_types=tuple(
            replace(one, vcpus=None) if (one.provider, one.name) in hidden else one for one in catalog.instance_types
        ),
    )
    workload, plan = planned(BATCH, partly)
    assert plan.options[0].run.host is not None
    assert plan.options[0].run.host.items_per_s is not None
    behind = [one for one in plan.options if (one.provider, one.instance_type) in hidden and one.platform == "vm"]
    assert behind
    assert all(not one.relied_on and not one.price_doubts for one in behind)
    assert min(one.rank for one in behind) > max(one.rank for one in plan.options if one.relied_on)
    ahead = next(one for one in behind if one.cost_usd.value < plan.options[0].cost_usd.value)
    assert isinstance(ahead.loses_by, DoubtedDistance)
    assert ahead.loses_by.host
    trusting = replace(workload, constraints=replace(workload.constraints, trust="any"))
    costs = [one.cost_usd.value for one in make_plan(trusting, partly, calibrated=CALIBRATED).options]
    assert costs == sorted(costs)
    nobody = replace(catalog, instance_types=tuple(replace(one, vcpus=None) for one in catalog.instance_types))
    assert planned(BATCH, nobody)[1].options[0].rank == 1


def test_a_training_on_texts_is_as_before(catalog: Catalog) -> None:
    """Its texts are tokenised before: no machine is told apart by its processors."""
    workload = load_workload(EXAMPLES / "bert-finetune.tonnage.yaml", catalog=catalog)
    assert all(one.run.host is None for one in make_plan(workload, catalog, calibrated=CALIBRATED).options)
