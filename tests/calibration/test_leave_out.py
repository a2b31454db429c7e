"""No row is ever judged by a fit that saw its family."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import MappingProxyType

import pytest

from tonnage.calibration.calibrating import calibrate_tables, cross_validate
from tonnage.calibration.intervals import DEFAULT_WIDENING
from tonnage.calibration.kinds import FactKind
from tonnage.calibration.leave_out import leave_one_out, left_out
from tonnage.calibration.prediction import JudgedRow, SkippedRow
from tonnage.catalog.loading import load_catalog
from tonnage.errors import InputError

from .conftest import Write

Row = tuple[str, int]
ROWS: list[Row] = [("b", 1), ("a", 2), ("c", 3), ("a", 4)]


def fit(rows: list[Row]) -> frozenset[str]:
    """The families a fit saw."""
    return frozenset(family for family, _ in rows)


def judge(rows: list[Row], fitted: frozenset[str]) -> list[JudgedRow | SkippedRow]:
    return [SkippedRow(row_id=str(n), metric=family, reason=" ".join(sorted(fitted))) for family, n in rows]


def test_the_family_judged_was_not_fitted() -> None:
    """Each row comes once, in order of family and then of the file, with a fit of exactly the other families."""
    found = leave_one_out(ROWS, lambda row: row[0], fit, judge)
    assert [(one.row_id, one.reason) for one in found if isinstance(one, SkippedRow)] == [
        ("2", "b c"), ("4", "b c"), ("1", "a c"), ("3", "a b"),
    ]  # fmt: skip


def test_rounds_tell_how_far_they_are() -> None:
    reported: list[tuple[str, int, int]] = []
    rounds = list(left_out(ROWS, lambda row: row[0], fit, judge, on_step=lambda *step: reported.append(step)))
    assert reported == [("a", 1, 3), ("b", 2, 3), ("c", 3, 3)]
    assert [one.fitted for one in rounds] == [{"b", "c"}, {"a", "c"}, {"a", "b"}]


@pytest.mark.heavy
def test_side_by_side_gives_the_same() -> None:
    """Two processes: the same results in the same order, fits with read-only tables included."""

    def table(rows: list[Row]) -> MappingProxyType[str, int]:
        return MappingProxyType(dict(rows))

    def told(rows: list[Row], fitted: MappingProxyType[str, int]) -> list[JudgedRow | SkippedRow]:
        return [SkippedRow(row_id=str(n), metric=family, reason=str(sorted(fitted.items()))) for family, n in rows]

    one, two = (list(left_out(ROWS, lambda row: row[0], table, told, jobs=jobs)) for jobs in (1, 2))
    assert one == two
    assert two[0].fitted == {"b": 1, "c": 3}


@pytest.mark.heavy
def test_an_error_in_a_process_comes_back() -> None:
    """What a fit raises is raised here."""

    def fails(rows: list[Row]) -> frozenset[str]:
        raise InputError(f"{len(rows)} rows are too few")

    with pytest.raises(InputError, match="2 rows are too few"):
        leave_one_out(ROWS, lambda row: row[0], fails, judge, jobs=2)


@pytest.mark.parametrize("rows", [[], ROWS[:1]])
def test_one_value_is_an_error(rows: list[Row]) -> None:
    with pytest.raises(InputError, match="nothing is left to fit on"):
        leave_one_out(rows, lambda row: row[0], fit, judge)


def test_cross_validation_sees_every_row_twice(write: Write, kind: FactKind) -> None:
    """Once fitted, once left out; a model stands for its family where none is stated; unusable rows stay skipped."""
    path = write(
        [
            {"family": "A", "value": "100", "gpu": "T4"},
            {"family": "A", "value": "100", "gpu": "L4"},
            {"family": "", "model": "B", "value": "300", "gpu": "T4"},
            {"value": "nan"},
        ]
    )
    part = cross_validate(kind, path, load_catalog())
    assert {row.row_id: row.predicted for row in part.judged if isinstance(row, JudgedRow)} == {
        "t1": 200.0, "t2": 100.0, "t3": 200.0,
    }  # fmt: skip
    assert {row.row_id: row.predicted for row in part.left_out if isinstance(row, JudgedRow)} == {
        "t1": 300.0, "t2": 300.0, "t3": 100.0,
    }  # fmt: skip
    assert [one.row_id for one in part.left_out if isinstance(one, SkippedRow)] == ["t4"]
    assert {row.row_id for row in part.distant} == {
        "t1",
        "t2",
        "t3",
    }  # t2 also without its family: L4 unseen then
    assert part.data.rows == 3


def test_no_round_begins_at_a_fit_to_all_families(write: Write, kind: FactKind) -> None:
    """A fit that starts where all rows put it has seen what is left out: every round begins at the judgements made
    before any fit, by which what rows leave open is settled too."""
    begun: list[object] = []

    def fit(rows: list[object], catalog: object, start: object) -> object:
        begun.append(start)
        return kind.fit(rows, catalog, start)  # type: ignore[arg-type]

    path = write([{"family": family, "gpu": gpu} for family in "AB" for gpu in ("T4", "L4")])
    cross_validate(replace(kind, fit=fit), path, load_catalog())
    assert begun == [None] * 7  # all rows; without each family, GPU and generation


def test_peaks_of_unseen_families_speak_for_intervals_alone(write: Write, kind: FactKind) -> None:
    """A further table is in no fit and in no figure of what was left out; its peaks, and every peak with its program
    not stated, stand beside. A family that the table has too is none that no fit saw."""
    path = write([{"family": "A", "value": "100"}, {"family": "B", "metric": "peak_mem_gib", "value": "300"}])
    more = write(
        [
            {"id": "u1", "family": "C", "metric": "peak_mem_gib", "value": "10"},
            {"id": "u2", "family": "A", "metric": "peak_mem_gib", "value": "10"},
            {"id": "u3", "family": "C", "value": "10"},
        ],
        name="more.csv",
    )
    asked = replace(
        kind,
        prints_peak=lambda row: row.metric == "peak_mem_gib",
        unstated=lambda row: replace(row, id=f"{row.id} unstated"),
    )
    part = cross_validate(asked, path, load_catalog(), peaks=[more])
    assert [row.row_id for row in part.beside] == ["u1", "u1 unstated", "t2 unstated"]
    assert part.beside[-1].predicted == 100.0  # by the fit that has not seen its family
    assert part.fitted.usual == 200.0
    assert {row.row_id for row in part.left_out} == {"t1", "t2"}


def test_an_unseen_device_widens_by_what_devices_left_out_err(
    write: Write, kind: FactKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every family has rows on every GPU, so that no family left out is alone on its device: the widening is measured
    all the same, on each GPU left out of the fit. Two of three run at 100, one at 140: the fit without that one is off
    by more than rows of known devices are, and `make accuracy` says so just as `tonnage calibrate` does."""
    speeds = {"T4": (90, 110), "L4": (90, 110), "A10": (120, 140)}
    rows = [
        {"family": family, "gpu": gpu, "value": str(values[number % 2]), "source": f"{family}/table"}
        for family in "ABC"
        for gpu, values in speeds.items()
        for number in range(4)
    ]
    path = write(rows)
    monkeypatch.setattr("tonnage.calibration.calibrating.kind_named", lambda _: kind)
    made, parts = calibrate_tables({"training": path}, load_catalog(), made_on="2026-11-27")
    (group,) = made.intervals.groups
    assert {name: sum(map(len, rounds)) for name, rounds in parts["training"].apart.items()} == {
        "gpu": 36, "generation": 36,
    }  # fmt: skip
    assert group.far_rows == 72
    assert group.widening != DEFAULT_WIDENING
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    page = import_module("accuracy_study")
    monkeypatch.setattr(page, "MEASURED_ROWS", path.parent / "none")
    on_page, studies = page.calibrate_studied({"training": path}, load_catalog(), made_on="2026-11-27")
    assert on_page == made
    assert studies["training"].part == parts["training"]


def test_a_further_table_that_is_missing_is_told_before_anything_is_fitted(
    write: Write, kind: FactKind, tmp_path: Path
) -> None:
    steps: list[str] = []
    with pytest.raises(InputError, match="cannot be read"):
        cross_validate(
            kind, write([{"family": "A"}, {"family": "B"}]), load_catalog(), peaks=[tmp_path / "none.csv"],
            on_step=lambda left_out, number, of: steps.append(f"{left_out} {number} of {of}"),
        )  # fmt: skip
    assert steps == []
