"""`tonnage validate` and `tonnage calibrate` as a user runs them; the physics behind them is a stand-in here."""

from __future__ import annotations

import csv
import io
import json
import sys
from dataclasses import dataclass, fields
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tonnage.calibration.prediction import JudgedRow, SkippedRow
from tonnage.calibration.rows import InferenceRow, TrainingRow
from tonnage.calibration.store import FIT_TYPES

from .conftest import Run

KEYS = ["metric", "n", "median_abs_pct", "p90_abs_pct", "bias_pct", "coverage80"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """The stand-in's fit: one figure for all."""

    mean: float = 100.0


def judge(rows: list[Any], catalog: object, fitted: Level | None = None) -> list[JudgedRow | SkippedRow]:
    del catalog
    level = (fitted or Level()).mean
    return [
        SkippedRow(row_id=row.id, metric=row.metric, reason="no GPU stated")
        if not row.gpu
        else JudgedRow(
            row_id=row.id, metric=row.metric, family=row.family or row.model, gpu=row.gpu, measured=row.value,
            predicted=level, suspect=False, group="training memory" if "mem" in row.metric else "training time",
        )
        for row in rows
    ]  # fmt: skip


def fit(rows: list[Any], catalog: object, *, start: Level | None = None) -> Level:
    del catalog, start
    return Level(mean=sum(row.value for row in rows) / len(rows))


@pytest.fixture(autouse=True)
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """The modules that hold the physics, replaced."""
    for name in ("training", "inference"):
        judging, fitting = ModuleType(f"{name}_judge"), ModuleType(f"{name}_fit")
        setattr(judging, f"judge_{name}", judge)
        setattr(fitting, f"fit_{name}", fit)
        monkeypatch.setitem(sys.modules, f"tonnage.calibration.{name}_judge", judging)
        monkeypatch.setitem(sys.modules, f"tonnage.calibration.{name}_fit", fitting)
        monkeypatch.setitem(FIT_TYPES, name, Level)  # type: ignore[misc]


@pytest.fixture(autouse=True)
def no_packaged_calibration(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the build carries must not change these figures."""
    monkeypatch.setattr("tonnage.calibration.store.load_calibration", lambda: None)


def table(path: Path, row_type: type, rows: list[dict[str, str]]) -> str:
    plain = {"model": "BERT", "family": "A", "gpu": "T4", "metric": "sequences_per_s", "value": "100", "quality": "ok"}
    with path.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, [field.name for field in fields(row_type)], restval="", extrasaction="ignore")
        writer.writeheader()
        writer.writerows(plain | {"id": f"t{n}"} | row for n, row in enumerate(rows, start=1))
    return str(path)


@pytest.fixture
def training(tmp_path: Path) -> str:
    rows = [
        {}, {"value": "80"}, {"family": "B", "value": "125"}, {"gpu": ""}, {"quality": "suspect", "value": "1"},
        {"metric": "peak_mem_gib", "value": "14"}, {"id": "t1"},
    ]  # fmt: skip
    return table(tmp_path / "training.csv", TrainingRow, rows)


def test_the_json_form(inside: Run, training: str) -> None:
    """The keys other programs read, and figures that follow from the table."""
    done = inside("validate", "training", training, "-o", "json")
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert found["schema"] == "tonnage/validation@1"
    assert (found["rows"], found["predicted"]) == (7, 4)
    assert found["skipped"] == {"duplicate id": 1, "no GPU stated": 1}
    rates, memory = found["metrics"]
    assert list(rates) == KEYS
    assert (rates["metric"], rates["n"], rates["median_abs_pct"], rates["bias_pct"]) == ("sequences_per_s", 3, 20, 0)
    assert memory["metric"] == "peak_mem_gib"
    assert found["memory_fit"] == {"n": 1, "false_fits": 0, "false_misfits": 1}  # 100 GiB predicted on 16
    assert [(line["gpu"], line["n"]) for line in found["by_gpu"]] == [("T4", 3), ("T4", 1)]
    assert [(line["family"], line["n"]) for line in found["by_family"]] == [("A", 2), ("A", 1), ("B", 1)]
    assert found["worst"][0]["id"] == "t6"
    assert (found["worst"][0]["measured"], found["worst"][0]["predicted"]) == (14, 100)
    assert found["suspect"]["rows"] == found["suspect"]["predicted"] == 1
    assert found["rows"] == found["predicted"] + sum(found["skipped"].values()) + found["suspect"]["rows"]


@pytest.mark.parametrize("form", ["table", "csv", "md", "html"])
def test_every_form_prints(inside: Run, training: str, form: str) -> None:
    done = inside("validate", "training", training, "-o", form)
    assert (done.returncode, done.stderr) == (0, "")
    assert "sequences_per_s" in done.stdout.replace("\\", "")
    if form == "csv":
        lines = list(csv.DictReader(io.StringIO(done.stdout)))
        assert {line["scope"] for line in lines} == {"all", "group", "gpu", "family", "suspect"}


def test_leaving_out_families(inside: Run, training: str) -> None:
    """B is predicted at A's mean, not at 100."""
    done = inside("validate", "training", training, "--leave-out", "family", "-o", "json")
    found = json.loads(done.stdout)
    assert found["left_out"] == "family"
    predicted = {row["id"]: row["predicted"] for row in found["worst"]}
    assert predicted["t3"] == pytest.approx((100 + 80 + 100 + 1 + 14) / 5)
    assert predicted["t1"] == pytest.approx(125)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("validate", "cooking", "x.csv"), "'cooking' is not a kind of measured facts"),
        (("validate", "training", "missing.csv"), "missing.csv cannot be read"),
        (("validate", "training", "training.csv", "--leave-out", "luck"), "'luck' cannot be left out"),
        (("validate", "training", "training.csv", "--leave-out", "engine"), "do not name their engine"),
        (("validate", "training", "training.csv", "--calibration", "training.csv"), "cannot be read as a calibration"),
        (("validate", "training"), "Missing argument"),
        (("calibrate", "--training", "training.csv"), "Missing option"),
        (
            ("calibrate", "--training", "training.csv", "--inference", "training.csv", "--out", "no/such/c.json"),
            "is not a folder",
        ),
    ],
)
def test_bad_input_is_one_sentence(inside: Run, training: str, arguments: tuple[str, ...], said: str) -> None:
    """Exit code 2, an error and a hint on stderr, nothing on stdout."""
    assert training
    done = inside(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert len(done.stderr.splitlines()) <= 2


@pytest.mark.parametrize(
    ("column", "cell", "fault"),
    [
        ("value", "fast", "value is not a number"),
        ("params", "lots", "params is not a number"),
        ("n_layers", "2.5", "n_layers is not a whole number"),
        ("seq_len", "nan", "seq_len is not finite"),
        ("value", "-3", "value is negative"),
    ],
)
def test_a_broken_cell_skips_its_row(inside: Run, tmp_path: Path, column: str, cell: str, fault: str) -> None:
    """The other rows are judged; file, line and column of the cell are named."""
    path = table(tmp_path / "f.csv", TrainingRow, [{}, {column: cell}, {}])
    done = inside("validate", "training", path, "-o", "json")
    found = json.loads(done.stdout)
    assert (done.returncode, found["predicted"], found["skipped"]) == (0, 2, {fault: 1})
    assert (found["file"], found["skipped_at"]) == ("f.csv", {fault: [3]})
    page = " ".join(inside("validate", "training", path, "-o", "md").stdout.replace("\\", "").split())
    assert f"{fault} (f.csv, line 3)" in page


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([], "has a header and no rows"),
        ([{"quality": "suspect"}], "are marked suspect"),
        ([{"gpu": ""}], "could be judged"),
    ],
)
def test_nothing_to_judge_is_said(inside: Run, tmp_path: Path, rows: list[dict[str, str]], said: str) -> None:
    """A correct result, and one line on stderr that -q takes away."""
    path = table(tmp_path / "f.csv", TrainingRow, rows)
    done = inside("validate", "training", path, "-o", "json")
    assert done.returncode == 0
    assert said in done.stderr
    assert json.loads(done.stdout)["predicted"] == 0
    assert inside("validate", "training", path, "-q").stderr == ""


def test_an_empty_file_is_an_error(inside: Run, tmp_path: Path) -> None:
    (tmp_path / "f.csv").write_text("")
    done = inside("validate", "inference", str(tmp_path / "f.csv"))
    assert done.returncode == 2
    assert "is empty" in done.stderr


def test_an_open_quote_names_line_and_column(inside: Run, tmp_path: Path) -> None:
    """What CSV itself cannot read is placed too."""
    path = Path(table(tmp_path / "f.csv", TrainingRow, [{}, {}]))
    lines = path.read_text().splitlines()
    cells = lines[2].split(",")
    cells[3] = '"BERT'
    path.write_text("\n".join([*lines[:2], ",".join(cells)]) + "\n")
    done = inside("validate", "training", str(path))
    assert done.returncode == 2
    assert "f.csv, line 3, column 'model': not readable as CSV" in done.stderr


def test_a_short_line_names_the_column(inside: Run, tmp_path: Path) -> None:
    path = Path(table(tmp_path / "f.csv", TrainingRow, [{}]))
    path.write_text(path.read_text() + "t9,c9\n")
    done = inside("validate", "training", str(path))
    assert "line 3: 2 cells" in done.stderr
    assert "column 'source' is missing" in done.stderr


def test_a_second_row_of_an_id_is_counted(inside: Run, tmp_path: Path) -> None:
    path = table(tmp_path / "f.csv", TrainingRow, [{"id": "t1"}, {"id": "t1"}, {"id": "t2"}])
    document = json.loads(inside("validate", "training", path, "-o", "json").stdout)
    assert (document["rows"], document["predicted"], document["skipped"]) == (3, 2, {"duplicate id": 1})


def test_a_calibration_is_written_and_used(inside: Run, training: str, tmp_path: Path) -> None:
    """Byte-identical for the same clock; `validate --calibration` then predicts by it."""
    inference = table(
        tmp_path / "inference.csv", InferenceRow,
        [{"family": "", "model": m, "engine": e, "gpu": g} for m, e, g in (("x", "trt", "T4"), ("y", "ort", "L4"))],
    )  # fmt: skip
    arguments = ("calibrate", "--training", training, "--inference", inference, "--as-of", "2026-11-20")
    done = inside(*arguments, "--out", "a.json", "-o", "json")
    assert (done.returncode, done.stderr) == (0, "")
    summary = json.loads(done.stdout)
    assert summary["schema"] == "tonnage/calibration-summary@1"
    assert {line["kind"] for line in summary["residuals"]} == {"training", "inference"}
    assert inside(*arguments, "--out", "b.json").returncode == 0
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()
    used = json.loads(inside("validate", "training", training, "--calibration", "a.json", "-o", "json").stdout)
    assert used["calibration"] == "2026-11-20"
    assert used["worst"][0]["predicted"] == pytest.approx((100 + 80 + 125 + 100 + 1 + 14) / 6)
