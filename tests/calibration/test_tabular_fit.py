"""Rows of benches back into predictions of tables: what a fit finds, what leaving a table out shows, files, plans."""

from __future__ import annotations

import csv
import io
import json
import random
from dataclasses import replace
from math import exp
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tonnage
from tonnage.calibration.columns import TRAINING_COLUMNS
from tonnage.calibration.prediction import SkippedRow
from tonnage.calibration.tabular_file import load_tabular, save_tabular, tabular_file
from tonnage.calibration.tabular_fit import correction, fit_tabular, gpu_spread
from tonnage.calibration.tabular_rows import TabularRow, physics, read_tabular_rows
from tonnage.errors import InputError, WorkloadError
from tonnage.reports.engine_bench_rows import ROW_COLUMNS
from tonnage.sizing.tabular import MLP_TIME_SPREAD, TREES_TIME_ON_CPUS_SPREAD, CpuColumns
from tonnage.workload.jobs import TabularJob

MEASURED = Path(__file__).parents[2] / "benchmarks" / "results" / "tabular_bench_2026-11-27.csv"


def row(engine: str, table: int, seconds: float, predicted_s: float, **changes: Any) -> TabularRow:
    values = {
        "id": f"{engine}/{table}/{seconds}", "configuration": f"{engine}/{table}", "engine": engine, "device": "here",
        "method": "boosted-trees", "table": f"t{table}", "passes": 100.0, "seconds": seconds,
        "predicted_s": predicted_s,
    }  # fmt: skip
    return TabularRow(**values | changes)  # type: ignore[arg-type]


def drawn(engine: str, factor: float, pass_s: float, start_s: float, noise: float, tables: int) -> list[TabularRow]:
    """Tables from a tenth of a second to a hundred, measured as the model says, with noise a table."""
    random_ = random.Random(5)
    found = []
    for table in range(tables):
        predicted_s, passes = 10 ** random_.uniform(-1.5, 2), random_.choice([50.0, 100.0, 200.0])
        seconds = (factor * predicted_s + pass_s * passes + start_s) * exp(random_.gauss(0, noise))
        found.append(row(engine, table, seconds, predicted_s, passes=passes))
    return found


def fit_of(rows: list[TabularRow]) -> Any:
    return fit_tabular(rows, made_on="2026-11-27", rows_sha256="0" * 64)


def test_what_an_engine_costs_is_found() -> None:
    """Twice the physics, 20 ms a tree and 3 s once: a table that no row is of is predicted within a tenth, where the
    physics alone is off by a factor of 50."""
    fit = fit_of(drawn("sparkling-gbm", 2.0, 0.02, 3.0, 0.02, 12))
    change = correction(fit, method="boosted-trees", engine="sparkling-gbm", passes=100.0, device="here")
    for predicted_s in (0.1, 10.0, 50.0):
        assert change.seconds(np.array([predicted_s]), 2.0)[0] == pytest.approx(2 * predicted_s + 2.0 + 3.0, rel=0.1)
    (engine,) = fit.engines
    assert engine.left_out_median_pct < 10.0 < engine.before_median_pct
    assert engine.tables == 12


def test_one_table_of_an_engine_that_costs_a_start() -> None:
    """40 times the physics on one small table: that a training costs seconds once is likelier than every cell
    doing so, and a large table is not predicted 40 times as slow."""
    fit = fit_of([row("sparkling-gbm x2", 1, 20.0, 0.5, passes=50.0)])
    change = correction(fit, method="boosted-trees", engine="sparkling-gbm", passes=50.0, device="here", workers=2)
    assert change.seconds(np.array([0.5]), 2.0)[0] == pytest.approx(20.0, rel=0.5)
    assert change.seconds(np.array([6.0]), 2.0)[0] < 60.0


def test_intervals_narrow_with_tables_and_hold() -> None:
    """From the judged interval towards the noise of the tables; and four of five left-out tables lie within it."""
    widths = []
    for tables in (1, 3, 10, 40):
        fit = fit_of(drawn("xgboost", 1.4, 1e-4, 1e-2, 0.15, tables))
        change = correction(fit, method="boosted-trees", engine="xgboost", passes=100.0, device="here")
        widths.append(change.spread.high_factor)
    assert widths[0] == pytest.approx(TREES_TIME_ON_CPUS_SPREAD.high_factor)
    assert widths == sorted(widths, reverse=True)
    assert widths[-1] < 1.4
    assert 0.7 <= fit_of(drawn("xgboost", 1.4, 1e-4, 1e-2, 0.15, 40)).engines[0].left_out_inside <= 1.0


def test_without_rows_nothing_changes() -> None:
    """No fit, and an engine that no row is of: the physics. An engine that the physics is not of is less sure, on
    GPUs too."""
    fit = fit_of(drawn("xgboost", 1.4, 1e-4, 1e-2, 0.1, 5))
    for given in (None, fit):
        for method, engine, prior in (
            ("boosted-trees", None, TREES_TIME_ON_CPUS_SPREAD),
            ("mlp", None, MLP_TIME_SPREAD),
        ):
            if given is not None and method == "boosted-trees":
                continue
            change = correction(given, method=method, engine=engine, passes=10.0, device=None)
            assert change.seconds(np.array([3.0]), 2.0)[0] == 3.0
            assert change.spread == prior
        other = correction(given, method="boosted-trees", engine="catboost", passes=10.0, device=None)
        assert other.seconds(np.array([3.0]), 2.0)[0] == 3.0
        assert other.spread.high_factor > 3.0
    job = TabularJob(rows=1000, features=10)
    assert gpu_spread(job).high_factor < gpu_spread(replace(job, engine="lightgbm")).high_factor


def test_another_device_is_less_sure() -> None:
    """A device that rows are of keeps its own factor; any other takes the engine's, and a wider interval."""
    fit = fit_of(drawn("xgboost", 1.4, 1e-4, 1e-2, 0.1, 8))
    here, there = (
        correction(fit, method="boosted-trees", engine=None, passes=1.0, device=one) for one in ("here", "there")
    )
    assert here.own_device
    assert not there.own_device
    assert there.spread.high_factor > here.spread.high_factor
    assert there.device == 1.0


def test_order_does_not_matter() -> None:
    """The same figures whatever the order of the rows."""
    rows = drawn("xgboost", 1.4, 1e-3, 0.1, 0.1, 6) + drawn("lightgbm", 0.7, 1e-3, 0.1, 0.1, 6)
    assert fit_of(rows) == fit_of(rows[::-1])


def written(tmp_path: Path, **changes: str) -> Path:
    """A file of one row as `tonnage bench` writes it, with some of its cells or notes changed."""
    note = {"data": "d", "rows": "700", "columns": "10", "threads": "2", "workers": "1", "threads_per_core": "1",
            "arm": "no", "repeat": "1", "passes": "100", "trees": "100", "depth": "6", "bins": "256"}  # fmt: skip
    cells = {"id": "a/1", "config_id": "a", "source": "b", "model": "xgboost", "gpu": "cpu", "n_gpus": ""}
    cells |= {"global_batch": "", "precision": "fp32", "method": "trees", "metric": "work_s", "value": "0.5"}
    note |= {key: value for key, value in changes.items() if key in note}
    cells |= {key: value for key, value in changes.items() if key in cells}
    out = io.StringIO()
    table = csv.writer(out)
    table.writerow(ROW_COLUMNS)
    table.writerow([*cells.values(), "; ".join(f"{key}={value}" for key, value in note.items() if value)])
    path = tmp_path / "rows.csv"
    path.write_text(out.getvalue(), encoding="utf-8")
    return path


def test_a_row_is_read_with_its_physics(tmp_path: Path) -> None:
    """The job of the note on the threads of the note, as `kind: tabular` predicts it."""
    (found,) = read_tabular_rows(written(tmp_path))
    assert isinstance(found, TabularRow)
    cores = CpuColumns(vcpus=np.array([2.0]), memory_bytes=np.array([1e12]), arm=np.array([False]),
                       threads_per_core=np.array([1.0]))  # fmt: skip
    expected = physics(TabularJob(rows=700, features=10, trees=100), cores).total_s[0]
    assert found.predicted_s == pytest.approx(float(expected))
    assert (found.engine, found.table) == ("xgboost", "d 700x10")


@pytest.mark.parametrize(
    ("changes", "words"),
    [({"value": "nan"}, "nan seconds"), ({"value": "x"}, "could not convert"), ({"method": "svm"}, "none of trees"),
     ({"rows": "0"}, "rows: found 0"), ({"depth": ""}, "does not say depth"), ({"n_gpus": "1"}, "rows of GPUs"),
     ({"threads_per_core": "-1"}, "threads_per_core: found")],
)  # fmt: skip
def test_a_row_that_says_too_little_is_skipped_with_its_reason(
    tmp_path: Path, changes: dict[str, str], words: str
) -> None:
    """Never guessed; and where no row is left the command says the first reason."""
    path = written(tmp_path, **changes)
    (found,) = read_tabular_rows(path)
    assert isinstance(found, SkippedRow)
    assert words in found.reason
    with pytest.raises(InputError, match="no row of"):
        tonnage.calibrate_tabular([path])


def test_files_that_are_no_rows(tmp_path: Path) -> None:
    """A missing file, a missing column, a foreign column."""
    with pytest.raises(InputError, match="no such file"):
        list(read_tabular_rows(tmp_path / "none.csv"))
    for header, words in (
        ("id,value\n", "no column 'config_id'"),
        (",".join([*ROW_COLUMNS, "x"]), "'x' is not a column"),
    ):
        (tmp_path / "bad.csv").write_text(header, encoding="utf-8")
        with pytest.raises(InputError, match=words):
            list(read_tabular_rows(tmp_path / "bad.csv"))
    assert set(ROW_COLUMNS) <= set(TRAINING_COLUMNS)


def test_a_fit_is_saved_and_loaded(tmp_path: Path) -> None:
    """What is saved loads back equal; a damaged file says what to do; none is none."""
    fit = fit_of(drawn("xgboost", 1.4, 1e-4, 1e-2, 0.1, 4))
    assert load_tabular(tmp_path) is None
    save_tabular(fit, tabular_file(tmp_path))
    assert load_tabular(tmp_path) == fit
    for text in ("{", '{"schema": "other"}', '{"schema": "tonnage/tabular-calibration@1"}'):
        tabular_file(tmp_path).write_text(text, encoding="utf-8")
        with pytest.raises(InputError, match=r"damaged|version") as failed:
            load_tabular(tmp_path)
        assert "calibrate --tabular" in str(failed.value.hint)


@pytest.mark.heavy
def test_a_plan_of_a_table_stands_on_the_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A processor takes longer as its engine was measured to, and says by which rows; another engine and a GPU stay as
    they were. Rows of one device do not tell engine and device apart: of a factor of 3 the share of their priors,
    0.54² of 0.54² + 0.3², is the engine's and holds elsewhere."""
    monkeypatch.setenv("TONNAGE_HOME", str(tmp_path))
    work: dict[str, Any] = {"kind": "tabular", "tabular": {"rows": 2_000_000, "features": 50, "trees": 200}}
    asked: dict[str, Any] = {"as_of": "2026-11-20", "providers": "aws"}

    def option(document: dict[str, Any], machine: str) -> tuple[float, str]:
        for one in tonnage.plan(document, top=500, **asked).options:
            if one.instance_type == machine:
                return one.run.time_s.value, one.run.intervals[0].group
        raise AssertionError(machine)

    before = {name: option(work, name) for name in ("c7g.4xlarge", "g6.xlarge")}
    save_tabular(fit_of(drawn("xgboost", 3.0, 1e-4, 1e-2, 0.01, 8)), tabular_file(tmp_path))
    seconds, group = option(work, "c7g.4xlarge")
    assert seconds == pytest.approx(3.0**0.765 * before["c7g.4xlarge"][0], rel=0.02)
    assert group == "boosted-trees on cpu, xgboost on 8 tables"
    assert option(work, "g6.xlarge") == before["g6.xlarge"]
    other = work | {"tabular": work["tabular"] | {"engine": "lightgbm"}}
    assert option(other, "c7g.4xlarge") == before["c7g.4xlarge"]


def test_an_engine_that_trains_something_else_is_refused() -> None:
    """PyTorch trains networks here, the others trees."""
    for method, engine in (("boosted-trees", "pytorch"), ("mlp", "xgboost")):
        document = {"kind": "tabular", "tabular": {"rows": 1000, "features": 5, "method": method, "engine": engine}}
        with pytest.raises(WorkloadError, match="which trains"):
            tonnage.load_workload(document)


def test_measured_tables_left_out_are_nearer_than_the_physics(tmp_path: Path) -> None:
    """Rows that `tonnage bench` wrote on two shared cores: of every engine with three tables or more the tables that
    are left out are predicted better than by the physics alone, and most of them within their interval."""
    answer = tonnage.calibrate_tabular([MEASURED], out=tmp_path / "fit.json")
    judged = [one for one in answer.found.engines if one.tables >= 3]
    assert len(judged) >= 4
    for one in judged:
        assert one.left_out_median_pct is not None
        assert one.left_out_median_pct < one.before_median_pct, one.engine
    inside = [one.left_out_inside for one in judged if one.left_out_inside is not None]
    assert sum(inside) / len(inside) >= 0.7
    assert json.loads(answer.to_json())["schema"] == "tonnage/tabular-calibration-summary@1"
