"""The policy: what it believes, that the program behind it is sound, and that it is cheaper than Uniform Progress."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tonnage.spot_instances import (
    HazardModel,
    Recorded,
    SpotJob,
    SpotTrace,
    TonnagePolicy,
    UniformProgress,
    draw_joint_windows,
    draw_windows,
    fit_hazards,
    parse_trace,
)
from tonnage.spot_instances import replay as run
from tonnage.spot_instances.belief import ZoneBelief
from tonnage.spot_instances.drawing import drawn_windows
from tonnage.spot_instances.hazards import BUCKETS
from tonnage.spot_instances.policy import solve_hypotheses

JOB = SpotJob(work_h=12.0, deadline_h=15.0, changeover_h=0.1, price_ratio=3.0)


def seen(model: HazardModel, history: str) -> ZoneBelief:
    belief = ZoneBelief(model, 1, 1, len(history) + 1)
    for char in history:
        belief.see(np.array([[char == "1"]]))
    return belief


ROW = np.array([0])


def test_short_runs_teach_a_high_hazard(model: HazardModel) -> None:
    """After five runs of 12 min the expected factor is above, after one of 12 h below, the prior's."""
    expected = []
    for history in ("1" * 2, ("1" * 6 + "0") * 5 + "1", "0" + "1" * 360):
        belief = seen(model, history)
        up, _ = belief.weights(ROW, ROW)
        expected.append(float(up[0] @ belief.up_side.per_h[:, 0]))
    assert expected[1] > 1.3 * expected[0]
    assert expected[2] < 0.8 * expected[0]


def test_weights_are_shares(model: HazardModel) -> None:
    belief = seen(model, "110010111011100001")
    for weights in belief.weights(ROW, ROW):
        assert weights.sum() == pytest.approx(1.0)
        assert (weights >= 0).all()


def test_a_run_grows_old(model: HazardModel) -> None:
    """A run whose start was seen moves through the buckets; that of a first run is not taken for new."""
    assert seen(model, "01").bucket(ROW, ROW)[0] == 0
    assert seen(model, "0" + "1" * 40).bucket(ROW, ROW)[0] == 3  # 1.3 h
    assert seen(model, "1").bucket(ROW, ROW)[0] > 2
    assert seen(model, "10").bucket(ROW, ROW)[0] == BUCKETS


def test_values_are_ordered(model: HazardModel) -> None:
    """No choice is worth less than spot all the way, or more than a launch on demand to the end; more slack helps."""
    values = solve_hypotheses(JOB, model)
    cells = (len(values.slack_h), 2 * BUCKETS)
    level = len(values.wait) - 1
    work = JOB.deadline_h - values.slack_h
    best = np.minimum(values.wait[level], values.on_demand[level]).reshape(-1, *cells)
    inside = values.slack_h <= JOB.slack_h
    assert (best[:, inside] <= (JOB.price_ratio * (work + JOB.changeover_h))[None, inside, None] + 1e-3).all()
    assert (best[:, inside] >= work[None, inside, None] - 1e-3).all()
    assert (np.diff(best[:, inside], axis=1) <= 1e-3).all()


def test_certain_spot_is_taken_at_once(model: HazardModel) -> None:
    """Where spot never goes the bill is one launch and the work."""
    up = np.ones((2, JOB.ticks, 1), np.bool_)
    assert run(JOB, Recorded(up), TonnagePolicy(model)).cost == pytest.approx(12.1)


@pytest.mark.parametrize(
    ("changeover_h", "deadline_h", "price_ratio"),
    [
        (0.1, 15.0, 3.0),
        (0.1, 15.0, 8.0),
        (0.02, 17.0, 2.0),
        *(pytest.param(*one, marks=pytest.mark.slow) for one in ((0.5, 15.0, 3.0), (0.2, 13.5, 3.0), (0.2, 20.0, 3.0))),
    ],
)
def test_it_is_cheaper_than_uniform_progress_where_hazards_fall(
    model: HazardModel, changeover_h: float, deadline_h: float, price_ratio: float
) -> None:
    """On 300 made-up zones of its model, by more than 1 %."""
    job = SpotJob(work_h=12.0, deadline_h=deadline_h, changeover_h=changeover_h, price_ratio=price_ratio)
    world = Recorded(drawn_windows(model, ticks=job.ticks, count=300, seed=1))
    own, rival = run(job, world, TonnagePolicy(model)), run(job, world, UniformProgress())
    assert not own.missed.any()
    assert own.cost.mean() < 0.99 * rival.cost.mean()


def test_a_wrong_model_costs_little(model: HazardModel) -> None:
    """With a model whose hazards are four times too high or too low it is still no dearer than Uniform Progress."""
    world = Recorded(drawn_windows(model, ticks=JOB.ticks, count=300, seed=2))
    rival = run(JOB, world, UniformProgress()).cost.mean()
    for shift in (-1.4, 1.4):
        wrong = replace(model, up=replace(model.up, log_mean=model.up.log_mean + shift))
        assert run(JOB, world, TonnagePolicy(wrong)).cost.mean() < rival


def test_several_zones_are_cheaper_than_each(model: HazardModel) -> None:
    """A job that may move pays less than in the best of its zones, and less than Uniform Progress that moves."""
    up = np.concatenate([drawn_windows(model, ticks=JOB.ticks, count=200, seed=seed) for seed in (3, 4, 5)], axis=2)
    apart = [run(JOB, Recorded(up[:, :, [zone]]), TonnagePolicy(model)).cost.mean() for zone in range(3)]
    together = run(JOB, Recorded(up), TonnagePolicy(model))
    assert not together.missed.any()
    assert together.cost.mean() < min(apart)
    assert together.cost.mean() < run(JOB, Recorded(up), UniformProgress()).cost.mean()


FACTS = Path(os.environ.get("TONNAGE_FACTS", "no-facts")) / "spot_traces"
recorded = pytest.mark.skipif(not FACTS.is_dir(), reason="TONNAGE_FACTS names no folder with spot_traces")


def families() -> Iterator[tuple[str, list[SpotTrace], list[SpotTrace]]]:
    """Each family of recorded traces, with the traces of all others."""
    traces = [parse_trace(path.read_text(), name=path.stem) for path in sorted(FACTS.glob("*.json"))]
    for family in sorted({trace.family for trace in traces}):
        yield (
            family,
            [trace for trace in traces if trace.family == family],
            [trace for trace in traces if trace.family != family],
        )


@recorded
@pytest.mark.slow
@pytest.mark.parametrize(("changeover_h", "fraction"), [(0.1, 0.7), (0.1, 0.9), (0.5, 0.7), (0.5, 0.9)])
def test_it_is_cheaper_on_every_recorded_family_left_out(changeover_h: float, fraction: float) -> None:
    """Fitted on the other families: below Uniform Progress, and no dearer where spot never goes."""
    for family, mine, others in families():
        model = fit_hazards(others, source="the other families")
        hours = 22.5 if min(trace.hours for trace in mine) < 60 else 48.0
        job = SpotJob(work_h=hours, deadline_h=hours / fraction, changeover_h=changeover_h, price_ratio=3.0)
        up = np.concatenate([draw_windows(one, ticks=job.ticks, count=100, seed=0).up for one in mine])
        own, rival = run(job, Recorded(up), TonnagePolicy(model)), run(job, Recorded(up), UniformProgress())
        assert not own.missed.any(), family
        steady = all(trace.availability > 0.999 for trace in mine)
        assert own.cost.mean() <= rival.cost.mean() * (1.0 + 1e-9 if steady else 0.995), family


@recorded
def test_recorded_zones_together() -> None:
    """Four zones of one family: below Uniform Progress that moves, and far below the mean single zone."""
    _, mine, others = next(one for one in families() if one[0] == "avail-1x-aws-2023-02")
    job = SpotJob(work_h=48.0, deadline_h=60.0, changeover_h=0.5, price_ratio=3.0)
    up = draw_joint_windows(mine, ticks=job.ticks, count=40, seed=0).up
    model = fit_hazards(others, source="the other families")
    own, rival = run(job, Recorded(up), TonnagePolicy(model)), run(job, Recorded(up), UniformProgress())
    assert not own.missed.any()
    assert own.cost.mean() < rival.cost.mean()
    assert own.cost.mean() < 0.45 * job.on_demand_cost
