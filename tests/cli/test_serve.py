"""`tonnage serve`: the command as planned, a real replica started and ended, and what is refused."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import httpx
import psutil
import pytest
from tests.ports import free_port
from typer.testing import CliRunner

import tonnage
from tonnage.api.started_services import _running_service
from tonnage.cli.app import build_app
from tonnage.testing.tiny_encoders import write_tiny_encoder
from tonnage.testing.tiny_gguf import write_tiny_gguf

SERVED = """
kind: serve
model: {architecture: decoder, layers: 2, hidden: 64, heads: 4, kv_heads: 2, ffn: 128, vocab: 300, max_positions: 4096}
serve:
  rate_per_s: 5
  input_tokens: {mean: 20, max: 64}
  output_tokens: {mean: 8, max: 32}
  p95_latency: 2s
layout: {concurrency: 4}
constraints: {gpus: T4}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.tonnage.yaml"
    path.write_text(SERVED, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The folder of a classifier, and a home: the first test that serves it exports it there for all."""
    pytest.importorskip("onnxruntime")
    path = tmp_path_factory.mktemp("encoder")
    return write_tiny_encoder(path / "tiny", "classification"), path / "home"


def asked(*arguments: str | Path) -> tuple[int, str]:
    done = CliRunner().invoke(build_app("serve"), [str(one) for one in arguments])
    words = f"{done.output}{done.exception or ''}{getattr(done.exception, 'hint', '')}"
    return getattr(done.exception, "exit_code", done.exit_code), words


def test_an_own_price_is_of_this_machine(file: Path) -> None:
    """All replicas share it; the plan's price is that of a machine for the replicas which the plan puts there."""
    options = tonnage.ServeOptions(model="org/tiny", name="tiny", replicas=(1, 3))
    planned = tonnage.planned_replica(file, options).checked()
    assert planned.option is not None
    by_plan, own = _running_service(planned, options), _running_service(planned, replace(options, usd_per_hour=1.5))
    assert (by_plan.usd_per_machine_hour, by_plan.replicas_per_machine) == (planned.option.usd_per_instance_hour, 1)
    assert (own.usd_per_machine_hour, own.replicas_per_machine, own.price_from) == (1.5, None, "--usd-per-hour")


def test_the_planned_command_is_printed(file: Path) -> None:
    """--dry-run has the plan's option, its figures and the whole command, as process and as container."""
    code, text = asked("serve", file, "--model", "org/tiny", "--name", "tiny", "--dry-run", "-o", "json")
    assert code == 0
    shown = json.loads(text)
    assert shown["schema"] == "tonnage/service@1"
    argv = shown["command"]["argv"]
    assert argv[argv.index("--max-num-seqs") + 1] == "4"
    assert argv[argv.index("--max-model-len") + 1] == "96"
    assert shown["predicted"]["latency_p95_s"]["high"] <= 2
    assert shown["container"]["argv"][:2] == ["docker", "run"]


def test_files_of_existing_balancers_are_written(file: Path, tmp_path: Path) -> None:
    """For the most of --replicas; a model in a folder of this machine gives no file for a cluster, and why is said."""
    folder = tmp_path / "files"
    code, text = asked("serve", file, "--model", "org/t", "--dry-run", "--files", folder)
    assert (code, "is not a folder" in text) == (2, True)
    folder.mkdir()
    code, text = asked("serve", file, "--model", "org/t", "--replicas", "1..3", "--dry-run", "--files", folder)
    assert (code, sorted(path.name for path in folder.iterdir())) == (0, ["envoy.yaml", "kserve.yaml", "nginx.conf"])
    assert "server 127.0.0.1:8003 " in (folder / "nginx.conf").read_text()
    assert "maxReplicas: 3\n" in (folder / "kserve.yaml").read_text()
    code, text = asked("serve", file, "--model", tmp_path, "--dry-run", "--files", folder, "--backend", "chat:8000")
    assert "kserve.yaml is not written: the model lies in" in text
    assert "address: chat\n" in (folder / "envoy.yaml").read_text()


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--model", "x"], 4, "this machine has 0 GPUs"),
        ([], 2, "where are the weights"),
        (["--model", "x", "--engine", "vlm"], 2, "no serving engine named 'vlm'"),
        (["--model", "x", "--engine", "llama.cpp"], 2, "serves GGUF files"),
        (["--model", "x", "--engine", "tei"], 2, "no plan is made for tei"),
        (["--model", "x", "--option", "5000"], 2, "no machines of rank 5000"),
        (["--model", "x", "--engine-arg", "max-num-seq=3"], 2, "did you mean '--max-num-seqs'"),
    ],
)
def test_what_cannot_be_served_is_refused(
    file: Path, arguments: list[str], code: int, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each refusal ends with its own code before anything starts."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    found, text = asked("serve", file, *arguments)
    assert words in text
    assert found == code


def test_an_engine_that_does_not_run_the_model_is_refused(file: Path) -> None:
    """--engine is held to what the file's `engine:` is."""
    model = SERVED.replace("decoder", "encoder-decoder").replace("layers: 2", "layers: 2, encoder_layers: 2")
    file.write_text(model.replace("serve:\n", "serve:\n  engine: tensorrt-llm\n", 1), encoding="utf-8")
    code, text = asked("serve", file, "--model", "x", "--engine", "vllm", "--dry-run")
    assert (code, "--engine vllm does not run an encoder-decoder" in text, "use tensorrt-llm" in text) == (
        2,
        True,
        True,
    )


def test_a_service_that_fits_nowhere_ends_with_3(file: Path) -> None:
    """Nothing is served by a machine that does not keep the promise."""
    file.write_text(SERVED.replace("p95_latency: 2s", "p95_latency: 0.1ms"), encoding="utf-8")
    code, text = asked("serve", file, "--model", "x", "--dry-run")
    assert (code, "no machine serves tiny as asked" in text) == (3, True)


def test_a_replica_starts_answers_and_finishes_before_it_ends(file: Path, tmp_path: Path) -> None:
    """The real server of llama.cpp: it takes requests, and an answer under way when Ctrl-C comes is still whole."""
    pytest.importorskip("xllamacpp")
    pytest.importorskip("gguf")
    model = write_tiny_gguf(tmp_path / "tiny.gguf")
    port = free_port()
    command = [sys.executable, "-m", "tonnage", "serve", str(file), "--engine", "llama.cpp", "--model", str(model),
               "--port", str(port)]  # fmt: skip
    env = {**os.environ, "TONNAGE_HOME": str(tmp_path / "home")}
    with subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True) as served:
        assert served.stderr is not None
        said = [served.stderr.readline() for _ in range(3)]
        assert "do not hold" in said[0], said
        assert "takes requests" in said[2], said
        question = {"prompt": "the", "max_tokens": 80, "ignore_eos": True, "stream": True}
        with httpx.stream("POST", f"http://127.0.0.1:{port}/v1/completions", json=question, timeout=60) as answer:
            lines = answer.iter_lines()
            next(lines)
            served.send_signal(signal.SIGINT)
            time.sleep(0.05)
            text = [line for line in lines if line]
        assert text[-1] == "data: [DONE]"
        assert served.wait(timeout=120) == 0


def test_an_encoder_is_served_by_its_folder(encoder: tuple[Path, Path]) -> None:
    """SIGTERM comes under load: every answer that was begun is whole, and it ends with 0."""
    folder, home = encoder
    port = free_port()
    command = [sys.executable, "-m", "tonnage", "serve", str(folder), "--port", str(port), "--workers", "1",
               "--batch-tokens", "64"]  # fmt: skip
    env = {**os.environ, "TONNAGE_HOME": str(home)}
    with subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True) as served:
        assert served.stderr is not None
        said = [served.stderr.readline(), served.stderr.readline()]
        assert "takes requests" in said[1], said
        statuses: list[int] = []
        asking = [threading.Thread(target=ask_until_gone, args=(port, statuses)) for _ in range(4)]
        for one in asking:
            one.start()
        while len(statuses) < 50:
            time.sleep(0.01)
        served.send_signal(signal.SIGTERM)
        for one in asking:
            one.join(30)
        assert served.wait(timeout=120) == 0
    assert set(statuses) == {200}


def ask_until_gone(port: int, statuses: list[int]) -> None:
    """Until the connection is refused, or closed before the next question; an answer cut off half way raises."""
    with httpx.Client(timeout=30) as client:
        while True:
            try:
                answer = client.post(f"http://127.0.0.1:{port}/predict", json={"inputs": ["good film"] * 8})
            except (httpx.ConnectError, httpx.RemoteProtocolError, httpx.ReadError):
                return
            statuses.append(answer.status_code)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere"], "no workload file, no folder or file of a model and no run"),
        (["FOLDER", "--task", "translation"], "one of classification"),
        (["FOLDER", "--model", "x"], "belong to a workload file"),
        (["FOLDER", "--task", "embedding"], "no config.json"),
        (["FOLDER", "--cache-url", "redis://:secret@host:1/0"], "has a password"),
    ],
)
def test_an_encoder_that_is_none_is_refused(tmp_path: Path, arguments: list[str], words: str) -> None:
    """Before anything starts."""
    code, text = asked("serve", *(str(tmp_path) if one == "FOLDER" else one for one in arguments), "--dry-run")
    assert (code, words in text) == (2, True), text


def test_replicas_answer_behind_one_address(file: Path, tmp_path: Path) -> None:
    """Two real servers of llama.cpp; one is killed, the others answer; SIGHUP replaces all; Ctrl-C ends all."""
    for needed in ("xllamacpp", "gguf", "uvicorn", "uvloop"):
        pytest.importorskip(needed)
    model = write_tiny_gguf(tmp_path / "tiny.gguf")
    port = free_port()
    command = [sys.executable, "-m", "tonnage", "serve", str(file), "--engine", "llama.cpp", "--model", str(model),
               "--port", str(port), "--replicas", "2", "--prefix-bytes", "32"]  # fmt: skip
    env = {**os.environ, "TONNAGE_HOME": str(tmp_path / "home")}
    with (
        subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True) as served,
        httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client,
    ):
        assert served.stderr is not None
        said = served.stderr
        while "takes requests after" not in said.readline():
            assert served.poll() is None
        while "takes requests after" not in said.readline():
            assert served.poll() is None
        question = {"prompt": "the", "max_tokens": 8, "ignore_eos": True}
        assert client.post("/v1/completions", json=question).json()["usage"]["completion_tokens"] == 8
        first, second = (one["pid"] for one in client.get("/replicas").json()["replicas"])
        os.kill(first, signal.SIGKILL)
        assert all(client.post("/v1/completions", json=question).status_code == 200 for _ in range(5))
        while "takes requests after" not in said.readline():
            assert served.poll() is None
        served.send_signal(signal.SIGHUP)
        while "all replicas are new" not in said.readline():
            assert served.poll() is None
        found = [one for one in client.get("/replicas").json()["replicas"] if one["state"] == "ready"]
        assert {one["version"] for one in found} == {2}
        assert not {first, second} & {one["pid"] for one in found}
        served.send_signal(signal.SIGINT)
        assert served.wait(timeout=120) == 0
    for one in found:
        with pytest.raises(ProcessLookupError):
            os.kill(one["pid"], 0)


def test_replicas_without_gpus_of_their_own_are_refused(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What they need and what is here; nothing starts."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    code, text = asked("serve", file, "--model", "x", "--replicas", "1..2")
    assert (code, "2 replicas of 1 GPUs each need 2; 0 are visible here" in text) == (4, True)


def test_a_planned_encoder_keeps_the_plans_format_and_promise(tmp_path: Path) -> None:
    """Of a workload file: its number format and its p95, which batches are held to; --dtype goes before."""
    pytest.importorskip("torch")
    folder = write_tiny_encoder(tmp_path / "tiny", "classification")
    example = Path(__file__).parents[2] / "examples" / "serve-bert.tonnage.yaml"
    code, text = asked("serve", example, "--model", folder, "--dry-run", "-q", "-o", "json")
    assert code == 0, text
    shown = json.loads(text)
    service = json.loads(shown["command"]["files"][0]["text"])
    assert (service["weights"], service["p95_s"], service["name"]) == ("fp16", 0.5, "serve-bert")
    assert shown["predicted"]["latency_p95_s"]["value"] <= 0.5
    answer = tonnage.planned_replica(example, tonnage.ServeOptions(model=str(folder)))
    assert "the plan is of bert-base-uncased (12 layers, 768 wide)" in answer.remarks[0]
    _, text = asked("serve", example, "--model", folder, "--dtype", "int8", "--dry-run", "-q", "-o", "json")
    assert json.loads(json.loads(text)["command"]["files"][0]["text"])["weights"] == "int8"


def command_of(process: psutil.Process) -> str:
    """Its command line; empty of one that has ended."""
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:  # a zombie too
        return ""


def test_a_batch_starts_and_ends_its_own_service(
    encoder: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`batch --serve`: every row answered by the model that it names, and no server left behind."""

    folder, home = encoder
    monkeypatch.setenv("TONNAGE_HOME", str(home))
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(json.dumps({"text": f"good film {at}"}) + "\n" for at in range(40)), encoding="utf-8")
    command = ["batch", rows, tmp_path / "out.jsonl", "--serve", folder, "--task", "classify"]
    done = CliRunner().invoke(build_app("batch"), [str(one) for one in command])
    assert done.exit_code == 0, done.output
    answers = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert {one["response"]["status_code"] for one in answers} == {200}
    assert len(answers) == 40
    assert not [one for one in psutil.Process().children(recursive=True) if "tonnage.serving" in command_of(one)]
