"""What runs measured on a device corrects and narrows the next prediction for it."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from pathlib import Path

import pytest
from tests.calibration.measured_rows import measured_row

from tonnage.api.measured_here import with_own_rows
from tonnage.api.run_prediction import prediction_doubts
from tonnage.calibration.local_rows import rows_csv, update
from tonnage.planning.local import LocalPrediction, predict_local
from tonnage.reports.local import drift_lines, local_report
from tonnage.reports.rendering import render_report
from tonnage.settings import Settings, load_settings
from tonnage.store import open_store
from tonnage.testing.devices import fake_profile
from tonnage.workload.jobs import Lengths, TrainJob
from tonnage.workload.known import find_model

JOB = TrainJob(
    model=find_model("minilm"), samples=3200, lengths=Lengths(mean=32.0, maximum=32), epochs=1, global_batch=32,
    precision="fp32", objective="classification",
)  # fmt: skip
SLOWER = 1.3  # the machine against its first prediction


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return load_settings({"home": str(tmp_path)}, {}, tmp_path)


def first() -> LocalPrediction:
    return predict_local(JOB, fake_profile())


def keep(settings: Settings, *, gpu: str, precision: str = "fp32", id: str = "run-1", quality: str = "ok") -> None:
    """A row as a run of the job on that device leaves it in the store."""
    step_s = SLOWER * first().step_s.value
    row = measured_row(first().work, fake_profile(), id=id, metric="iteration_time_s", value=step_s, source="a run")
    note = row.note + ("; suspect: the machine was busy" if quality == "suspect" else "")
    text = rows_csv([replace(row, gpu=gpu, precision=precision, quality=quality, note=note)])
    open_store(settings.database_url).add_measurements(list(csv.DictReader(io.StringIO(text))), run=id)


def test_a_run_corrects_and_narrows_the_next_prediction(settings: Settings) -> None:
    """The figure moves most of the way to what was measured; the interval is narrower and holds it."""
    keep(settings, gpu=fake_profile().name)
    before, after = first().step_s, predict_local(JOB, with_own_rows(fake_profile(), settings).profile).step_s
    measured = SLOWER * before.value
    assert abs(after.value / measured - 1) < 0.1 < abs(before.value / measured - 1)
    assert after.high / after.low < before.high / before.low
    assert after.low <= measured <= after.high


@pytest.mark.parametrize("own", [False, True])
def test_repeats_narrow_the_interval_to_their_spread(own: bool) -> None:
    """Five runs that differ by 1 % are predicted within 5 %, a model of one's own too, whose name says nothing."""
    profile, before = fake_profile(), first()
    for number, off in enumerate((0.0, 0.01, -0.01, 0.005, -0.005)):
        row = measured_row(
            before.work, profile, id=f"run-{number}", metric="iteration_time_s", source="a run",
            value=SLOWER * (1 + off) * first().step_s.value, log_sd=0.02, steps=100,
        )  # fmt: skip
        profile = update(profile, [replace(row, model="/home/me/model", family="bert") if own else row])
    after = predict_local(JOB, profile)
    assert after.step_s.value == pytest.approx(SLOWER * before.step_s.value, rel=0.02)
    assert after.step_s.high / after.step_s.low < 1.1 < before.step_s.high / before.step_s.low


def test_a_profile_that_has_drifted_is_said() -> None:
    """Twice as slow as the curves leave open, and repeats that differ by a half: both are said, with figures."""
    profile, before = fake_profile(), first()
    assert before.drift is None
    for number, factor in enumerate((2.0, 3.0)):
        seconds = factor * before.step_s.value
        row = measured_row(before.work, profile, id=f"r{number}", metric="iteration_time_s", value=seconds, source="a")
        profile = update(profile, [row])
    after = predict_local(JOB, profile)
    assert after.drift is not None
    assert (after.drift.runs, after.drift.drifted, after.drift.unsteady) == (2, True, True)
    lost, differ = drift_lines(after.drift)
    assert "2 runs took 2.45 times as long as its curves say" in lost
    assert "2 runs of this work took up to" in differ
    page = render_report(local_report("w", after, ()), "table")
    assert "no longer holds for this work" in page
    alike = predict_local(JOB, update(fake_profile(), [replace(row, value=1.02 * before.step_s.value)])).drift
    assert alike is not None
    assert drift_lines(alike) == ()


def test_a_time_of_a_busy_machine_is_left_out_and_said(settings: Settings) -> None:
    """The row teaches nothing, and the reader hears why."""
    keep(settings, gpu=fake_profile().name, quality="suspect")
    found = with_own_rows(fake_profile(), settings)
    assert found.profile.rows == ()
    assert found.left_out == ("row run-1: suspect: the machine was busy",)
    assert "1 measured row left out of the prediction" in prediction_doubts({"rows_left_out": found.left_out})[0]


def test_a_row_under_the_processors_own_name_counts(settings: Settings) -> None:
    """A run names the device as its driver does."""
    keep(settings, gpu=fake_profile().identity.processor)
    assert len(with_own_rows(fake_profile(), settings).profile.rows) == 1


def test_rows_of_others_and_rows_that_say_nothing_here_are_left_out(settings: Settings) -> None:
    """Another device's row, and one in a precision that the profile has no curve of."""
    keep(settings, gpu="Another CPU")
    keep(settings, gpu=fake_profile().name, precision="fp16", id="run-2")
    found = with_own_rows(fake_profile(), settings)
    assert found.profile.rows == ()
    (why,) = found.left_out
    assert "row run-2: precision 'fp16'" in why


def test_planning_makes_no_database(settings: Settings, tmp_path: Path) -> None:
    """Where no run was ever stored, there is nothing to read and nothing is written."""
    assert with_own_rows(fake_profile(), settings).profile == fake_profile()
    assert list(tmp_path.iterdir()) == []
