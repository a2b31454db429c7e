"""What the summary says of known errors."""

from __future__ import annotations

import random

import pytest

from tonnage.calibration.intervals import GroupInterval, Intervals
from tonnage.calibration.kinds import FactKind, device_capacity, seen_names, with_distance, with_hints
from tonnage.calibration.prediction import JudgedRow, SkippedRow
from tonnage.calibration.store import Calibration
from tonnage.calibration.validating import validate_file, validate_left_out
from tonnage.calibration.validation import validate
from tonnage.catalog.loading import load_catalog
from tonnage.errors import InputError

from .conftest import MakeJudged, Write

TEN_PERCENT = Intervals(
    groups=(
        GroupInterval(
            group="training time", rows=100, families=5, low_log=-0.1, centre_log=0.0, high_log=0.1, widening=2.0,
            far_rows=0,
        ),
    )
)  # fmt: skip


def test_errors_are_relative_to_what_was_measured(judged: MakeJudged) -> None:
    """|predicted / measured - 1|: median, 90th percentile (linear between rows), bias, share inside the interval."""
    results = [judged(row_id=f"t{p}", predicted=float(p)) for p in (50, 95, 100, 105, 150)]
    [line] = validate(results, TEN_PERCENT).metrics
    assert (line.n, line.median_abs_pct, line.bias_pct) == (5, pytest.approx(5.0), pytest.approx(0.0))
    assert line.p90_abs_pct == pytest.approx(50.0)
    assert line.coverage80 == pytest.approx(0.6)


def test_rows_add_up(judged: MakeJudged) -> None:
    """rows = predicted + skipped + suspect; suspect rows are in no other figure."""
    results = [
        judged(), judged(row_id="t2", predicted=900.0, suspect=True),
        SkippedRow(row_id="t3", metric="x", reason="why"), SkippedRow(row_id="t4", metric="x", reason="why"),
        SkippedRow(row_id="t5", metric="x", reason="hidden", suspect=True),
    ]  # fmt: skip
    found = validate(results)
    assert (found.rows, found.predicted, found.skipped) == (5, 1, (("why", 2),))
    assert (found.suspect.rows, found.suspect.predicted) == (2, 1)
    assert found.metrics[0].median_abs_pct == pytest.approx(0.0)
    assert found.suspect.metrics[0].median_abs_pct == pytest.approx(800.0)
    assert [row.row_id for row in found.worst] == ["t1"]


@pytest.mark.parametrize("predicted", [0.0, -1.0, float("nan"), float("inf")])
def test_a_prediction_that_is_none_is_counted_as_skipped(judged: MakeJudged, predicted: float) -> None:
    found = validate([judged(predicted=predicted), judged(row_id="t2")])
    assert (found.predicted, found.skipped) == (1, (("the prediction is not a positive number", 1),))


def test_by_gpu_and_family_keep_metrics_apart(judged: MakeJudged) -> None:
    """A line a pair of GPU (or family) and metric; the counts add up to all rows."""
    results = [
        judged(gpu="T4", family="A"), judged(gpu="T4", family="B", predicted=110.0),
        judged(gpu="V100", family="B", metric="peak_mem_gib", group="training memory", predicted=120.0),
    ]  # fmt: skip
    found = validate(results)
    assert [(line.name, line.metric, line.n) for line in found.by_gpu] == [
        ("T4", "sequences_per_s", 2),
        ("V100", "peak_mem_gib", 1),
    ]
    assert [(line.name, line.metric, round(line.median_abs_pct)) for line in found.by_family] == [
        ("A", "sequences_per_s", 0),
        ("B", "peak_mem_gib", 20),
        ("B", "sequences_per_s", 10),
    ]
    assert [(line.metric, line.n) for line in found.groups] == [("training time", 2), ("training memory", 1)]


def test_the_ten_worst_in_either_direction(judged: MakeJudged) -> None:
    """Ordered by |ln(predicted / measured)|: a tenth is as wrong as ten times; equals keep their order."""
    results = [judged(row_id=f"t{n}", predicted=100.0 + n) for n in range(40)]
    random.Random(0).shuffle(results)
    results += [judged(row_id="tenth", predicted=10.0), judged(row_id="tenfold", predicted=1000.0)]
    worst = [row.row_id for row in validate(results).worst]
    assert worst == ["tenth", "tenfold", *(f"t{n}" for n in range(39, 31, -1))]


def test_fits_and_memory_rows_say_what_fits(judged: MakeJudged) -> None:
    """«fits» rows by their word; a memory row ran on its own device, so that predicting more than it has is wrong."""
    results = [
        judged(metric="fits", measured=0.0, predicted=1.0), judged(metric="fits", measured=0.0, predicted=0.0),
        judged(metric="fits", measured=1.0, predicted=0.0),
        judged(metric="peak_mem_gib", group="training memory", measured=14.0, predicted=14.2),
        judged(metric="peak_mem_gib", group="training memory", measured=14.0, predicted=15.5),
        judged(metric="peak_mem_gib", group="training memory", gpu="unheard of", measured=14.0, predicted=99.0),
        judged(metric="fits", measured=0.0, predicted=1.0, suspect=True),
    ]  # fmt: skip
    found = validate(results, capacity_of=lambda gpu: 15.0 if gpu == "T4" else None)
    assert (found.memory_fit.n, found.memory_fit.false_fits, found.memory_fit.false_misfits) == (5, 1, 2)
    assert found.predicted == 6
    assert [line.metric for line in found.metrics] == ["peak_mem_gib"]


def test_a_device_keeps_the_margin_free() -> None:
    """Capacity is what the driver reports, or what is sold, less the margin; an unknown device has none."""
    catalog = load_catalog()
    device = catalog.accelerator("A100-80GB-SXM")
    sold = device.usable_memory_gib or device.memory_gib
    assert sold is not None
    assert device_capacity(catalog, 0.10)("A100-80GB-SXM") == pytest.approx(0.9 * sold)
    assert device_capacity(catalog)("VRAM-24GB") is None


def test_an_unknown_gpu_is_skipped_with_a_hint(write: Write, kind: FactKind) -> None:
    """The reason names what was meant; a reason of another sort stays."""
    row = next(item for item in kind.read(write([{"gpu": "H10O-80GB-SXM"}]), load_catalog()))
    other = SkippedRow(row_id=row.id, metric=row.metric, reason="length not stated")
    unknown = SkippedRow(row_id=row.id, metric=row.metric, reason="GPU not in the catalog: H10O-80GB-SXM")
    found = list(with_hints([row], [unknown, other], load_catalog()))
    assert "no accelerator named 'H10O-80GB-SXM'" in found[0].reason
    assert "did you mean" in found[0].reason
    assert found[1] == other


def test_an_unseen_gpu_or_engine_lies_further_away(write: Write, kind: FactKind) -> None:
    """At least one step, whatever the judge counted; a blank name is no unknown, and an alias is its device."""
    rows = list(kind.read(write([{"gpu": "T4"}, {"gpu": "L4"}, {"gpu": ""}]), load_catalog()))
    results = [
        JudgedRow(row_id=row.id, metric="m", family="F", gpu=row.gpu, measured=1.0, predicted=1.0, suspect=False,
               group="training time", unseen_factors=0) for row in rows
    ]  # fmt: skip
    found = list(with_distance(kind, rows, results, {"gpu": frozenset({"T4"})}, load_catalog()))
    assert [one.unseen_factors for one in found if isinstance(one, JudgedRow)] == [0, 1, 0]
    alias = list(kind.read(write([{"gpu": "H100-80GB-SXM"}]), load_catalog()))
    assert seen_names(kind, alias, load_catalog()) == {"gpu": frozenset({"H100-SXM"})}
    assert seen_names(kind, rows, load_catalog()) == {"gpu": frozenset({"T4", "L4"})}


def test_a_margin_is_held_against_the_memory_a_row_states(judged: MakeJudged) -> None:
    """23 GiB needed of 24: it fits with none kept free, not with a tenth."""
    row = judged(metric="fits", measured=1.0, predicted=1.0, needed_gib=23.0, capacity_gib=24.0)
    assert validate([row], margin_fraction=0.0).memory_fit.false_misfits == 0
    assert validate([row], margin_fraction=0.1).memory_fit.false_misfits == 1


def test_no_rows_are_no_error() -> None:
    """An empty table gives zeros and empty lists."""
    found = validate([])
    assert (found.rows, found.predicted, found.metrics, found.worst, found.memory_fit.n) == (0, 0, (), (), 0)


def test_quality_comes_from_the_row(write: Write, kind: FactKind) -> None:
    """A row marked suspect is counted apart even where the judge does not look."""
    path = write([{}, {"quality": "suspect", "value": "900"}, {"metric": "sequences_per_s", "value": "nan"}])
    rows = [row for row in kind.read(path, load_catalog()) if not isinstance(row, SkippedRow)]
    fitted = kind.fit(rows[:1], load_catalog(), None)
    found = validate_file(kind, path, load_catalog(), _calibration(fitted))
    assert (found.rows, found.predicted, found.suspect.rows) == (3, 1, 1)
    assert dict(found.skipped) == {"value is not finite": 1}


def test_left_out_rows_are_judged_by_the_others(write: Write, kind: FactKind) -> None:
    """Two families on one GPU: each is predicted at the other's rate."""
    path = write([{"family": "A", "value": "100"}, {"family": "B", "value": "200"}])
    found = validate_left_out(kind, path, load_catalog(), leave_out="family")
    assert {row.row_id: row.predicted for row in found.worst} == {"t1": 200.0, "t2": 100.0}


def test_one_family_cannot_be_left_out(write: Write, kind: FactKind) -> None:
    """Nothing would be left to fit on; and a table that names no engine says so."""
    path = write([{}, {}])
    with pytest.raises(InputError, match="nothing is left to fit on"):
        validate_left_out(kind, path, load_catalog(), leave_out="family")
    with pytest.raises(InputError, match="do not name their engine"):
        validate_left_out(kind, path, load_catalog(), leave_out="engine")


def test_the_file_is_read_as_it_is_judged(write: Write, kind: FactKind) -> None:
    """A broken line far behind stops the run with its place; progress before it was told in rows."""
    path = write([{} for _ in range(12_000)])
    path.write_text(path.read_text() + "broken\n")
    reported: list[int] = []
    with pytest.raises(InputError, match="line 12002"):
        validate_file(kind, path, load_catalog(), None, on_rows=reported.append)
    assert reported == [5_000, 10_000]


def _calibration(fitted: object) -> Calibration:
    return Calibration(made_on="2026-11-20", left_out="family", training=fitted, inference=None, intervals=Intervals())
