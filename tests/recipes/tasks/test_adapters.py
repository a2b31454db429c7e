"""Adapters over a 4-bit base: trained where bitsandbytes is, refused with what to install where it is not."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tonnage.errors import MissingExtra
from tonnage.runs.spec import RunSpec

pytest.importorskip("transformers", reason="the extra `train`")
torch = pytest.importorskip("torch", reason="the extra `train`")

from tonnage.recipes.tasks import program  # noqa: E402
from tonnage.workload.jobs import Lora  # noqa: E402


@pytest.fixture
def spec(minilm: Path, write_rows: Any, reviews: Any, run_spec: Callable[..., RunSpec]) -> RunSpec:
    rows = write_rows("rows.jsonl", reviews(120))
    found = run_spec("sequence-classification", rows, weights=minilm, roles=("text", "label"))
    training = replace(found.training, method="qlora", lora=Lora(rank=8), precision="bf16")
    return replace(found, training=training, launch=replace(found.launch, device="cpu"))


@pytest.mark.slow  # half a minute of 4-bit products on a CPU
def test_a_four_bit_base_is_trained_through(spec: RunSpec, train_a_little: Any, tmp_path: Path) -> None:
    """The base is held in half a byte a weight and frozen; adapters and head learn; the adapters are saved."""
    pytest.importorskip("bitsandbytes", reason="the extra `qlora`")
    prepared = program("sequence-classification")(spec)
    weights = dict(prepared.model.named_parameters())
    packed = [name for name, one in weights.items() if one.dtype == torch.uint8]
    assert len(packed) == 6 * 6  # six linear layers of each of the six blocks
    assert not any(weights[name].requires_grad for name in packed)
    assert prepared.shape is not None
    assert prepared.shape["params"] == 22_713_216 + 384 * 2 + 2
    losses = train_a_little(prepared, steps=10, learning_rate=2e-3)
    assert losses[-1] < 0.8 * losses[0]
    prepared.save(prepared.model, tmp_path / "model")
    assert (tmp_path / "model" / "adapter_model.safetensors").stat().st_size < 5e6


def test_without_bitsandbytes_it_is_refused(spec: RunSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before any step, with the extra to install."""
    monkeypatch.setitem(sys.modules, "bitsandbytes", None)
    with pytest.raises(MissingExtra) as caught:
        program("sequence-classification")(spec)
    assert caught.value.hint == "pip install 'tonnage[qlora]'"
