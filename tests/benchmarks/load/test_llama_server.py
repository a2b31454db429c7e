"""`tonnage bench serve` against llama.cpp's own server, with a model of random weights."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.llama_server import llama_server

pytest.importorskip("xllamacpp")
pytest.importorskip("gguf")
pytest.importorskip("httptools")
pytest.importorskip("uvloop")

import tonnage
from tonnage import BenchServeOptions

pytestmark = pytest.mark.heavy


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with llama_server(tmp_path_factory.mktemp("model")) as address:
        yield address


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
