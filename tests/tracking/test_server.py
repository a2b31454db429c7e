"""A run and a real MLflow server: down at first, then there; and one that goes away in between."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from tonnage.runs import RunFolder
from tonnage.runs.folder import append_values
from tonnage.tracking import Tracker, TrackingUnavailable
from tonnage.tracking.unavailable import reaching

pytestmark = pytest.mark.slow
START_S = 240.0


@contextmanager
def serving(place: Path, port: int) -> Iterator[str]:
    """`mlflow server` on a SQLite file, files proxied through it; all of its processes are ended."""
    command = [
        sys.executable, "-m", "mlflow", "server", "--port", str(port), "--workers", "1",
        "--backend-store-uri", f"sqlite:///{place}/server.db", "--artifacts-destination", str(place / "files"),
    ]  # fmt: skip
    environment = os.environ | {"MLFLOW_DISABLE_TELEMETRY": "true"}
    with (place / "server.log").open("a") as log:
        server = subprocess.Popen(command, cwd=place, env=environment, stdout=log, stderr=log, start_new_session=True)
    try:
        uri = f"http://127.0.0.1:{port}"
        _wait(f"{uri}/health")
        yield uri
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()


def _wait(address: str) -> None:
    until = time.monotonic() + START_S
    while True:
        try:
            with urlopen(address, timeout=5) as answer:
                assert answer.status == 200
            return
        except (URLError, ConnectionError, TimeoutError):
            assert time.monotonic() < until, "the server did not start"
            time.sleep(0.5)


def test_what_was_missed_is_sent_when_the_server_is_there(folder: RunFolder, tmp_path: Path) -> None:
    """Down: said, nothing lost. There: all of it, files and model through the server. Gone and back: the rest, once."""
    pytest.importorskip("mlflow")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    tracker = Tracker(folder.spec(), folder, f"http://127.0.0.1:{port}")
    with pytest.raises(TrackingUnavailable):
        tracker.sync()
    place = tmp_path / "server"
    place.mkdir()
    with serving(place, port):
        tracker.finish()
    append_values(folder.metrics_file, {"step": 110, "at": "2026-01-02T13:00:00+00:00", "loss": 0.01})
    with pytest.raises(TrackingUnavailable):
        tracker.sync()
    with serving(place, port) as uri:
        tracker.sync()
        tracker.finish()
        with reaching(uri):
            from mlflow import MlflowClient

            client = MlflowClient(uri, uri)
            (run,) = client.search_runs([one.experiment_id for one in client.search_experiments()])
            history = client.get_metric_history(run.info.run_id, "loss")
            files = {one.path for one in client.list_artifacts(run.info.run_id)}
            version = client.get_model_version_by_alias("reviews", "champion")
    assert [one.step for one in history] == [*range(10, 120, 10)]
    assert {"report.html", "model"} <= files
    assert version.version == "1"
