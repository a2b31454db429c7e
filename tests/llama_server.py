"""llama.cpp's own server with a model of random weights, for whatever speaks to an engine."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
from tests.ports import free_port

from tonnage.testing.tiny_gguf import write_tiny_gguf


@contextmanager
def llama_server(folder: Path, *, at_once: int = 4) -> Iterator[str]:
    """Its address, once it answers; `at_once`: how many requests, of 1,024 tokens each."""
    model, port = write_tiny_gguf(folder / "tiny.gguf"), free_port()
    command = [
        sys.executable, "-m", "tonnage.serving.engines.llama_server", "--model", str(model), "--alias", "tiny",
        "--port", str(port), "--parallel", str(at_once), "--ctx-size", str(1024 * at_once), "--threads", "1",
        "--threads-batch", "1",
    ]  # fmt: skip
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while not _answers(port):
            assert server.poll() is None, "the server has ended"
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(20)


def _answers(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/health").status_code == 200
    except httpx.TransportError:
        return False
