"""Intervals hold what they promise on rows they never saw, and widen for the unknown."""

from __future__ import annotations

from dataclasses import replace
from math import exp, log

import numpy as np
import pytest

from tonnage.calibration.intervals import (
    DEFAULT_WIDENING,
    Intervals,
    fit_intervals,
    intervals_without_family,
    intervals_without_source,
    residual,
)
from tonnage.calibration.prediction import JudgedRow
from tonnage.sizing.assumptions import INFERENCE_TIME_SPREAD, TRAINING_MEMORY_SPREAD
from tonnage.sizing.program_profiles import ADAPTER_MEMORY, KNOWN_MEMORY, UNSTATED_MEMORY

from .conftest import MakeJudged


def noisy(judged: MakeJudged, seed: int, *, rows: int, families: int = 10, sigma: float = 0.1, unseen_factors: int = 0,
          bias: float = 0.0, metric: str = "iteration_time_s") -> list[JudgedRow]:  # fmt: skip
    """Rows whose measured value is off by a log-normal factor, skewed upwards."""
    errors = np.random.default_rng(seed).normal(0.0, sigma, rows)
    errors = np.where(errors > 0, 2 * errors, errors) + bias
    return [
        judged(
            row_id=str(n),
            metric=metric,
            family=f"f{n % families}",
            measured=100.0 * exp(error),
            unseen_factors=unseen_factors,
        )
        for n, error in enumerate(errors)
    ]


def test_four_of_five_new_rows_are_covered(judged: MakeJudged) -> None:
    """On fresh rows of the same law some 80 % lie inside, on average over samples; the long tail has the long side.
    Families are what is counted, so that rows which do not err together are covered a little more often."""
    covered, sides = [], []
    for seed in range(30):
        intervals = fit_intervals(noisy(judged, seed, rows=200, families=40))
        covered.append(np.mean([intervals.covers(row) for row in noisy(judged, seed + 1000, rows=300)]))
        spread = intervals.spread("training time")
        sides.append((spread.high_factor - 1) / (1 - spread.low_factor))
    assert 0.78 <= np.mean(covered) <= 0.85  # one sample of 200 rows is off by 3.4 points, the mean of 30 by 0.6
    assert np.mean(sides) > 1.5


def test_families_that_err_together_are_covered_too(judged: MakeJudged) -> None:
    """Rows of a family share an error. Of many samples of eight, a ninth is covered in 72 to 88 %."""
    covered = []
    for seed in range(200):
        shared = np.random.default_rng(seed).normal(0.0, 0.2, 9)
        rows = [
            judged(row_id=str(n), family=f"f{n % 9}", measured=100.0 * exp(shared[n % 9]), metric="iteration_time_s")
            for n in range(90)
        ]
        intervals = fit_intervals(row for row in rows if row.family != "f8")
        covered.append(np.mean([intervals.covers(row) for row in rows if row.family == "f8"]))
    assert 0.72 <= np.mean(covered) <= 0.88


def test_a_group_of_two_families_borrows_the_residuals_of_all(judged: MakeJudged) -> None:
    """Two families say nothing about a third; the interval is that of all groups together."""
    wide = [replace(row, group="image training time") for row in noisy(judged, 1, rows=60, families=2, sigma=0.01)]
    intervals = fit_intervals([*wide, *noisy(judged, 2, rows=200, families=20)])
    image, all_times = (intervals.spread(group) for group in ("image training time", "training time"))
    assert image.high_factor > 0.5 * all_times.high_factor + 0.5


def test_few_families_of_percentiles_are_judged_with_the_means(judged: MakeJudged) -> None:
    """The slowest requests of one family take the residuals of first and further tokens too, not those of other work;
    the means are not widened by them."""
    slow = [replace(row, group="decoder tail") for row in noisy(judged, 1, rows=40, families=1, sigma=0.5)]
    means = [replace(row, group="decoder ttft") for row in noisy(judged, 2, rows=200, families=8, sigma=0.2)]
    other = noisy(judged, 3, rows=400, families=20, sigma=0.02)
    all_known, without = fit_intervals([*slow, *means, *other]), fit_intervals([*means, *other])
    tail, ttft = all_known.spread("decoder tail"), all_known.spread("decoder ttft")
    assert tail.high_factor > ttft.high_factor > 1.2
    assert ttft == without.spread("decoder ttft")


def test_few_sources_that_err_more_than_all_others_are_not_narrowed_by_them(judged: MakeJudged) -> None:
    """First tokens of two laboratories err by a half: half of what their interval rests on is theirs, not the exact
    steps of others alone; two that err less than all others keep much of what all need."""
    queues = [
        replace(row, group="decoder ttft", source=f"s{n % 2}")
        for n, row in enumerate(noisy(judged, 1, rows=90, families=6, sigma=0.5))
    ]
    exact = [
        replace(row, group="image training time", source=f"s{n % 2}")
        for n, row in enumerate(noisy(judged, 2, rows=90, families=6, sigma=0.01))
    ]
    other = noisy(judged, 3, rows=600, families=20, sigma=0.05)
    made = fit_intervals([*queues, *exact, *other])
    assert np.mean([made.covers(row) for row in queues]) > 0.6
    assert (
        np.mean([fit_intervals(other).spread("training time").high_factor > row.measured / 100.0 for row in queues])
        < 0.6
    )
    assert made.spread("image training time").high_factor > 1.04


def test_a_group_without_rows_allows_for_all_of_its_kin(judged: MakeJudged) -> None:
    """Tails of which no row was seen may be like first tokens, which err more, or like further ones."""
    rows = [
        judged(group=group, family=f"F{n % 6}", source=f"S{n % 6}", measured=100.0 * exp((n % 11 - 5) / narrow))
        for group, narrow in (("decoder tpot", 50), ("decoder ttft", 10))
        for n in range(66)
    ]
    tail, first = (fit_intervals(rows).of_group(group) for group in ("decoder tail", "decoder ttft"))
    assert tail is not None
    assert first is not None
    assert (tail.low_log, tail.high_log) == (first.low_log, first.high_log)


def test_a_figure_that_no_row_had_is_one_more_unknown(judged: MakeJudged) -> None:
    """Tails for which only means speak are wider by one step of judgement, since no left-out row says how much; another
    model's rows of the same figure are none."""
    rows = [
        judged(group=group, family=f"F{n % 6}", source=f"S{n % 6}", measured=100.0 * exp((n % 11 - 5) / 20))
        for group in ("decoder tpot", "vision time")
        for n in range(66)
    ]
    made = fit_intervals(rows)
    for borrowed, own, steps in (("decoder tail", "decoder tpot", 1), ("encoder time", "vision time", 0)):
        assert made.of_group(borrowed) == made.of_group(own)
        assert made.spread(borrowed) == made.spread(own, steps, steps)
    assert made.spread("decoder tail").high_factor > made.spread("decoder tpot").high_factor


def test_what_is_unstated_is_less_sure(judged: MakeJudged) -> None:
    """Six families whose program is known, and the same off by more where it is not: each group keeps its own width;
    adapters, of two families, are judged with the first; a calibration that has only that lends it to the others."""
    rows = [
        replace(row, metric="peak_mem_gib", group=KNOWN_MEMORY)
        for row in noisy(judged, 1, rows=120, families=6, sigma=0.02)
    ]
    loose = [
        replace(row, metric="peak_mem_gib", group=UNSTATED_MEMORY)
        for row in noisy(judged, 2, rows=120, families=6, sigma=0.2)
    ]
    few = [replace(row, group=ADAPTER_MEMORY) for row in rows if row.family in ("f0", "f1")]
    found = fit_intervals([*rows, *loose, *few])
    known, unstated, adapters = (found.spread(group) for group in (KNOWN_MEMORY, UNSTATED_MEMORY, ADAPTER_MEMORY))
    assert known.high_factor < 1.15
    assert adapters.high_factor == pytest.approx(known.high_factor, rel=0.02)
    assert unstated.high_factor > 1.3
    alone = fit_intervals(rows)
    assert alone.spread(UNSTATED_MEMORY) == alone.spread(KNOWN_MEMORY)


def test_a_peak_counts_once_on_whatever_device(judged: MakeJudged) -> None:
    """Two sources do not show how sources differ. Peaks of four families on eight devices are then four tables, so that
    the farthest row bounds the interval; as times they are thirty-two, and it does not."""
    rows = [
        replace(row, gpu=f"GPU {number % 8}", source=row.family[:1] + str(number % 4 // 2))
        for number, row in enumerate(noisy(judged, 5, rows=160, families=4))
    ]
    peaks = [replace(row, metric="peak_mem_gib", group=KNOWN_MEMORY) for row in rows]
    times, bytes_ = fit_intervals(rows).groups[0], fit_intervals(peaks).groups[0]
    assert bytes_.high_log == max(map(residual, peaks))
    assert times.high_log < bytes_.high_log


def test_few_rows_give_a_wider_interval_than_their_own_quantiles(judged: MakeJudged) -> None:
    """The finite-sample correction: with 20 rows the bounds lie at or outside the plain 10 % and 90 % quantiles."""
    rows = noisy(judged, 3, rows=20)
    values = sorted(residual(row) for row in rows)
    found = fit_intervals(rows).groups[0]
    assert found.low_log <= np.quantile(values, 0.10)
    assert found.high_log >= np.quantile(values, 0.90)
    assert found.low_log == pytest.approx(values[1])  # (20 + 1) x 0.1 = 2.1: the second smallest
    assert found.high_log == pytest.approx(values[-2])


def test_a_rate_and_a_time_are_one_residual(judged: MakeJudged) -> None:
    """Half the throughput is twice the time, and the interval of a time says so for both."""
    slow_rate = judged(metric="sequences_per_s", measured=50.0, predicted=100.0, group="training time")
    slow_time = judged(metric="iteration_time_s", measured=200.0, predicted=100.0, group="training time")
    assert residual(slow_rate) == pytest.approx(log(2))
    assert residual(slow_time) == pytest.approx(log(2))
    as_rate = judged(metric="output_tokens_per_s", measured=50.0, predicted=100.0, group="decoder throughput")
    assert residual(as_rate) == pytest.approx(-log(2))


def test_widening_holds_far_rows(judged: MakeJudged) -> None:
    """Rows two and a half times as scattered where a GPU is unknown: the interval there covers them, near ones keep
    their narrow one, and two unknowns widen more than one."""
    near = noisy(judged, 1, rows=500)
    distant = noisy(judged, 2, rows=500, sigma=0.25, unseen_factors=1)
    intervals = fit_intervals(near, distant)
    assert (
        0.75
        <= np.mean([intervals.covers(row) for row in noisy(judged, 7, rows=2000, sigma=0.25, unseen_factors=1)])
        <= 0.87
    )
    widths = [
        log(s.high_factor / s.low_factor)
        for s in (intervals.spread("training time", unseen_factors) for unseen_factors in (0, 1, 2))
    ]
    assert widths[0] < widths[1] < widths[2]
    assert widths[1] / widths[0] == pytest.approx(2.5, rel=0.2)
    assert intervals.groups[0].far_rows == 500


def test_without_far_rows_the_widening_is_a_stated_judgement(judged: MakeJudged) -> None:
    found = fit_intervals(noisy(judged, 1, rows=100)).groups[0]
    assert (found.widening, found.far_rows) == (DEFAULT_WIDENING, 0)


def test_the_prediction_lies_inside_even_where_it_is_biased(judged: MakeJudged) -> None:
    """An interval that does not hold its own value would be nonsense to a reader."""
    spread = fit_intervals(noisy(judged, 1, rows=100, sigma=0.01, bias=0.5)).spread("training time")
    assert spread.low_factor == 1.0
    assert spread.high_factor > exp(0.5)


def test_an_unknown_group_has_the_judgement() -> None:
    """Before a calibration the spreads of `sizing.assumptions` hold, turned round for a rate, wider when far."""
    none = Intervals()
    assert none.spread("training memory") == TRAINING_MEMORY_SPREAD
    assert none.spread("encoder time") == INFERENCE_TIME_SPREAD
    rate = none.spread("decoder throughput")
    assert rate.low_factor == pytest.approx(1 / INFERENCE_TIME_SPREAD.high_factor)
    assert none.spread("training memory", 1).high_factor > TRAINING_MEMORY_SPREAD.high_factor


def test_doubtful_rows_do_not_count(judged: MakeJudged) -> None:
    """Suspect rows and «fits» rows leave the interval as it is."""
    rows = noisy(judged, 1, rows=60)
    wild = [judged(measured=9e9, suspect=True), judged(metric="fits", measured=1.0, predicted=0.0)] * 30
    assert fit_intervals([*rows, *wild]) == fit_intervals(rows)


def test_a_reading_that_only_bounds_a_need_places_no_end_of_an_interval(judged: MakeJudged) -> None:
    """A device under a caching allocator shows up to twice what its run needs: intervals are of needs."""
    rows = noisy(judged, 1, rows=60)
    kept = [judged(measured=250.0, bound=True), judged(measured=250.0, bound=True, unseen_factors=1)] * 30
    assert fit_intervals([*rows, *kept], kept) == fit_intervals(rows)


def test_a_small_group_borrows_from_all(judged: MakeJudged) -> None:
    """Three rows place no 10 % quantile."""
    many = noisy(judged, 1, rows=200)
    few = [judged(group="encoder time", metric="latency_ms_mean", measured=100.1) for _ in range(3)]
    intervals = fit_intervals([*many, *few])
    assert intervals.spread("encoder time").high_factor > 1.1


def test_a_long_table_does_not_speak_for_all(judged: MakeJudged) -> None:
    """900 exact rows of one family beside 100 scattered ones of ten: the interval is still that of the scattered."""
    exact = [judged(metric="iteration_time_s", family="long", measured=100.0) for _ in range(900)]
    scattered = noisy(judged, 1, rows=100, sigma=0.3)
    assert fit_intervals([*exact, *scattered]).spread("training time").high_factor > 1.3


def test_a_familys_interval_does_not_see_the_family(judged: MakeJudged) -> None:
    """Taking one family's rows away changes every interval but its own."""
    rows = noisy(judged, 1, rows=300, families=3)
    less = [row for row in rows if row.family != "f0"]
    assert intervals_without_family(rows)["f0"] == fit_intervals(less)
    assert intervals_without_family(rows)["f1"] != fit_intervals(less)


def test_two_families_borrow_the_spread_of_their_kin(judged: MakeJudged) -> None:
    """Encoders of one quiet family take vision's spread too, without kin that of all; five families stand alone."""
    from dataclasses import replace

    def of(group: str, sigma: float, families: int, seed: int) -> list[JudgedRow]:
        rows = noisy(judged, seed, rows=100, sigma=sigma, families=families)
        return [replace(row, group=group, family=f"{group} {row.family}") for row in rows]

    quiet, loud = of("encoder time", 0.02, 1, 1), of("vision time", 0.3, 2, 2)
    alone = fit_intervals(quiet).spread("encoder time").high_factor
    assert fit_intervals([*quiet, *loud]).spread("encoder time").high_factor > 1.2 * alone
    stranger = of("decoder rate", 0.3, 2, 3)
    assert fit_intervals([*quiet, *stranger]).spread("encoder time").high_factor > 1.2 * alone
    many = of("encoder time", 0.02, 5, 4)
    both = fit_intervals([*many, *loud]).spread("encoder time")
    assert both == fit_intervals(many).spread("encoder time")


def test_rows_of_one_laboratory_do_not_speak_for_all(judged: MakeJudged) -> None:
    """900 exact rows of one source, in nine families, beside 100 scattered ones of ten sources: the interval is that of
    the scattered. As nine sources they would be most of the evidence."""
    exact = [
        judged(metric="iteration_time_s", family=f"own {n % 9}", source="own", measured=100.0, row_id=f"e{n}")
        for n in range(900)
    ]
    scattered = [replace(row, source=f"s{row.family}") for row in noisy(judged, 1, rows=100, sigma=0.3)]
    as_nine = [replace(row, source=row.family) for row in exact]
    one, nine = (fit_intervals([*rows, *scattered]).spread("training time") for rows in (exact, as_nine))
    assert one.high_factor > 1.3
    assert one.high_factor > nine.high_factor


def test_a_sources_interval_does_not_see_the_source(judged: MakeJudged) -> None:
    """Two families measured by two laboratories each: leaving one out takes its rows of both families away."""
    rows = [replace(row, source=f"s{n % 4}", family=f"f{n % 2}") for n, row in enumerate(noisy(judged, 1, rows=300))]
    less = [row for row in rows if row.source != "s0"]
    assert intervals_without_source(rows)["s0"] == fit_intervals(less)
    assert intervals_without_family(rows)["f0"] == fit_intervals(row for row in rows if row.family == "f1")


def test_kin_adds_no_measurement_a_second_time(judged: MakeJudged) -> None:
    """Peaks predicted once more with their program blank are the same measurements: the known group, which errs less,
    does not narrow the interval of what is not stated."""
    known = [
        replace(row, metric="peak_mem_gib", group=KNOWN_MEMORY, source=f"s{n % 4}")
        for n, row in enumerate(noisy(judged, 1, rows=120, sigma=0.02))
    ]
    errors = np.random.default_rng(2).normal(0.0, 0.3, len(known))
    blank = [
        replace(row, group=UNSTATED_MEMORY, predicted=row.measured * exp(error))
        for row, error in zip(known, errors, strict=True)
    ]
    both = fit_intervals([*known, *blank])
    assert both.of_group(UNSTATED_MEMORY) == fit_intervals(blank).of_group(UNSTATED_MEMORY)


def test_a_host_of_unknown_speed_widens_what_it_bounds(judged: MakeJudged) -> None:
    """A step that goes with its host's launches is covered where the host is a third slower; any other is not."""
    intervals = fit_intervals(noisy(judged, 0, rows=200, sigma=0.05))
    slow = judged(row_id="slow", metric="iteration_time_s", family="new", measured=135.0)
    assert not intervals.covers(slow)
    assert intervals.covers(replace(slow, host_share=1.0))
    assert intervals.spread_of(slow) == intervals.spread("training time")
