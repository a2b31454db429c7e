"""What goes to MLflow, from lines of a folder."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tonnage.http.urls import without_secrets
from tonnage.runs import EventKind, RunState, RunStatus
from tonnage.runs.journal import Event
from tonnage.testing import run_spec
from tonnage.tracking.places import artifacts_beside, tracking_uri
from tonnage.tracking.points import event_points, metric_points, parameters, sample_points, state_tags, status_of

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)


def test_parameters_are_what_was_asked() -> None:
    """Under dotted names, as text, nothing that nobody asked for, nothing longer than MLflow takes."""
    found = parameters(replace(run_spec(), weights="x" * 900))
    assert found["training.global_batch"] == "32"
    assert found["training.lora.rank"] == "16"
    assert found["data.columns"] == "('text', 'text') ('label', 'label')"
    assert "launch.threads" not in found
    assert len(found["weights"]) == 500


def test_a_line_gives_a_point_a_figure() -> None:
    """At its own time and step; words and flags are no figures."""
    line = {"step": 20, "at": NOON.isoformat(), "loss": 0.5, "micro_batch": 8, "note": "x", "resumed": True}
    points = metric_points(line, after_step=10)
    assert {(one.key, one.value, one.step) for one in points} == {("loss", 0.5, 20), ("micro_batch", 8.0, 20)}
    assert {one.at_ms for one in points} == {round(NOON.timestamp() * 1000)}


def test_a_step_that_was_done_again_is_not_sent_again() -> None:
    """A curve in MLflow has one point a step, whatever was lost to a kill."""
    assert metric_points({"step": 20, "at": NOON.isoformat(), "loss": 0.5}, after_step=20) == []


def test_samples_are_system_metrics() -> None:
    """Under `system/`, a GPU under its index, seconds since the start as steps."""
    later = NOON.replace(minute=1).isoformat()
    gpus = [{"index": 1, "name": "H100", "power_w": 600.0}]
    points = sample_points({"at": later, "cpu_fraction": 0.5, "gpus": gpus}, NOON)
    assert {(one.key, one.value, one.step) for one in points} == {
        ("system/cpu_fraction", 0.5, 60), ("system/gpu_1/power_w", 600.0, 60)}  # fmt: skip


def test_evaluations_during_the_run_are_points() -> None:
    """Other events are not."""
    fields = {"step": 50, "metrics": {"f1": 0.8, "n": "x"}}
    told = [Event(kind=kind, at=NOON, who="rank0", fields=fields) for kind in (EventKind.EVALUATED, EventKind.RESUMED)]
    (point,) = event_points(told)
    assert (point.key, point.value, point.step) == ("evaluation/f1", 0.8, 50)


@pytest.mark.parametrize(
    ("state", "status"),
    [
        (RunStatus.RUNNING, "RUNNING"),
        (RunStatus.RESTARTING, "RUNNING"),
        (RunStatus.SUCCEEDED, "FINISHED"),
        (RunStatus.LOST, "FAILED"),
        (RunStatus.STOPPED, "KILLED"),
        (RunStatus.PENDING, "SCHEDULED"),
    ],
)
def test_states_have_a_status(state: RunStatus, status: str) -> None:
    """MLflow knows five words; the tags keep ours."""
    assert status_of(RunState(state=state)) == status
    assert state_tags(RunState(state=state))["tonnage.state"] == state.value


def test_the_place_is_that_of_the_file_then_of_the_environment_then_at_home() -> None:
    """In this order; files of an experiment in SQLite lie beside it, not in the working folder."""
    spec, named = run_spec(), {"MLFLOW_TRACKING_URI": "http://host:5000"}
    own = replace(spec, tracking=replace(spec.tracking, uri="databricks"))
    assert tracking_uri(own, Path("/h"), named) == "databricks"
    assert tracking_uri(spec, Path("/h"), named) == "http://host:5000"
    at_home = tracking_uri(spec, Path("/h"), {})
    assert at_home == "sqlite:////h/mlflow.db"
    assert artifacts_beside(at_home) == "file:///h/mlflow-artifacts"
    assert artifacts_beside("http://host:5000") is None
    assert without_secrets("postgresql://me:secret@host/db") == "postgresql://me:***@host/db"
