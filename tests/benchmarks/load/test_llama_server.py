"""`tonnage bench serve` against llama.cpp's own server, with a model of random weights."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

pytest.importorskip("xllamacpp")
pytest.importorskip("gguf")
pytest.importorskip("httptools")
pytest.importorskip("uvloop")

import tonnage
from tonnage import BenchServeOptions
from tonnage.testing.tiny_gguf import write_tiny_gguf

pytestmark = pytest.mark.heavy


def wait_for(port: int, server: subprocess.Popen[bytes]) -> None:
    """Until the model is loaded."""
    for _ in range(600):
        assert server.poll() is None
        try:
            if httpx.get(f"http://127.0.0.1:{port}/health").status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.05)
    raise TimeoutError(port)


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    model = write_tiny_gguf(tmp_path_factory.mktemp("model") / "tiny.gguf")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "tonnage.serving.engines.llama_server", "--model", str(model), "--alias", "tiny"]
    command += ["--port", str(port), "--parallel", "4", "--ctx-size", "4096", "--threads", "1", "--threads-batch", "1"]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for(port, server)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(20)


@pytest.mark.parametrize("protocol", ["openai-chat", "openai-completions"])
def test_a_real_stream_is_measured(llama: str, protocol: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers are as long as asked for, prompts to a tenth; first tokens come before ends."""
    monkeypatch.setenv("TONNAGE_HOME", str(tmp_path))
    asked = BenchServeOptions(
        protocol=protocol, rate_per_s=20.0, duration_s=1.0, warm_up_s=0.1, most_late_s=5.0, input_tokens="200",
        output_tokens="6",
    )  # fmt: skip
    result = tonnage.bench_serve(llama, asked).found.result
    assert result.answered == result.sent > 0
    assert result.output_tokens == 6.0
    assert result.input_tokens == pytest.approx(200.0, rel=0.1)
    assert result.ttft is not None
    assert result.tpot is not None
    assert result.latency is not None
    assert result.ttft.p50 < result.latency.p50
