"""What conditions take of figures over time."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tonnage.monitoring.alerts.reading import default_rules
from tonnage.monitoring.alerts.rules import Condition
from tonnage.monitoring.alerts.windows import RecentFigures, histogram_quantile
from tonnage.monitoring.figures import SeriesKey, series

RUN = series("m", {"run": "a"})


def condition(take: str, over_s: float = 60.0, **more: object) -> Condition:
    given = {"metric": "m", "direction": "above", "limit": 0.0, "clear_at": 0.0, **more}
    return Condition(take=take, over_s=over_s, **given)  # type: ignore[arg-type]


def recent(*points: tuple[float, float], key: SeriesKey = RUN) -> RecentFigures:
    found = RecentFigures(keep_s=600.0, every_s=10.0)
    found.add(points[0][0] - 1e-3, {})  # the watch began before the series
    for at, value in points:
        found.add(at, {key: value})
    return found


@pytest.mark.parametrize(
    ("take", "value"),
    [("mean", 3.5), ("max", 6.0), ("min", 2.0), ("increase", 6.0), ("rate", 4.0 / 40.0), ("age", 0.0), ("newest", 6.0)],
)
def test_each_takes_its_own_of_the_window(take: str, value: float) -> None:
    """Points of 2, 2, 4, 6 over 40 s; the counter was born in the window, so that its first figure counts."""
    found = recent((100.0, 2.0), (110.0, 2.0), (120.0, 4.0), (140.0, 6.0))
    (reading,) = found.read(condition(take), 140.0)
    assert reading.value == pytest.approx(value)


def test_a_mean_of_less_than_half_the_window_is_not_known() -> None:
    """A run of ten seconds has no mean of a minute."""
    assert recent((100.0, 1.0), (110.0, 1.0)).read(condition("mean"), 110.0) == []


def test_points_before_the_window_do_not_count() -> None:
    """The maximum of the last minute forgets the peak of two minutes ago."""
    found = recent((0.0, 99.0), (60.0, 1.0), (100.0, 2.0), (120.0, 1.0))
    assert [one.value for one in found.read(condition("max"), 120.0)] == [2.0]


def test_a_counter_that_began_again_counts_on() -> None:
    """5 to 9, then 0 to 3: seven more, not minus two."""
    found = RecentFigures(keep_s=600.0, every_s=10.0)
    for at, value in ((0.0, 5.0), (10.0, 9.0), (20.0, 0.0), (30.0, 3.0)):
        found.add(at, {RUN: value})
    assert [one.value for one in found.read(condition("increase"), 30.0)] == [7.0]


def test_what_an_ended_run_spent_still_counts_in_a_sum() -> None:
    """The first run ended an hour ago: its series is gone, its dollars are not."""
    found = RecentFigures(keep_s=86_400.0, every_s=10.0)
    found.add(0.0, {})
    found.add(10.0, {series("m", {"run": "a"}): 300.0})
    found.add(3600.0, {series("m", {"run": "b"}): 400.0})
    (reading,) = found.read(condition("increase", 86_400.0, across="sum"), 3600.0)
    assert reading.value == 700.0
    assert [one.value for one in found.read(condition("newest", across="sum"), 3600.0)] == [400.0]


def test_a_series_without_figures_is_gone() -> None:
    """After a minute without a figure nothing is read of it."""
    found = recent((0.0, 1.0))
    assert found.read(condition("newest", 0.0), 30.0)
    assert not found.read(condition("newest", 0.0), 90.0)


def test_patterns_choose_series() -> None:
    """`chat-*` takes chat-1 and leaves batch; a label that a series lacks matches nothing."""
    found = RecentFigures(keep_s=60.0, every_s=10.0)
    found.add(0.0, {series("m", {"run": name}): 1.0 for name in ("chat-1", "chat-2", "batch")})
    wanted = condition("newest", 0.0, labels=(("run", "chat-*"),))
    assert [one.key.label("run") for one in found.read(wanted, 0.0)] == ["chat-1", "chat-2"]
    assert not found.read(condition("newest", 0.0, labels=(("gpu", "*"),)), 0.0)


def test_quantile_is_of_what_the_window_counted() -> None:
    """A thousand quick answers before the window do not hide ten slow ones in it."""
    found = RecentFigures(keep_s=600.0, every_s=10.0)

    def add(at: float, quick: float, all_: float) -> None:
        buckets = {"0.1": quick, "1.0": all_, "+Inf": all_}
        found.add(at, {series("m_bucket", {"le": le, "run": "a"}): count for le, count in buckets.items()})

    add(0.0, 1000.0, 1000.0)
    add(100.0, 1000.0, 1010.0)
    (reading,) = found.read(condition("p95", 60.0), 100.0)
    assert reading.key == series("m", {"run": "a"})
    assert reading.value == pytest.approx(0.1 + 0.9 * 0.95)


def test_quantile_above_the_last_bound_is_that_bound() -> None:
    """As Prometheus answers."""
    assert histogram_quantile(0.99, [(1.0, 1.0), (float("inf"), 100.0)]) == 1.0
    assert histogram_quantile(0.5, [(1.0, 0.0), (float("inf"), 0.0)]) is None


MEMORY = series("tonnage_gpu_memory_used_ratio", {"run": "a"})
GROWS = next(one for one in default_rules().rules if one.name == "gpu-memory-grows").condition


@pytest.mark.parametrize(
    ("shape", "fires"),
    [
        (lambda at: 0.2 if at < 60 else 0.93, False),  # taken at the start, then stable: healthy
        (lambda at: 0.7 + 0.02 * (at // 10 % 2), False),  # up and down
        (lambda at: 0.80 if at < 1200 else 0.95, False),  # one step, as of longer texts
        (lambda at: 0.70 + 0.25 * at / 1800, True),  # a leak
        (lambda at: 0.95 - 0.1 * at / 1800, False),  # it falls
    ],
)  # fmt: skip
def test_memory_that_grows_toward_the_limit_is_told_from_memory_that_is_high(
    shape: Callable[[float], float], fires: bool
) -> None:
    """The default rule looks at what half an hour's pace comes to; it follows no step and no noise."""
    found = RecentFigures(keep_s=GROWS.over_s, every_s=10.0)
    fired = False
    for number in range(181):
        found.add(10.0 * number, {MEMORY: shape(10.0 * number)})
        fired = any(GROWS.holds(one.value, firing=False) for one in found.read(GROWS, 10.0 * number))
    assert fired is fires


def test_a_pace_over_less_than_half_the_window_is_not_known() -> None:
    """Memory that is taken in the first minutes of a run is no leak."""
    found = RecentFigures(keep_s=GROWS.over_s, every_s=10.0)
    for number in range(60):
        found.add(10.0 * number, {MEMORY: number / 100})
    assert found.read(GROWS, 590.0) == []
