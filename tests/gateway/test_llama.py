"""The gateway before llama.cpp's own server, with a model of random weights."""

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

from tests.gateway.doorway import Doorway, Scripted, chat, play

from tonnage.gateway.money.shared_accounts import SharedAccounts
from tonnage.testing.tiny_gguf import write_tiny_gguf

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    model = write_tiny_gguf(tmp_path_factory.mktemp("model") / "tiny.gguf")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "tonnage.serving.engines.llama_server", "--model", str(model), "--alias", "tiny"]
    command += ["--port", str(port), "--parallel", "2", "--ctx-size", "2048", "--threads", "1", "--threads-batch", "1"]
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


def test_streams_wholes_and_embeddings_of_a_real_engine(llama: str, tmp_path: Path) -> None:
    """The ledger has the engine's own counts; a stream whose usage nobody asked for ends without it."""

    async def scenario() -> None:
        upstream = Scripted()
        upstream.url = llama
        async with Doorway(tmp_path, {"a": upstream}, each={"model": "tiny"}, budgets=[{"usd": 1}]) as door:
            asked = chat("tell me more", max_tokens=8, temperature=0)
            whole = await door.ask(asked)
            counts = json.loads(whole.body)["usage"]
            streamed = await door.ask({**asked, "stream": True})
            assert streamed.body.endswith(b"data: [DONE]\n\n")
            assert b'"usage":{' not in streamed.body
            told = await door.ask({**asked, "stream": True, "stream_options": {"include_usage": True}})
            assert b'"usage":{' in told.body
            completed = await door.ask({"model": "chat", "prompt": "one", "max_tokens": 3}, "/v1/completions")
            assert completed.status == 200
            rows = await door.rows()
            assert [row["estimated"] for row in rows] == [0] * 4
            assert {(row["input_tokens"], row["output_tokens"]) for row in rows[:3]} == {
                (counts["prompt_tokens"], counts["completion_tokens"])
            }
            spent = sum(row["usd_pico"] for row in rows)
            (state,) = SharedAccounts.states(door.accounts)
            paid = sum(row["input_tokens"] * 10**6 + row["output_tokens"] * 2 * 10**6 for row in rows)
            assert state.committed == spent == paid

    play(scenario())
