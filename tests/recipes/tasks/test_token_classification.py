"""Token classification: tags reach the first piece of each word, entities are measured whole, bad tags are refused."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tonnage.errors import DataError
from tonnage.runs.spec import RunSpec

pytest.importorskip("transformers", reason="the extra `train`")

from tonnage.recipes.tasks import program

ROLES = ("tokens", "tags")
NAMES = ["Anna", "Bertha", "Carlos", "Dimitri", "Xiaoyan", "Featherstonehaugh"]
PLACES = [["New", "York"], ["Rome"], ["San", "Sebastian"], ["Tallinn"]]


def sentences(count: int) -> list[dict[str, Any]]:
    draw = random.Random(0)
    rows = []
    for at in range(count):
        place = draw.choice(PLACES)
        marks = ["B-LOC"] + ["I-LOC"] * (len(place) - 1)
        words = [draw.choice(NAMES), "lives", "in", *place, "since", str(1900 + at)]
        rows.append({"tokens": words, "tags": ["B-PER", "O", "O", *marks, "O", "O"]})
    return rows


@pytest.fixture
def spec(minilm: Path, write_rows: Any, run_spec: Callable[..., RunSpec]) -> RunSpec:
    return run_spec("token-classification", write_rows("rows.jsonl", sentences(120)), weights=minilm, roles=ROLES)


def test_it_learns_entities(spec: RunSpec, train_a_little: Any, tmp_path: Path) -> None:
    """On real weights entities are found after a few steps, scored whole; the saved model knows its tags."""
    prepared = program("token-classification")(spec)
    before = prepared.evaluate(prepared.model, prepared.validation, 8).metrics
    train_a_little(prepared, steps=14, batch=8, learning_rate=3e-4)
    after = prepared.evaluate(prepared.model, prepared.validation, 8).metrics
    assert set(after) == {"accuracy", "precision", "recall", "f1"}
    assert after["f1"] > max(0.5, before["f1"] + 0.3)
    prepared.save(prepared.model, tmp_path / "model")
    again = program("token-classification")(replace(spec, weights=str(tmp_path / "model")))
    assert again.model.config.id2label == {0: "O", 1: "B-LOC", 2: "I-LOC", 3: "B-PER", 4: "I-PER"}
    assert again.evaluate(again.model, again.validation, 8).metrics == after


def test_the_first_piece_of_a_word_carries_its_tag(spec: RunSpec) -> None:
    """One label per word, on its first piece; other pieces and special tokens are left out of the loss."""
    prepared = program("token-classification")(spec)
    names = prepared.model.config.id2label
    for at in range(len(prepared.train)):
        marks = [names[mark] for mark in prepared.train[at]["labels"] if mark != -100]
        assert marks[:3] == ["B-PER", "O", "O"]
        assert len(marks) in (6, 7)
    batch = prepared.collate([prepared.train[at] for at in range(4)])
    assert batch["labels"].shape == batch["input_ids"].shape
    assert (batch["labels"][batch["attention_mask"] == 0] == -100).all()


def test_words_cut_off_count_as_missed(spec: RunSpec) -> None:
    """A sentence longer than the limit is scored on all of its words: the entities cut off are not found."""
    cut = replace(spec, training=replace(spec.training, max_tokens=4))
    prepared = program("token-classification")(cut)
    found = prepared.evaluate(prepared.model, prepared.validation, 8)
    assert found.samples == 12
    assert found.metrics["recall"] <= 0.5  # the place, one of two entities, is never seen


def test_the_baseline_is_each_words_commonest_tag(spec: RunSpec) -> None:
    """Names and places seen in train are found by looking them up."""
    prepared = program("token-classification")(spec)
    assert prepared.baseline is not None
    assert prepared.baseline().metrics["commonest_tag_f1"] == 1.0


FAULTS = [
    ({"tokens": ["a", "b"], "tags": ["O"]}, "2 words in 'tokens', 1 tags"),
    ({"tokens": ["a", "b"], "tags": ["O", "I-PER"]}, "'I-PER' after 'O'"),
    ({"tokens": ["a", "b"], "tags": ["B-PER", "I-LOC"]}, "'I-LOC' after 'B-PER'"),
    ({"tokens": ["a", "b"], "tags": ["B-PER", "noun"]}, "'noun' beside entity tags"),
    ({"tokens": ["a", "b"], "tags": None}, "holds nothing"),
    ({"tokens": [], "tags": []}, "holds nothing"),
]


@pytest.mark.parametrize(("row", "said"), FAULTS, ids=[said for _, said in FAULTS])
def test_bad_tags_are_refused_with_their_line(
    row: dict[str, Any], said: str, write_rows: Any, run_spec: Callable[..., RunSpec], tmp_path: Path
) -> None:
    """Ragged rows and tags that are not IOB2 name file and line, before any model is loaded."""
    path = write_rows("rows.jsonl", [*sentences(3), row])
    with pytest.raises(DataError) as caught:
        program("token-classification")(run_spec("token-classification", path, weights=tmp_path, roles=ROLES))
    assert f"{path}:4: " in caught.value.message
    assert said in caught.value.message
