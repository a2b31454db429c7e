"""Replicas as processes: the real server of llama.cpp, started, asked, drained and ended."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest
from tests.ports import free_port

from tonnage.errors import InputError, TonnageError
from tonnage.serving.engines.engine import EngineCommand, EnginePlace
from tonnage.serving.engines.generation import GenerationService
from tonnage.serving.engines.processes import (
    EngineProcess,
    drain_engine,
    is_ready,
    parse_load,
    read_counts,
    read_load,
    start_engine,
    stop_engine,
    wait_ready,
)
from tonnage.serving.engines.registry import command_engine
from tonnage.testing.tiny_gguf import write_tiny_gguf

pytest.importorskip("xllamacpp")
pytest.importorskip("gguf")


def tiny_command(folder: Path, **changed: object) -> EngineCommand:
    model = write_tiny_gguf(folder / "tiny.gguf")
    service = GenerationService(
        model=str(model), name="tiny", most_requests=2, most_tokens=512, step_tokens=512, threads=1
    )
    place = replace(EnginePlace(folder=str(folder), port=free_port()), **changed)  # type: ignore[arg-type]
    return command_engine("llama.cpp").render(service, place)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineProcess]:
    folder = tmp_path_factory.mktemp("llama")
    running = start_engine(tiny_command(folder), folder)
    try:
        wait_ready(running, timeout_s=60)
        yield running
    finally:
        stop_engine(running, grace_s=5)


def test_numbers_of_gpus_are_by_the_bus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine reads CUDA_VISIBLE_DEVICES as the boards are listed here, unless its user says otherwise."""
    argv = (sys.executable, "-S", "-c", "import os; print(os.environ['CUDA_DEVICE_ORDER'])")
    command = EngineCommand(engine="e", argv=argv, host="127.0.0.1", port=0, health="/")
    monkeypatch.delenv("CUDA_DEVICE_ORDER", raising=False)
    for asked in (None, "FASTEST_FIRST"):
        if asked:
            monkeypatch.setenv("CUDA_DEVICE_ORDER", asked)
        running = start_engine(command, tmp_path / str(asked))
        assert running.process.wait(20) == 0
        stop_engine(running)
        assert running.log_file.read_text().strip() == (asked or "PCI_BUS_ID")


def complete(running: EngineProcess, tokens: int) -> httpx.Response:
    asked = {"prompt": "the", "max_tokens": tokens, "ignore_eos": True, "temperature": 0}
    return httpx.post(running.command.url + "/v1/completions", json=asked, timeout=60)


def test_a_replica_answers_under_its_name(served: EngineProcess) -> None:
    """It takes requests once it says so, under the name it was given, and counts what it wrote."""
    assert is_ready(served)
    models = httpx.get(served.command.url + "/v1/models").json()
    assert [model["id"] for model in models["data"]] == ["tiny"]
    assert complete(served, 5).json()["usage"]["completion_tokens"] == 5


def test_work_inside_is_seen_and_drained(served: EngineProcess) -> None:
    """While it writes, its load is above 0; drained, it is 0 and the answer was whole."""
    answers: list[httpx.Response] = []
    asking = [threading.Thread(target=lambda: answers.append(complete(served, 400))) for _ in range(3)]
    for one in asking:
        one.start()
    seen = []
    while any(one.is_alive() for one in asking):
        load = read_load(served)
        seen.append((load.running or 0) + (load.waiting or 0))
    assert drain_engine(served, timeout_s=30)
    assert max(seen) >= 1
    assert [answer.json()["usage"]["completion_tokens"] for answer in answers] == [400] * 3


class _Rubbish(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"load so-so\n")

    def log_message(self, *_: object) -> None:
        pass


def test_what_is_no_number_is_not_counted(served: EngineProcess) -> None:
    """Another program behind the engine's port: no counts now, and who asks for the load gets an error of ours."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Rubbish) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        port = server.server_address[1]
        command = replace(served.command, port=port, metrics="/metrics", running="load", output_tokens="load")
        other = replace(served, command=command)
        assert read_counts(other) is None
        with pytest.raises(TonnageError, match="with no metrics"):
            read_load(other)
        server.shutdown()


def test_a_taken_port_is_refused(served: EngineProcess, tmp_path: Path) -> None:
    """The second replica on one port is refused before it starts."""
    with pytest.raises(TonnageError, match="is taken"):
        start_engine(replace(served.command), tmp_path)


def test_a_corrupt_model_ends_it_with_its_own_words(tmp_path: Path) -> None:
    """A file that is no GGUF: the error has the engine's exit code and the end of its log."""
    command = tiny_command(tmp_path)
    (tmp_path / "tiny.gguf").write_bytes(b"not a model")
    running = start_engine(command, tmp_path)
    with pytest.raises(TonnageError, match="ended with 1 before it was ready") as ended:
        wait_ready(running, timeout_s=60)
    assert "llama.cpp does not start" in str(ended.value)


def test_a_key_is_asked_for_and_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without its variable nothing starts; requests without the key are turned away, metrics are still read."""
    command = tiny_command(tmp_path, api_key=True)
    monkeypatch.delenv("LLAMA_API_KEY", raising=False)
    with pytest.raises(InputError, match="LLAMA_API_KEY is not set"):
        start_engine(command, tmp_path)
    monkeypatch.setenv("LLAMA_API_KEY", "k1")
    running = start_engine(command, tmp_path)
    try:
        wait_ready(running, timeout_s=60)
        assert complete(running, 1).status_code == 401
        assert read_load(running).running == 0
    finally:
        assert stop_engine(running) == 0


def test_an_engine_that_is_not_installed_is_named(tmp_path: Path) -> None:
    """The hint says how else it could be started."""
    command = EngineCommand(
        engine="vllm", argv=("no-such-vllm", "serve"), host="127.0.0.1", port=free_port(), health="/"
    )
    with pytest.raises(InputError, match="no program 'no-such-vllm'") as refused:
        start_engine(command, tmp_path)
    assert "--container" in str(refused.value.hint)


def test_one_that_never_answers_is_given_up(tmp_path: Path) -> None:
    """Not ready in time is an error with its log; one that ignores SIGTERM is killed."""
    deaf = (
        "import signal,time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(60)"
    )
    command = EngineCommand(
        engine="own", argv=(sys.executable, "-c", deaf), host="127.0.0.1", port=free_port(), health="/health"
    )
    running = start_engine(command, tmp_path)
    with pytest.raises(TonnageError, match=r"not ready after 1 s:\ndeaf"):
        wait_ready(running, timeout_s=1)
    assert stop_engine(running, grace_s=0.2) == -9


def test_an_interrupted_wait_ends_it_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second Ctrl-C, while it finishes: it is killed, and no process is left behind."""
    deaf = "import signal, time; signal.signal(15, signal.SIG_IGN); print('deaf', flush=True); time.sleep(60)"
    command = EngineCommand(
        engine="own", argv=(sys.executable, "-c", deaf), host="127.0.0.1", port=free_port(), health="/"
    )
    running = start_engine(command, tmp_path)
    while "deaf" not in running.last_words():
        pass
    waits = iter([True])

    def interrupted(timeout: float | None = None) -> int:
        if next(waits, False):
            raise KeyboardInterrupt
        return whole(timeout=timeout)

    whole = running.process.wait
    monkeypatch.setattr(running.process, "wait", interrupted)
    assert stop_engine(running, grace_s=60) == -9


@pytest.mark.parametrize(
    ("text", "running", "waiting"),
    [
        ('vllm:num_requests_running{model="a"} 3.0\nvllm:num_requests_waiting{model="a"} 7.0\n', 3.0, 7.0),
        ('vllm:num_requests_running{e="0"} 1\nvllm:num_requests_running{e="1"} 2\n', 3.0, None),
        ("vllm:num_requests_running_total 5\n", None, None),
    ],
)
def test_gauges_are_read_by_their_whole_name(text: str, running: float | None, waiting: float | None) -> None:
    """Labels are summed; a longer name is another metric."""
    command = EngineCommand(engine="vllm", argv=("vllm",), host="h", port=1, health="/health", metrics="/metrics",
                            running="vllm:num_requests_running", waiting="vllm:num_requests_waiting")  # fmt: skip
    load = parse_load(text, command)
    assert (load.running, load.waiting) == (running, waiting)
