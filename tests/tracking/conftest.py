"""Runs of the test's own and an MLflow in a SQLite file. Making its tables takes seconds: that is done once."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tonnage.runs import RunFolder
from tonnage.runs.spec import TrackingSpec
from tonnage.testing import run_spec, write_run
from tonnage.tracking.unavailable import reaching

if TYPE_CHECKING:
    from mlflow import MlflowClient


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("mlflow")
    path = tmp_path_factory.mktemp("mlflow") / "mlflow.db"
    client_of(f"sqlite:///{path}").search_experiments()
    return path


@pytest.fixture
def uri(tmp_path: Path, empty_database: Path) -> str:
    path = tmp_path / "mlflow" / "mlflow.db"
    path.parent.mkdir()
    shutil.copy(empty_database, path)
    return f"sqlite:///{path}"


@pytest.fixture
def client(uri: str) -> MlflowClient:
    return client_of(uri)


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    """A run that was killed once, with a model that is to be registered."""
    spec = run_spec("one")
    spec = replace(spec, tracking=TrackingSpec(experiment="texts", register_as="reviews", alias="champion"))
    figure = {"value": 300.0, "low": 250.0, "high": 350.0, "basis": "measured"}
    run = write_run(tmp_path / "runs" / "one", spec, killed=True, prediction={"figures": {"samples_per_s": figure}})
    run.model.mkdir()
    (run.model / "config.json").write_text("{}")
    return run


def client_of(uri: str) -> MlflowClient:
    with reaching(uri):
        from mlflow import MlflowClient

        client = MlflowClient(tracking_uri=uri, registry_uri=uri)
        client.search_experiments()
        return client
