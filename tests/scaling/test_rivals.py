"""The other autoscalers decide as their documentation says."""

from __future__ import annotations

from typing import Any

import pytest

from tonnage.errors import InputError
from tonnage.scaling.comparing import compare_policies, rival
from tonnage.scaling.load import generated
from tonnage.scaling.rivals import Hpa, Knative, RayServe, SkyServe
from tonnage.scaling.service import Observation, Policy, ScaledService

SERVICE = ScaledService(slots=4, least=0, most=50)


def seen(*, inside: int = 0, ready: int = 1, arrived: int = 0) -> Observation:
    return Observation(
        arrived=arrived, finished=0, finished_work_s=0.0, waiting=inside, running=0, ready=ready, starting=0
    )


def first_change(policy: Policy[Any], sight: Observation, *, until_s: float = 3000.0) -> tuple[float, int] | None:
    """When the same sight first moves the number of replicas, and to what."""
    state, at_s = policy.begin(), 0.0
    while at_s <= until_s:
        state, wanted, _ = policy.decide(state, sight, at_s)
        if wanted != sight.ready:
            return at_s, wanted
        at_s += policy.interval_s
    return None


def test_ray_serve_waits_30_s_up_and_600_s_down() -> None:
    """Desired is current · ongoing / (current · target): 12 ongoing at a target of 2 want 6; 0 at once wants 1."""
    assert first_change(RayServe(service=SERVICE), seen(inside=12, ready=2)) == (30.0, 6)
    assert first_change(RayServe(service=SERVICE), seen(inside=2, ready=4)) == (600.0, 1)
    assert first_change(RayServe(service=SERVICE), seen(inside=1, ready=0)) == (0.0, 1)


def test_the_hpa_grows_at_most_double_or_by_four_and_shrinks_after_300_s() -> None:
    """Growth a period: 4 replicas or 100 %; a wish of the last 300 s holds; within 10 % nothing moves."""
    assert first_change(Hpa(service=SERVICE, target=4.0), seen(inside=400, ready=2)) == (0.0, 6)
    assert first_change(Hpa(service=SERVICE, target=4.0), seen(inside=400, ready=10)) == (0.0, 20)
    assert first_change(Hpa(service=SERVICE, target=4.0), seen(inside=43, ready=10)) is None
    policy = Hpa(service=SERVICE, target=4.0)
    state, wanted, _ = policy.decide(policy.begin(), seen(inside=40, ready=10), 0.0)
    held = []
    for step in range(1, 30):
        state, wanted, _ = policy.decide(state, seen(inside=4, ready=10, arrived=1), 15.0 * step)
        held.append(wanted)
    assert held.index(1) == 19  # at 300 s


def test_keda_goes_to_zero_after_its_cooldown() -> None:
    """300 s without a request, then none; the first request brings one back."""
    policy = Hpa(service=SERVICE, target=4.0)
    state, wanted, _ = policy.decide(policy.begin(), seen(inside=1, arrived=1), 0.0)
    assert wanted == 1
    counts = []
    for step in range(1, 45):
        state, wanted, _ = policy.decide(state, seen(ready=1), 15.0 * step)
        counts.append(wanted)
    assert counts.index(0) == 19
    assert policy.decide(state, seen(inside=1, ready=0), 700.0)[1] == 1


def test_sky_serve_waits_for_agreement() -> None:
    """Up after 300 s, down after 1,200 s of decisions every 20 s; counts of the last minute."""
    up = first_change(SkyServe(service=SERVICE, target_qps=1.0), seen(arrived=100, ready=2))
    assert up == (300.0, 5)  # 20 s until the window of a minute wants more, then 15 decisions
    assert first_change(SkyServe(service=SERVICE, target_qps=1.0), seen(arrived=20, ready=3)) == (1180.0, 1)


def test_knative_panics_and_then_shrinks_to_half_at_most() -> None:
    """Twice the ready replicas wanted by the panic window: it grows at once, and holds for a stable window."""
    policy = Knative(service=SERVICE, target=4.0)
    state = policy.begin()
    for step in range(31):
        state, wanted, _ = policy.decide(state, seen(inside=2, ready=1), 2.0 * step)
        assert wanted == 1
    state, wanted, _ = policy.decide(state, seen(inside=40, ready=1), 62.0)
    assert wanted == 6  # mean of the three samples within 6 s: (2 + 2 + 40) / 3 over 2.8
    counts = []
    for step in range(32, 70):
        state, wanted, _ = policy.decide(state, seen(inside=0, ready=6), 2.0 * step)
        counts.append(wanted)
    assert counts[:28] == [6] * 28
    assert min(counts) == 3


def test_a_comparison_names_the_best_rival() -> None:
    """Each policy once; the best rival keeps the promise; the ratio is of replica-hours. Static is the least number."""
    service = ScaledService(slots=4, most=10)
    load = generated("waves", peak_slots=12, hours=0.6, seed=3)
    reported: list[str] = []
    asked = ("tonnage", "static", "keda-queue")
    found = compare_policies(load, service, policies=asked, on_step=reported.append)
    assert tuple(reported) == asked
    best = found.best_baseline
    assert best is not None
    assert best.keeps
    assert best.policy != "tonnage"
    assert found.own is not None
    assert found.vs_best_baseline == pytest.approx(found.own.run.replica_hours / best.run.replica_hours)
    static = next(one for one in found.results if one.policy == "static")
    assert static.setting is not None
    fewer = compare_policies(load, ScaledService(slots=4, most=int(static.setting) - 1), policies=["static"])
    assert static.keeps
    assert not fewer.results[0].keeps


def test_unknown_policies_are_refused() -> None:
    """And parts of the past outside their range."""
    load = generated("steady", hours=0.1, peak_slots=4, seed=0)
    with pytest.raises(InputError, match="is not a policy"):
        rival("hope", SERVICE, 1.0, 1.0)
    for wrong in ({"policies": ["hope"]}, {"policies": []}, {"learn_fraction": 1.0}, {"tuning": "luck"}):
        with pytest.raises(InputError):
            compare_policies(load, SERVICE, **wrong)  # type: ignore[arg-type]
