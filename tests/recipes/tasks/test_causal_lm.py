"""Causal language models: packing loses no token, prompts are not learned, perplexity is per token."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tonnage.errors import DataError
from tonnage.runs.spec import RunSpec

pytest.importorskip("transformers", reason="the extra `train`")

from tonnage.recipes.tasks import program

TEXTS = [f"the {animal} sat on the {thing}" for animal in ("cat", "dog", "cow") for thing in ("mat", "hat", "box")]


@pytest.fixture
def spec_for(write_rows: Any, run_spec: Callable[..., RunSpec], tiny_model: Any) -> Callable[..., RunSpec]:
    def make(rows: list[dict[str, Any]], *, roles: tuple[str, ...] = ("text",), **training: Any) -> RunSpec:
        config = tiny_model("llama", [" ".join(str(value) for value in row.values()) for row in rows])
        data = {"validation_fraction": 0.3}
        path = write_rows("rows.jsonl", rows)
        return run_spec("causal-lm", path, config=config, roles=roles, training=training, data=data)

    return make


def test_packing_loses_no_token(spec_for: Any) -> None:
    """All blocks but the last are full; together they hold every token of every text, and one end for each."""
    rows = [{"text": text} for text in TEXTS]
    prepared = program("causal-lm")(spec_for(rows, max_tokens=8))
    lengths = [len(prepared.train[at]["input_ids"]) for at in range(len(prepared.train))]
    texts = 9 - 3  # a third is held out
    assert sum(lengths) == texts * 7
    assert set(lengths[:-1]) == {8}
    assert sum(prepared.train[at]["input_ids"].count(3) for at in range(len(lengths))) == texts


def test_padded_texts_stay_one_by_one(spec_for: Any) -> None:
    """Without packing a sample is a text; padding has no part in the loss."""
    prepared = program("causal-lm")(spec_for([{"text": text} for text in TEXTS], packing=False))
    assert len(prepared.train) + len(prepared.validation) == len(TEXTS)
    batch = prepared.collate([prepared.train[0], {**prepared.train[1], **{
        name: prepared.train[1][name][:3] for name in ("input_ids", "attention_mask", "labels")}}])  # fmt: skip
    assert batch["labels"][1].tolist()[3:] == [-100] * 4
    assert prepared.tokens(batch) == 7 + 3


def test_a_prompt_is_not_learned(spec_for: Any) -> None:
    """With a prompt the loss counts what follows it."""
    rows = [{"prompt": "the cat", "text": f"sat on the {thing}"} for thing in ("mat", "hat", "box", "rug")]
    prepared = program("causal-lm")(spec_for(rows, roles=("text", "prompt")))
    item = prepared.train[0]
    assert item["labels"][:2] == [-100, -100]
    assert item["labels"][2:] == item["input_ids"][2:]
    with pytest.raises(DataError, match="the prompt alone fills the 2 tokens"):
        program("causal-lm")(spec_for(rows, roles=("text", "prompt"), max_tokens=2))


def test_it_learns_more_than_token_frequencies(spec_for: Any, train_a_little: Any, tmp_path: Path) -> None:
    """Perplexity falls below that of the tokens' frequencies, and is e to the loss per token."""
    prepared = program("causal-lm")(spec_for([{"text": text} for text in TEXTS * 4], packing=False))
    train_a_little(prepared, steps=60, batch=9, learning_rate=1e-2)
    found = prepared.evaluate(prepared.model, prepared.validation, 2).metrics
    assert found["perplexity"] == pytest.approx(math.exp(found["loss_per_token"]))
    assert prepared.baseline is not None
    assert found["perplexity"] < prepared.baseline().metrics["token_frequency_perplexity"]
    same = prepared.evaluate(prepared.model, prepared.validation, 7).metrics["loss_per_token"]
    assert same == pytest.approx(found["loss_per_token"], rel=1e-4)  # whatever the batches
    prepared.save(prepared.model, tmp_path / "model")
    assert (tmp_path / "model" / "model.safetensors").exists()


def test_an_empty_text_is_refused(spec_for: Any) -> None:
    """It has nothing to learn; the row is named."""
    with pytest.raises(DataError, match=r"rows.jsonl:2: an empty text"):
        program("causal-lm")(spec_for([{"text": "a b"}, {"text": " "}, {"text": "c d"}]))
