"""The encoder server as a Ray Serve application."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import types
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from tests.ports import free_port

from tonnage.errors import InputError
from tonnage.serving.encoder.on_ray import RayReplicas, deployment_options, serve_on_ray
from tonnage.serving.encoder.service import EncoderService
from tonnage.testing.tiny_encoders import write_tiny_encoder

SERVICE = EncoderService(model="m", name="tiny", workers=2)
REPLICAS = RayReplicas(least=1, most=4, slots=16, gpus=1)


def test_replicas_are_told_as_ray_takes_them() -> None:
    """Two numbers: Ray's rule between them; one: that many. Cores are workers times threads."""
    found = deployment_options(SERVICE, REPLICAS)
    assert found["autoscaling_config"] == {"min_replicas": 1, "max_replicas": 4, "target_ongoing_requests": 16}
    assert found["ray_actor_options"] == {"num_cpus": 2, "num_gpus": 1}
    fixed = deployment_options(SERVICE, replace(REPLICAS, least=4, gpus=0))
    assert (fixed["num_replicas"], "autoscaling_config" in fixed) == (4, False)
    assert fixed["ray_actor_options"] == {"num_cpus": 2}


def test_a_key_is_not_given_to_ray() -> None:
    """Its environment would stand in Ray's files."""
    with pytest.raises(InputError, match="would stand in its logs"):
        serve_on_ray(replace(SERVICE, key_variable="KEY"), REPLICAS, lambda _: None)


class _Ray:
    """Ray and Ray Serve as they are called, at which a signal comes."""

    def __init__(self, at: str, number: signal.Signals) -> None:
        self.at, self.number, self.called = at, number, list[str]()

    def __getattr__(self, name: str) -> Any:
        def call(*_: object, **__: object) -> Any:
            self.called.append(name)
            if name == self.at:
                os.kill(os.getpid(), self.number)
                time.sleep(2)  # a deployment that does not come up
            return lambda *_, **__: types.SimpleNamespace(bind=lambda: None)

        return call


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(("at", "ended"), [("run", ["shutdown", "shutdown"]), ("init", ["shutdown"])])
def test_a_signal_is_heard_while_ray_deploys(
    number: signal.Signals, at: str, ended: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Replicas that find no room never come up: Ctrl-C and SIGTERM end the wait, and what was started until then."""
    ray = _Ray(at, number)
    monkeypatch.setattr("tonnage.serving.encoder.on_ray._ray", lambda: (ray, ray))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    before, said = signal.getsignal(number), list[str]()
    with pytest.raises(KeyboardInterrupt):
        serve_on_ray(SERVICE, REPLICAS, said.append)
    assert ray.called[ray.called.index(at) + 1 :] == ended
    assert said == []
    assert signal.getsignal(number) is before


@pytest.mark.slow
def test_a_real_ray_ends_at_ctrl_c_while_it_deploys(tmp_path: Path) -> None:
    """A replica that asks for more cores than there are waits forever; Ctrl-C is exit code 130, and nothing stays."""
    pytest.importorskip("ray.serve")
    folder = write_tiny_encoder(tmp_path / "tiny", "embedding")
    port = free_port()
    command = [sys.executable, "-m", "tonnage", "serve", str(folder), "--on", "ray", "--port", str(port), "--workers",
               "4096"]  # fmt: skip
    env = {**os.environ, "TONNAGE_HOME": str(tmp_path / "home"), "RAY_USAGE_STATS_ENABLED": "0"}
    with subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True) as served:
        until = time.monotonic() + 120
        while not _deploys(served.pid):
            assert served.poll() is None
            assert time.monotonic() < until
            time.sleep(0.2)
        below = psutil.Process(served.pid).children(recursive=True)
        served.send_signal(signal.SIGINT)
        assert served.wait(60) == 130
    _, left = psutil.wait_procs(below, timeout=20)
    assert not [one for one in left if one.status() != psutil.STATUS_ZOMBIE]


def _deploys(pid: int) -> bool:
    """Whether Ray Serve's controller is there."""
    return any("ServeController" in " ".join(one.cmdline()) for one in psutil.Process(pid).children(recursive=True))


@pytest.mark.slow
def test_replicas_on_a_real_ray_answer_and_are_replaced(tmp_path: Path) -> None:
    """Two replicas of a local Ray answer with the same numbers; one is killed, and answers go on; SIGTERM ends all."""
    pytest.importorskip("ray.serve")
    pytest.importorskip("onnxruntime")
    folder = write_tiny_encoder(tmp_path / "tiny", "embedding")
    port = free_port()
    command = [sys.executable, "-m", "tonnage", "serve", str(folder), "--on", "ray", "--replicas", "2..2", "--port",
               str(port), "--workers", "1", "--batch-tokens", "64"]  # fmt: skip
    env = {**os.environ, "TONNAGE_HOME": str(tmp_path / "home"), "RAY_USAGE_STATS_ENABLED": "0"}
    with (
        subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True) as served,
        httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client,
    ):
        assert served.stderr is not None
        try:
            assert any("takes requests" in line for line in served.stderr)
            vectors = {client.post("/embed", json={"inputs": "the text"}).text for _ in range(20)}
            assert len(vectors) == 1
            below = psutil.Process(served.pid).children(recursive=True)
            replicas = [one for one in below if "ServeReplica" in " ".join(one.cmdline())]
            assert len(replicas) == 2
            replicas[0].send_signal(signal.SIGKILL)
            after = Counter(client.post("/embed", json={"inputs": "the text"}).status_code for _ in range(60))
            assert after[200] >= 55, after  # Ray gives up what the killed one had
            assert client.post("/v1/embeddings", json={"input": "a", "model": "tiny"}).status_code == 200
        finally:
            served.send_signal(signal.SIGTERM)
            assert served.wait(60) == 0
    _, left = psutil.wait_procs(below, timeout=20)
    assert not [one for one in left if one.status() != psutil.STATUS_ZOMBIE]
