"""Advice for one job: what it expects, and what it refuses."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from tonnage.errors import InputError
from tonnage.pricing.renewal import RenewalTerms, renewal_run
from tonnage.reports.reasons.spot_refusals import spot_refusal_words
from tonnage.spot_instances import HazardModel, SpotAdvice, SpotQuestion, advise
from tonnage.spot_instances.drawing import drawn_windows, lifetime, mean_h
from tonnage.spot_instances.refusals import DeadlineTooSoon, SpotDiverges, SpotMissesDeadline


def question(**changes: Any) -> SpotQuestion:
    return SpotQuestion(**({"work_h": 20.0, "changeover_h": 0.1, "price_ratio": 3.0} | changes))


@cache
def by_deadline(deadline_h: float, model: HazardModel) -> SpotAdvice:
    """The same question with a deadline: its policy is worked out once for all tests that look at it."""
    return advise(question(deadline_h=deadline_h), model)


def test_with_checkpoints_nothing_is_refused(model: HazardModel) -> None:
    """The best interval is far below the work, its bill is the least of the ways, and zones bound it."""
    answer = advise(question(), model)
    assert answer.refused is None
    assert 0.05 < answer.best.interval_h < 3.0
    assert answer.best.billed_h <= min(answer.young.billed_h, answer.unsaved.billed_h)
    assert answer.chosen.low.billed_h < answer.chosen.value.billed_h < answer.chosen.high.billed_h
    assert answer.miss_chance is None
    assert answer.policy is None


def test_long_work_without_checkpoints_is_refused(model: HazardModel) -> None:
    """The refusal says how many hours are expected; short work passes."""
    answer = advise(question(work_h=48.0, checkpoints=False), model)
    assert answer.refused == SpotDiverges(work_h=48.0, expected_h=answer.chosen.value.expected_h, checkpoints=False)
    assert advise(question(work_h=0.5, checkpoints=False), model).refused is None


def test_work_without_end_is_refused(model: HazardModel) -> None:
    answer = advise(question(work_h=8000.0, checkpoints=False), model)
    assert isinstance(answer.refused, SpotDiverges)
    assert "more than a million hours are expected" in spot_refusal_words(answer.refused)


def test_a_deadline_below_the_work_is_refused(model: HazardModel) -> None:
    answer = advise(question(deadline_h=19.0), model)
    assert isinstance(answer.refused, DeadlineTooSoon)
    assert answer.refused.undisturbed_h > answer.refused.deadline_h == 19.0


def test_a_deadline_without_checkpoints_is_refused_when_at_risk(model: HazardModel) -> None:
    answer = advise(question(work_h=3.0, checkpoints=False, deadline_h=4.0), model)
    assert isinstance(answer.refused, SpotMissesDeadline)
    assert answer.refused.chance_fraction == answer.miss_chance
    assert answer.miss_chance is not None
    assert answer.miss_chance > 0.3


def test_no_slack_for_on_demand_is_refused(model: HazardModel) -> None:
    """A deadline that on-demand from the first minute keeps, and nothing that begins on spot."""
    answer = advise(question(deadline_h=20.2), model)
    assert isinstance(answer.refused, SpotMissesDeadline)
    assert "no slack in which on-demand could step in" in spot_refusal_words(answer.refused)


def test_the_policy_keeps_a_deadline_that_spot_alone_misses(model: HazardModel) -> None:
    answer = by_deadline(25.0, model)
    assert answer.refused is None
    assert answer.miss_chance is not None
    assert answer.miss_chance > 0.2
    assert answer.policy is not None
    assert answer.policy.misses == 0
    assert answer.policy.cost_vs_on_demand < 0.9


def test_a_later_deadline_is_missed_less(model: HazardModel) -> None:
    chances = [by_deadline(deadline, model).miss_chance for deadline in (21.0, 23.0, 25.0)]
    assert all(one is not None for one in chances)
    assert chances == sorted(chances, reverse=True, key=lambda one: one or 0.0)


def test_more_machines_are_lost_more_often(model: HazardModel) -> None:
    one, many = advise(question(), model), advise(question(nodes=16), model)
    assert many.hazard_per_h > one.hazard_per_h
    assert many.chosen.value.billed_h > one.chosen.value.billed_h


def test_the_same_seed_gives_the_same_answer(model: HazardModel) -> None:
    assert advise(question(deadline_h=25.0), model) == by_deadline(25.0, model)


def test_drawn_zones_have_the_models_availability(model: HazardModel) -> None:
    """Share of time up of made-up zones, against mean life over mean cycle of the typical one."""
    alike = replace(model, up=replace(model.up, log_spread=1e-6), down=replace(model.down, log_spread=1e-6))
    share = float(drawn_windows(alike, ticks=600, count=400, seed=0).mean())
    up, down = mean_h(model.up, 0.0), mean_h(model.down, 0.0)
    assert share == pytest.approx(up / (up + down), abs=0.04)


def test_mean_life_is_that_of_the_law(model: HazardModel) -> None:
    """∫ S in closed form, against the expected hours until the loss of a run that has no end."""
    law = lifetime(model.up, 0.0)
    run = renewal_run(400.0, 400.0, law, RenewalTerms(startup_h=0.0, save_h=0.0, wait_h=0.0))
    chance = float(law.survival(np.array([400.0]))[0])
    assert run.billed_h * chance == pytest.approx(mean_h(model.up, 0.0), rel=1e-6)


@pytest.mark.parametrize(
    "changes",
    [{"work_h": 0.0}, {"changeover_h": -1.0}, {"price_ratio": 0.5}, {"nodes": 0}, {"usd_per_h": 0.0},
     {"interval_h": 0.0}, {"deadline_h": float("nan")}, {"save_h": float("inf")}],
)  # fmt: skip
def test_figures_that_cannot_be_are_refused(changes: dict[str, float]) -> None:
    with pytest.raises(InputError, match="out of range"):
        question(**changes)
