"""Figures that a run on a GPU shows: within what the card can do, and consistent with one another; predicted beside
measured once the card has a profile."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from .conftest import Home

pytestmark = [pytest.mark.gpu, pytest.mark.heavy]
SHAPE = {  # of a Llama of 85 million parameters: enough for the card to have something to do
    "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "num_key_value_heads": 12, "head_dim": 64,
    "intermediate_size": 2048,
}  # fmt: skip
BATCH, LENGTH, STEPS = 32, 256, 120


def file_of(home: Home, device: str, *, tiny: bool) -> Path:
    """A language model over blocks of words. `tiny`: the starter's own shape, a few steps."""
    file = home.starter(
        "causal-lm", data={"samples": BATCH * 4, "seq_len": {"mean": LENGTH, "max": LENGTH}, "epochs": 200},
        train={"precision": "bf16", "global_batch": BATCH, "micro_batch": BATCH},
        run={"device": device, "max_steps": 6 if tiny else STEPS, "log_every": 5, "checkpoint": {"every_steps": 60}},
    )  # fmt: skip
    rows = home.path / "data" / "stories.jsonl"
    stories = [json.loads(line)["text"] for line in rows.read_text(encoding="utf-8").splitlines()]
    words = " ".join(stories).split() * 3
    blocks = [" ".join(words[at * 11 : at * 11 + LENGTH + 60]) for at in range(BATCH * 5)]
    rows.write_text("".join(json.dumps({"text": block}) + "\n" for block in blocks), encoding="utf-8")
    shape = {"max_position_embeddings": LENGTH} | ({} if tiny else SHAPE)
    for name, more in (("config", shape), ("tokenizer_config", {"model_max_length": LENGTH})):
        said = home.path / "model" / f"{name}.json"
        said.write_text(json.dumps(json.loads(said.read_text()) | more), encoding="utf-8")
    return file


def test_figures_of_a_run(home: Home, device: str) -> None:
    """Rate, peaks, load and power; with a profile of the device measured first, each prediction beside its figure."""
    home.tonnage("calibrate", "--local", "--device", device, "--quick", "-q")
    file = file_of(home, device, tiny=device == "cpu")
    home.run(file, "one")
    shown = home.shown("one")
    measured: dict[str, Any] = shown["measured"]
    assert shown["state"] == "succeeded"
    assert measured["samples_per_s"] == pytest.approx(BATCH / measured["median_step_s"], rel=0.5)
    assert measured["tokens_per_s"] == pytest.approx(measured["samples_per_s"] * LENGTH, rel=0.1)
    assert 0 <= measured["data_wait_fraction"] <= 1
    compared = {one["figure"]: one for one in shown["figures"]}
    assert shown["why_not_predicted"] is None
    assert {"samples_per_s", "peak_memory_gib", "time_s"} <= compared.keys()
    assert all(one["measured"] is not None for name, one in compared.items() if name != "cost_usd")
    if device != "cuda":
        return
    flop = 6 * 85e6 * measured["tokens_per_s"]  # of a dense model, forward and back
    assert 1e12 < flop < 2.5e15  # no card does more in 16 bits; a card that does less has not computed
    (card,) = {gpu["memory_total_bytes"] for gpu in samples_of(home)}
    peaks = [measured[f"peak_{name}_bytes"] for name in ("allocated", "reserved", "device")]
    assert 1.5e9 < peaks[0] <= peaks[1] <= peaks[2] <= card
    assert "NVIDIA" in measured["device"]
    assert 0 < measured["gpu_utilization_fraction"] <= 1
    assert 30 < measured["power_w"] < 1500
    assert 15 < measured["temperature_c"] < 100
    assert 0.1 < compared["peak_memory_gib"]["measured"] / compared["peak_memory_gib"]["predicted"]["value"] < 10


def samples_of(home: Home) -> list[dict[str, Any]]:
    lines = home.folder("one").samples_file.read_text(encoding="utf-8").splitlines()
    return [gpu for line in lines for gpu in json.loads(line).get("gpus", ())]
