"""A real service updated while it answers: another model, a bad one, back by hand. No request fails."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import httpx
import pytest
from tests.ports import free_port

import tonnage
from tonnage.errors import InputError, TonnageError, UnknownName
from tonnage.serving.encoder.export import exported
from tonnage.serving.encoder.folders import read_folder
from tonnage.settings import load_settings
from tonnage.testing.tiny_encoders import write_tiny_encoder

QUICK = tonnage.ServiceUpdateOptions(window_s=1.5, share=0.5, p95_ratio=20.0, wait_s=120.0)


class Asking:
    """Four clients that ask again and again until they are stopped: what they were answered.

    They pause between requests, so that the models which are loaded meanwhile have the cores.
    """

    def __init__(self, url: str, path: str, body: object) -> None:
        self._url, self._path, self._body = url, path, body
        self.statuses: list[int] = []
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._ask) for _ in range(4)]
        for one in self._threads:
            one.start()

    def _ask(self) -> None:
        with httpx.Client(base_url=self._url, timeout=60) as client:
            while not self._stop.is_set():
                self.statuses.append(client.post(self._path, json=self._body).status_code)
                self._stop.wait(0.05)

    def end(self) -> list[int]:
        self._stop.set()
        for one in self._threads:
            one.join()
        return self.statuses


@pytest.mark.heavy
def test_a_service_is_updated_under_load(tmp_path: Path) -> None:
    """To another model; a folder without one is refused, one whose files are broken rolls back; then back by hand."""
    for needed in ("onnxruntime", "uvicorn", "uvloop", "torch"):
        pytest.importorskip(needed)
    first = write_tiny_encoder(tmp_path / "first", "classification")
    graph = exported(read_folder(first), tmp_path / "graphs", weights="fp32")
    shutil.copy(graph, first / "model.onnx")  # no replica has to load torch
    second = shutil.copytree(first, tmp_path / "second")
    settings = load_settings({}, {"TONNAGE_HOME": str(tmp_path / "home")}, tmp_path)
    smoke = tmp_path / "smoke.json"
    smoke.write_text(json.dumps({"path": "/predict", "body": {"inputs": "a b"}}))
    port = free_port()
    command = [sys.executable, "-m", "tonnage", "serve", str(first), "--name", "reviews", "--port", str(port),
               "--replicas", "1..2", "--workers", "1", "--smoke", str(smoke)]  # fmt: skip
    env = {**os.environ, "TONNAGE_HOME": str(settings.home), "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, env=env, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as served:
        try:
            said = tonnage.check_deployed(f"http://127.0.0.1:{port}", smoke=str(smoke), timeout_s=120).found
            assert "the smoke test /predict passed" in said
            asking = Asking(f"http://127.0.0.1:{port}", "/predict", {"inputs": "a b c"})
            found = tonnage.update_service("reviews", second, QUICK, settings=settings)
            assert found.fault is None, found.fault
            empty = tmp_path / "empty"
            empty.mkdir()
            refused = tonnage.update_service("reviews", empty, QUICK, settings=settings)
            assert "no config.json" in str(refused.fault)
            broken = shutil.copytree(first, tmp_path / "broken")
            (broken / "model.onnx").write_bytes(b"broken")
            back = tonnage.update_service("reviews", broken, QUICK, settings=settings)
            with pytest.raises(TonnageError, match="the old version of 'reviews' stays"):
                back.checked()
            by_hand = tonnage.rollback_service("reviews", QUICK, settings=settings)
            assert (by_hand.fault, by_hand.found.version.target) == (None, str(first))
            statuses = asking.end()
            assert set(statuses) == {200}
            assert len(statuses) > 20
        finally:
            served.send_signal(signal.SIGTERM)
            served.wait(60)


def test_what_cannot_be_updated(tmp_path: Path) -> None:
    """No such service; one without a balancer is named in its own words."""
    settings = load_settings({}, {"TONNAGE_HOME": str(tmp_path)}, tmp_path)
    with pytest.raises(UnknownName, match="no service named 'x' runs here"):
        tonnage.update_service("x", "y", settings=settings)
    with pytest.raises(InputError, match="is not an address"):
        tonnage.check_deployed("127.0.0.1:8000", timeout_s=0.1)
