"""What runs measured on a device corrects and narrows the next prediction for it."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from pathlib import Path

import pytest

from tonnage.api.measured_here import with_own_rows
from tonnage.calibration.local_rows import measured_row, rows_csv
from tonnage.planning.local import LocalPrediction, predict_local
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


def keep(settings: Settings, *, gpu: str, precision: str = "fp32", id: str = "run-1") -> None:
    """A row as a run of the job on that device leaves it in the store."""
    step_s = SLOWER * first().step_s.value
    row = measured_row(first().work, fake_profile(), id=id, metric="iteration_time_s", value=step_s, source="a run")
    text = rows_csv([replace(row, gpu=gpu, precision=precision)])
    open_store(settings.database_url).add_measurements(list(csv.DictReader(io.StringIO(text))), run=id)


def test_a_run_corrects_and_narrows_the_next_prediction(settings: Settings) -> None:
    """The figure moves most of the way to what was measured; the interval is narrower and holds it."""
    keep(settings, gpu=fake_profile().name)
    before, after = first().step_s, predict_local(JOB, with_own_rows(fake_profile(), settings).profile).step_s
    measured = SLOWER * before.value
    assert abs(after.value / measured - 1) < 0.1 < abs(before.value / measured - 1)
    assert after.high / after.low < before.high / before.low
    assert after.low <= measured <= after.high


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
