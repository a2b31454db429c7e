"""`tonnage batch` against llama.cpp's own server, with a model of random weights."""

from __future__ import annotations

import json
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
from tonnage import BatchOptions
from tonnage.testing.tiny_gguf import write_tiny_gguf

pytestmark = pytest.mark.heavy


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    model = write_tiny_gguf(tmp_path_factory.mktemp("model") / "tiny.gguf")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "tonnage.serving.engines.llama_server", "--model", str(model), "--alias", "tiny"]
    command += ["--port", str(port), "--parallel", "4", "--ctx-size", "4096", "--threads", "1", "--threads-batch", "1"]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(600):
            try:
                if httpx.get(f"http://127.0.0.1:{port}/health").status_code == 200:
                    break
            except httpx.TransportError:
                time.sleep(0.05)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        server.terminate()
        server.wait(20)


def test_a_real_server_answers_chat_completions_and_errors(llama: str, tmp_path: Path) -> None:
    """40 rows of two kinds, one that the server refuses: usage is its own, temperature 0 answers are repeatable."""
    source, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    said = {"model": "tiny", "max_tokens": 4, "temperature": 0}
    rows = [
        {
            "custom_id": f"chat-{at}",
            "method": "POST",
            "url": "/v1/chat/completions",
            "body": {**said, "messages": [{"role": "user", "content": f"number {at % 5}"}]},
        }
        for at in range(20)
    ] + [{"custom_id": f"text-{at}", "url": "/v1/completions", "body": {**said, "prompt": "the"}} for at in range(20)]
    rows.append({"custom_id": "wrong", "url": "/v1/chat/completions", "body": {**said, "messages": "none"}})
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = tonnage.batch(source, out, BatchOptions(url=llama, tries=2)).found
    answers = {line["custom_id"]: line["response"]["body"] for line in map(json.loads, out.read_text().splitlines())}
    assert len(answers) == 40
    assert found.progress.output_tokens == 40 * 4
    texts = {answers[f"text-{at}"]["choices"][0]["text"] for at in range(20)}
    assert len(texts) == 1
    (wrong,) = map(json.loads, (tmp_path / "out.jsonl.errors.jsonl").read_text().splitlines())
    assert wrong["custom_id"] == "wrong"
    assert wrong["error"]["message"]
