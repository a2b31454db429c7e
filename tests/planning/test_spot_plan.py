"""Spot in plans: the figures of `spot advise`, where the hazard is from, and what an interruption costs a batch."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tonnage.api import load_workload
from tonnage.catalog import Catalog
from tonnage.planning import make_plan
from tonnage.planning.calibrated_model import CalibratedModel
from tonnage.planning.plan import Option
from tonnage.spot_instances import SpotQuestion, advise
from tonnage.spot_instances.saves import state_bytes
from tonnage.workload.jobs import BatchJob, Workload

CALIBRATED = CalibratedModel.packaged()
EXAMPLES = Path(__file__).parents[2] / "examples"
JOBS = sorted(
    path
    for path in EXAMPLES.glob("*.tonnage.yaml")
    if not path.name.startswith("serve") and "sections" not in path.name
)
SHOWN = 1  # of each way to know the hazard


def on_spot(workload: Workload, catalog: Catalog) -> list[Option]:
    """The first few spot machines of each kind of knowledge."""
    plan = make_plan(workload, catalog, calibrated=CALIBRATED)
    found = [one for one in plan.options if one.spot is not None and one.platform == "vm"]
    kinds = dict.fromkeys(one.spot.hazard.known for one in found if one.spot)
    return [one for kind in kinds for one in [o for o in found if o.spot and o.spot.hazard.known == kind][:SHOWN]]


def billed_hours(option: Option) -> float:
    """Hours of one machine on the bill, without what rounding adds."""
    lines = [one for one in option.ledger.lines if one.unit == "instance-hour" and not one.what.startswith("rounded")]
    return float(sum(one.quantity for one in lines)) / option.count


@pytest.mark.parametrize("path", JOBS, ids=lambda path: path.name.split(".")[0])
def test_a_plans_bill_is_that_of_spot_advise(path: Path, catalog: Catalog) -> None:
    """Same work, changeover, save, machines, price and hazard: the same expected bill, clock and interruptions."""
    options = on_spot(load_workload(path, catalog=catalog), catalog)
    assert options
    for option in options:
        spot = option.spot
        assert spot is not None
        question = SpotQuestion(
            work_h=spot.work_h, changeover_h=spot.startup_h, price_ratio=2.0, save_h=spot.save_h, nodes=spot.nodes,
            usd_per_h=option.usd_per_instance_hour, interval_h=spot.interval_h if spot.keeps_items else None,
        )  # fmt: skip
        if path.name.startswith("llama"):  # the file states its interval
            question = replace(question, interval_h=spot.interval_h)
        told = advise(question, spot.hazard.model).chosen
        assert billed_hours(option) == pytest.approx(told.value.billed_h, rel=2e-4, abs=2e-4), option.identity
        assert option.time_s is not None
        if not spot.keeps_items or option.count == 1:  # machines that share a queue wait less
            assert option.time_s.value / 3600 == pytest.approx(told.value.expected_h, rel=1e-6)
        assert spot.preemptions.value == pytest.approx(told.value.preemptions, rel=1e-9)


def test_what_is_not_known_widens_the_interval(catalog: Catalog) -> None:
    """A machine without traces or band has a wider cost interval than the same machine with a stated rate."""
    workload = load_workload(EXAMPLES / "gptj-6b-lora.tonnage.yaml", catalog=catalog)
    far = next(one for one in on_spot(workload, catalog) if one.spot and one.spot.hazard.known == "other machines")
    assert far.spot is not None
    stated = replace(workload, buy=replace(workload.buy, interruptions_per_hour=far.spot.hazard.per_h))
    same = next(
        one for one in make_plan(stated, catalog, calibrated=CALIBRATED).options if one.identity == far.identity
    )
    assert far.cost_usd.high / far.cost_usd.low > 1.2 * same.cost_usd.high / same.cost_usd.low


def test_a_batch_saves_nothing_and_loses_what_is_in_flight(catalog: Catalog) -> None:
    """Answers are kept one by one: no line for saves, and an interruption costs a start-up and what was in flight."""
    workload = load_workload(EXAMPLES / "batch-10k-per-hour.tonnage.yaml", catalog=catalog)
    assert isinstance(workload.job, BatchJob)
    for option in on_spot(workload, catalog):
        spot = option.spot
        assert spot is not None
        assert not any("checkpoint" in line.what for line in option.ledger.lines)
        redone = next(line for line in option.ledger.lines if line.what.startswith("re-done"))
        each_h = float(redone.quantity) / option.count / spot.preemptions.value
        assert each_h <= spot.startup_h + spot.interval_h
        assert spot.interval_h < 0.1
        assert spot.nodes == 1


def test_many_machines_save_their_parts_at_the_same_time(catalog: Catalog) -> None:
    """A sharded training on four machines saves in a quarter of the seconds beside the second that does not shrink."""
    workload = load_workload(EXAMPLES / "llama-65b-full.tonnage.yaml", catalog=catalog)
    found = [
        one for one in make_plan(workload, catalog, calibrated=CALIBRATED).options if one.spot and one.platform == "vm"
    ]
    of_amazon = [one for one in found if one.provider == "aws"]
    assert of_amazon
    size = state_bytes(workload.job)
    for option in of_amazon:
        fields = dict(option.run.layout_fields)
        assert option.spot is not None
        if fields["sharding"] != "ddp":
            assert option.spot.save_h * 3600 == pytest.approx(1 + size / (0.5e9 * option.count))
