"""`tonnage batch` against llama.cpp's own server, with a model of random weights."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.llama_server import llama_server

pytest.importorskip("xllamacpp")
pytest.importorskip("gguf")
pytest.importorskip("httptools")
pytest.importorskip("uvloop")

import tonnage
from tonnage import BatchOptions

pytestmark = pytest.mark.heavy


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with llama_server(tmp_path_factory.mktemp("model")) as address:
        yield f"{address}/v1"


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
