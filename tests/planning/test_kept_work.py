"""Where nothing fits, the work is sized once for the plans that say what would help: the same answers as sized anew."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import tonnage
from tonnage.api.catalogs import market_of
from tonnage.catalog import Catalog
from tonnage.planning import kept_work, planner, sized_machines
from tonnage.planning.calibrated_model import CalibratedModel
from tonnage.planning.kept_work import KeptWork
from tonnage.planning.planner import make_plan, rank_options
from tonnage.settings import current_settings
from tonnage.workload.jobs import Workload

EXAMPLES = Path(__file__).parents[2] / "examples"
DAY = "2026-11-20"


@pytest.fixture(scope="module")
def market() -> Catalog:
    return market_of(None, current_settings(as_of=DAY))


def too_dear(name: str) -> Workload:
    """An example that one dollar has to pay for."""
    read = tonnage.load_workload(EXAMPLES / f"{name}.tonnage.yaml", as_of=DAY)
    return replace(read, constraints=replace(read.constraints, budget_usd=1.0))


@pytest.mark.heavy
@pytest.mark.parametrize("name", ["serve-llama-7b-realtime", "gptj-6b-lora"])
def test_the_answers_are_those_of_each_plan_sized_anew(
    name: str, market: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is freed, what nearly fits and each refusal; with far fewer sizings."""
    workload, sizings = too_dear(name), list[int]()
    real = sized_machines.size_job

    def counted(*args: object) -> object:
        sizings.append(1)
        return real(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(kept_work, "size_job", counted)
    found, once = make_plan(workload, market), len(sizings)

    def anew(*args: object, **options: object) -> object:
        return rank_options(*args, **{**options, "before": None})  # type: ignore[arg-type]

    monkeypatch.setattr(planner, "rank_options", anew)
    alone = make_plan(workload, market)
    assert found.relaxations
    assert found == alone
    assert once < (len(sizings) - once) / 2


@pytest.mark.heavy
def test_a_supposed_machine_is_sized_as_it_is(market: Catalog) -> None:
    """Another memory of a machine is another sizing, also after the machine as it is was sized."""
    workload = too_dear("gptj-6b-lora")
    before = KeptWork(market, CalibratedModel.packaged())
    machine = next(one for one in market.instance_types if one.accelerator and "A10" in one.accelerator)
    known = before.size(workload, market, [machine])
    small = replace(machine, accelerator_count=machine.accelerator_count + 1)
    supposed = replace(market, instance_types=tuple(small if one is machine else one for one in market.instance_types))
    again = before.size(workload, supposed, [small])
    assert len(known.sized.machine) or known.sized.misses or known.unsized
    assert again is not known
    assert before.size(workload, market, [machine]).index == known.index


@pytest.mark.heavy
@pytest.mark.parametrize(("name", "sizings"), [("batch-10k-per-hour", 1), ("gbm-5m-rows", 1), ("gptj-6b-lora", 1)])
def test_sliders_of_one_workload_are_planned_as_alone(
    name: str, sizings: int, market: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every budget, deadline and rate of interruptions has the plan, digit for digit, that it has alone; the work is
    sized once for all of them."""
    read, sized = tonnage.load_workload(EXAMPLES / f"{name}.tonnage.yaml", as_of=DAY), list[int]()
    real = sized_machines.size_job

    def counted(*args: object) -> object:
        sized.append(1)
        return real(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(kept_work, "size_job", counted)
    moved = [
        read,
        replace(read, constraints=replace(read.constraints, budget_usd=400.0)),
        replace(read, constraints=replace(read.constraints, deadline_s=40 * 3600.0)),
        replace(read, buy=replace(read.buy, interruptions_per_hour=0.3)),
    ]
    kept = KeptWork(market, CalibratedModel.packaged())
    plans = [make_plan(one, market, before=kept) for one in moved]
    assert all(plan.options for plan in plans)
    assert len(sized) == sizings
    assert [repr(plan) for plan in plans] == [repr(make_plan(one, market)) for one in moved]


def test_only_plans_over_the_same_prices_and_figures_share(market: Catalog) -> None:
    """Another catalog or another calibration begins anew, one of equal figures does not."""
    kept, packaged = KeptWork(market, CalibratedModel.packaged()), CalibratedModel.packaged()
    assert kept.serves(market, packaged)
    assert not kept.serves(replace(market), packaged)
    assert not kept.serves(market, replace(packaged, assumed=replace(packaged.assumed, memory_margin_fraction=0.3)))
    assert kept.expected(market) is kept.expected(market)
    assert kept.expected(replace(market)) is not kept.expected(market)
