"""Weights of a shared-out model are read by rank 0 alone and reach the others' devices."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.ports import free_port

from tonnage.runs.folder import RunFolder
from tonnage.runs.journal import EventKind
from tonnage.runs.spec import LaunchSpec, RunSpec

torch = pytest.importorskip("torch", reason="the extra `train`")
transformers = pytest.importorskip("transformers", reason="the extra `train`")

from tonnage.recipes.tasks.models import load_model, shape_of  # noqa: E402

TEXTS = [f"the {animal} sat on the {thing}" for animal in ("cat", "dog", "cow") for thing in ("mat", "hat", "box")] * 8


@pytest.fixture
def spec(write_rows: Any, run_spec: Callable[..., RunSpec], tiny_model: Any) -> RunSpec:
    """A small decoder whose weights are stored in 16 bits, with tied tables."""
    folder = tiny_model("llama", TEXTS, tie_word_embeddings=True)
    config = transformers.AutoConfig.from_pretrained(folder)
    torch.manual_seed(5)
    transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).save_pretrained(folder)
    training = {"sharding": "zero3", "max_steps": 4, "epochs": 100.0, "global_batch": 8, "log_every_steps": 1}
    rows = write_rows("rows.jsonl", [{"text": text} for text in TEXTS])
    return run_spec("causal-lm", rows, weights=folder, roles=("text",), training=training)


@pytest.mark.parametrize("method", ["full", "lora"])
def test_only_rank_0_reads_weights(spec: RunSpec, monkeypatch: pytest.MonkeyPatch, method: Any) -> None:
    """It holds them as they are stored; on the others each tensor is a shape, of the same model and adapters."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    models = []
    for rank in ("0", "1"):
        monkeypatch.setenv("RANK", rank)
        models.append(load_model(replace(spec, training=replace(spec.training, method=method)),
                                 "AutoModelForCausalLM", padding=0))  # fmt: skip
    first, second = (dict(model.named_parameters()) for model in models)
    assert {name: (one.shape, one.requires_grad) for name, one in first.items()} == {
        name: (one.shape, one.requires_grad) for name, one in second.items()
    }
    assert not any(one.is_meta for one in first.values())
    assert all(one.is_meta for one in second.values())
    assert shape_of(models[0]) == shape_of(models[1])
    if method == "full":
        assert {one.dtype for one in first.values()} == {torch.bfloat16}
    monkeypatch.setenv("WORLD_SIZE", "1")
    assert not any(one.is_meta for one in load_model(spec, "AutoModelForCausalLM", padding=0).parameters())


def work(spec: RunSpec, path: Path, processes: int) -> RunFolder:
    folder = RunFolder(path)
    runner = "torchrun" if processes > 1 else "local"
    folder.create(
        replace(spec, name=path.name, launch=LaunchSpec(runner=runner, processes=processes, device="cpu", threads=1))
    )
    command = [
        sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(processes), "--master-addr", "127.0.0.1",
        "--master-port", str(free_port()), "-m", "tonnage.recipes.worker", str(path),
    ]  # fmt: skip
    environ = {**os.environ, "OMP_NUM_THREADS": "1"}
    ended = subprocess.run(command, capture_output=True, text=True, env=environ, timeout=900)
    assert ended.returncode == 0, ended.stderr[:8000]
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("method", ["full", "lora"])
def test_dealt_weights_are_those_that_were_read(spec: RunSpec, tmp_path: Path, method: Any) -> None:
    """Over two processes the first loss is that of one, which read the same weights; trained in full, all of them. The
    finished model, of adapters without their base too, is judged as it was in the run."""
    from tonnage.recipes.judging import judge_run

    spec = replace(spec, training=replace(spec.training, method=method))
    lines = []
    for processes in (1, 2):
        folder = work(spec, tmp_path / f"over-{processes}", processes)
        lines.append([json.loads(line)["loss"] for line in folder.metrics_file.read_text().splitlines()])
    told = 4 if method == "full" else 1  # adapters start at nothing, then their dropout differs
    assert lines[1][:told] == pytest.approx(lines[0][:told], abs=2e-5)
    folder.record(EventKind.SUCCEEDED, who="test")
    said = json.loads(folder.result_file.read_text())["metrics"]
    assert judge_run(folder, device="cpu").metrics == {
        name: pytest.approx(value, abs=1e-4) for name, value in said.items()
    }
    names = {path.name for path in folder.model.iterdir()}
    assert ("adapter_model.safetensors" in names) == (method == "lora")
    assert ("model.safetensors" in names) == (method == "full")
