"""A batch on k machines: the plan's figures for each k, against the queue simulated event by event."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tonnage.api import load_workload
from tonnage.catalog import Catalog
from tonnage.errors import InputError
from tonnage.planning import make_plan
from tonnage.planning.calibrated_model import CalibratedModel
from tonnage.pricing.tokens import TokenPrices
from tonnage.service.batch_breakeven import BatchBreakEven, QueueJob, batch_break_even, simulate_queue
from tonnage.workload.jobs import Workload

CALIBRATED = CalibratedModel.packaged()
BATCH = Path(__file__).parents[2] / "examples" / "batch-10k-per-hour.tonnage.yaml"
JOB = QueueJob(items=10_000, items_per_s=2.0, machines=4, usd_per_machine_hour=1.5, in_flight=20)


@pytest.fixture(scope="module")
def workload(catalog: Catalog) -> Workload:
    return load_workload(BATCH, catalog=catalog)


@pytest.fixture(scope="module")
def found(workload: Workload, catalog: Catalog) -> BatchBreakEven:
    api = TokenPrices(name="api", usd_per_million_input=0.1, usd_per_million_output=0.2, source="", read_on=None)
    return batch_break_even(workload, catalog, [api], calibrated=CALIBRATED)


def test_the_plans_machines_and_cost_are_chosen(workload: Workload, found: BatchBreakEven, catalog: Catalog) -> None:
    """The row that is cheapest is the plan's first option: machines, time and cost alike."""
    best = make_plan(workload, catalog, calibrated=CALIBRATED).options[0]
    assert found.chosen is not None
    chosen = found.chosen.option
    assert (chosen.identity, chosen.time_s, chosen.cost_usd) == (best.identity, best.time_s, best.cost_usd)
    assert len({row.option.count for row in found.rows}) == len(found.rows) > 3


def test_rows_agree_with_the_simulation(found: BatchBreakEven) -> None:
    """Costs lie within 8 % of the mean of 20 simulated runs; finishes within 25 %, of one machine, whose waits are few
    and long, within half."""
    for row in found.rows:
        assert row.option.time_s is not None
        assert row.option.cost_usd.value == pytest.approx(row.simulated_usd, rel=0.08)
        within = 0.5 if row.option.count == 1 else 0.25
        assert row.option.time_s.value == pytest.approx(row.simulated_finish_s, rel=within)


def test_machines_pay_from_where_they_are_cheaper(found: BatchBreakEven) -> None:
    """Above the crossing the machines cost less than the API, so it lies below the example's items here."""
    (api,) = found.apis
    assert api.from_items is not None
    assert api.from_items < found.job.items
    assert found.chosen is not None
    assert found.chosen.option.cost_usd.value < api.usd


def test_failed_items_are_answered_again(workload: Workload, found: BatchBreakEven, catalog: Catalog) -> None:
    """One try in five fails: a quarter more work."""
    often = batch_break_even(workload, catalog, [], item_failure=0.2, calibrated=CALIBRATED)
    assert often.chosen is not None
    assert found.chosen is not None
    assert often.chosen.option.cost_usd.value > 1.1 * found.chosen.option.cost_usd.value


def test_without_loss_or_failure_it_is_arithmetic() -> None:
    """No interruptions: start-up and the items, exactly, where they share evenly; every machine is paid to the end."""
    done = simulate_queue(JOB, seed=0)
    assert done.finish_s == pytest.approx(300.0 + 1_250.0)
    assert done.usd == pytest.approx(4 * 1_550.0 / 3600 * 1.5)


def test_losses_cost_and_take_time(found: BatchBreakEven) -> None:
    """With the hazard of the example's machine 20 runs take longer and cost more; one seed, one run."""
    spot = found.rows[0].option.spot
    assert spot is not None
    risky = replace(JOB, items=100_000, hazard=spot.hazard.model)
    calm = simulate_queue(replace(risky, hazard=None), seed=0)
    runs = [simulate_queue(risky, seed=seed) for seed in range(20)]
    assert np.mean([run.finish_s for run in runs]) > calm.finish_s
    assert np.mean([run.usd for run in runs]) > calm.usd
    assert runs[3] == simulate_queue(risky, seed=3)


def test_what_cannot_be_is_refused() -> None:
    """No items, a certain failure, no rate."""
    for changes in ({"items": 0}, {"item_failure": 1.0}, {"items_per_s": float("nan")}):
        with pytest.raises(InputError):
            replace(JOB, **changes)  # type: ignore[arg-type]
