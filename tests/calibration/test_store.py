"""What is saved loads back, whole or not at all."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

import pytest

from tonnage.calibration.calibrating import cross_validate, make_calibration, value_ranges
from tonnage.calibration.kinds import FactKind
from tonnage.calibration.store import (
    Calibration,
    digest_file,
    numbers_within,
    plain_value,
    read_calibration,
    rebuild,
    save_calibration,
)
from tonnage.catalog.loading import load_catalog
from tonnage.errors import InputError

from .conftest import Write


@dataclass(frozen=True, slots=True, kw_only=True)
class Inner:
    name: str
    curve: tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outer:
    """Every form a fit may take."""

    rate: float
    count: int
    label: str
    inner: Inner
    many: tuple[Inner, ...]
    pairs: tuple[tuple[str, float], ...]
    table: dict[str, float]
    frozen: Mapping[str, Inner]
    names: frozenset[str]
    maybe: float | None = None


OUTER = Outer(
    rate=0.1 + 0.2, count=3, label="Größe", inner=Inner(name="a", curve=(1.0, 2.0)),
    many=(Inner(name="b", curve=(3.0, 4.5)),), pairs=(("x", 1.0),), table={"k": 2.0},
    frozen=MappingProxyType({"e": Inner(name="c", curve=(5.0, 6.0))}), names=frozenset({"y", "x"}),
)  # fmt: skip


@pytest.fixture
def made(write: Write, kind: FactKind) -> Calibration:
    """A calibration of a small table by the stand-in."""
    rows = [{"family": f"F{n % 4}", "value": str(100 + n % 7), "gpu": "T4" if n % 2 else "L4"} for n in range(80)]
    part = cross_validate(kind, write(rows), load_catalog())
    return make_calibration([part], made_on="2026-11-20", left_out="family")


def test_it_loads_back_as_it_was(made: Calibration, tmp_path: Path, fit_type: type) -> None:
    """Every number to its last bit, nested values, tuples and texts."""
    rich = replace(made, inference=OUTER)
    save_calibration(rich, tmp_path / "c.json")
    assert read_calibration(tmp_path / "c.json", types={"training": fit_type, "inference": Outer}) == rich


def test_equal_input_gives_equal_bytes(made: Calibration, tmp_path: Path) -> None:
    """No clock, no order of sets, no path in the file."""
    save_calibration(made, tmp_path / "a.json")
    save_calibration(made, tmp_path / "b.json")
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()
    assert str(tmp_path) not in (tmp_path / "a.json").read_text()


def test_it_says_what_it_rests_on(made: Calibration, tmp_path: Path) -> None:
    """The digest is that of the file, each group has its left-out error, each number its range."""
    [data] = made.data
    assert data.sha256 == hashlib.sha256((tmp_path / "rows.csv").read_bytes()).hexdigest()
    assert data.rows == 80
    [line] = made.residuals
    assert (line.group, line.n) == ("training time", 80)
    assert 0 < line.left_out_median_abs_pct < 5
    assert {one.name for one in made.ranges} == {
        "training.of_gpu.T4.1",
        "training.of_gpu.L4.1",
        "training.usual",
    }
    assert all(one.low <= one.value <= one.high for one in made.ranges)
    assert made.intervals.groups[0].far_rows == 160  # each of two GPUs, and of their generations: every row twice


def test_a_range_is_what_the_other_fits_say() -> None:
    without = [replace(OUTER, rate=0.25), replace(OUTER, rate=0.5)]
    ranges = {one.name: one for one in value_ranges("fit", OUTER, without)}
    assert (ranges["fit.rate"].low, ranges["fit.rate"].high) == (0.25, 0.5)
    assert ranges["fit.inner.curve.1"].low == ranges["fit.inner.curve.1"].high == 2.0
    assert numbers_within(True, "flag") == {}


def test_ranges_are_of_fitted_figures_alone() -> None:
    """Neither the bounds of a figure nor counts of rows and residuals are listed as fitted values."""
    fit = {"values": {"launch_us": 5.0}, "ranges": {"launch_us": (1.0, 9.0)}, "rows": 80, "residuals": {"all": 0.1}}
    assert [one.name for one in value_ranges("training", fit, [fit])] == ["training.values.launch_us"]


def test_a_failed_write_leaves_the_old_file(made: Calibration, tmp_path: Path) -> None:
    """A value JSON cannot hold: the error comes before the file is touched, and nothing lies beside it."""
    path = tmp_path / "c.json"
    save_calibration(made, path)
    before = path.read_bytes()
    with pytest.raises(ValueError, match="JSON"):
        save_calibration(replace(made, training=float("nan")), path)
    assert path.read_bytes() == before
    assert {entry.name for entry in tmp_path.iterdir()} == {"c.json", "rows.csv"}
    with pytest.raises(InputError, match="cannot be written"):
        save_calibration(made, tmp_path / "missing" / "c.json")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "cannot be read"),
        ("[]", "not a calibration of this version"),
        ('{"schema": "tonnage/calibration@9"}', "not a calibration of this version"),
        ('{"schema": "tonnage/calibration@1", "made_on": "x"}', "not a complete calibration"),
    ],
)
def test_another_file_is_refused(tmp_path: Path, text: str, said: str) -> None:
    """Missing parts and other versions are named, not guessed."""
    path = tmp_path / "c.json"
    path.write_text(text)
    with pytest.raises(InputError, match=said):
        read_calibration(path)
    with pytest.raises(InputError, match="cannot be read"):
        read_calibration(tmp_path / "none.json")


def test_an_unknown_number_in_the_file_is_an_error(made: Calibration, tmp_path: Path, fit_type: type) -> None:
    """A key that the fit's type does not have: the file is of another build."""
    path = tmp_path / "c.json"
    save_calibration(made, path)
    document = json.loads(path.read_text())
    document["training"]["wish"] = 1.0
    path.write_text(json.dumps(document))
    with pytest.raises(InputError, match="wish"):
        read_calibration(path, types={"training": fit_type})


def test_rebuild_keeps_types() -> None:
    """A whole number of a float field comes back as a float."""
    assert isinstance(rebuild(float, 2), float)
    assert rebuild(tuple[float, ...], []) == ()
    with pytest.raises(ValueError, match="zip"):
        rebuild(tuple[float, float], [1.0])


def test_digest_of_a_long_file(tmp_path: Path) -> None:
    """Read in pieces, the same as at once."""
    path = tmp_path / "long"
    path.write_bytes(b"0123456789" * 300_000)
    assert digest_file(path) == hashlib.sha256(path.read_bytes()).hexdigest()


def test_infinity_survives() -> None:
    """A limit that is infinite is written as JSON can carry it, and reads back as infinity."""
    assert plain_value({"limit": float("inf")}) == {"limit": "inf"}
    assert rebuild(float, plain_value(float("inf"))) == float("inf")
    json.dumps(plain_value((float("-inf"), 1.0)), allow_nan=False)
