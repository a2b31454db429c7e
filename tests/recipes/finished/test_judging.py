"""Finished models judged: the same figures as at the end of their training, on rows and labels that are theirs."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tonnage.errors import DataError, InputError
from tonnage.runs.journal import EventKind
from tonnage.runs.spec import DataSource, RunSpec

pytest.importorskip("transformers", reason="the extra `train`")

from tonnage.recipes.judging import judge_run


@pytest.mark.parametrize("method", ["full", "lora"])
def test_a_finished_classifier_is_judged_as_it_was(review_spec: RunSpec, finish: Any, method: Any) -> None:
    """On the rows held out of train, whole or as adapters, by the weights that were saved."""
    spec = replace(review_spec, training=replace(review_spec.training, method=method))
    folder, prepared = finish(spec)
    expected = prepared.evaluate(prepared.model, prepared.validation, 8)
    found = judge_run(folder, batch=5, baseline=True)
    assert (found.split, found.samples, found.run) == ("validation", expected.samples, "one")
    assert found.metrics == pytest.approx(expected.metrics)
    assert found.baseline == prepared.baseline().metrics


def test_test_rows_and_a_file_come_before_validation(review_spec: RunSpec, finish: Any, write_rows: Any) -> None:
    """The split is named; a file with other names for its columns is judged by naming them."""
    rows = [{"body": "great film", "mark": "pos"}, {"body": "awful plot", "mark": "neg"}]
    file = write_rows("file.jsonl", rows)
    test = write_rows("test.jsonl", [{"text": row["body"], "label": row["mark"]} for row in rows] * 3)
    spec = replace(review_spec, data=replace(review_spec.data, test=DataSource(location=str(test), format="jsonl")))
    folder, _ = finish(spec)
    on_test = judge_run(folder)
    on_file = judge_run(folder, data=str(file), columns={"text": "body", "label": "mark"})
    assert (on_test.split, on_test.samples) == ("test", 6)
    assert (on_file.split, on_file.samples, on_file.data) == ("file", 2, str(file))
    assert on_file.metrics == pytest.approx(on_test.metrics)


def test_labels_are_those_the_model_learned(review_spec: RunSpec, finish: Any, write_rows: Any) -> None:
    """A label the model never saw is named with file and line, and those it knows."""
    folder, _ = finish(review_spec)
    file = write_rows("new.jsonl", [{"text": "great", "label": "pos"}, {"text": "so so", "label": "mixed"}])
    with pytest.raises(DataError, match=r"new.jsonl:2: the model never learned the label 'mixed'") as caught:
        judge_run(folder, data=str(file))
    assert "neg, pos" in str(caught.value.hint)


def test_the_training_rows_may_have_changed_since(review_spec: RunSpec, finish: Any, write_rows: Any) -> None:
    """The numbers of the labels come with the model, not from the rows as they are now."""
    file = write_rows("file.jsonl", [{"text": "great film", "label": "pos"}, {"text": "awful", "label": "neg"}])
    folder, _ = finish(review_spec)
    before = judge_run(folder, data=str(file)).metrics
    Path(review_spec.data.train.location).write_text(json.dumps({"text": "x", "label": "alpha"}) + "\n")
    assert judge_run(folder, data=str(file)).metrics == before


@pytest.mark.parametrize(
    ("state", "said"),
    [(EventKind.FAILED, "it is failed"), (EventKind.STOPPED, "tonnage resume one"), (None, "is lost")],
)
def test_an_unfinished_run_has_no_model(review_spec: RunSpec, finish: Any, state: Any, said: str) -> None:
    """Whatever is in its folder: the state and what to do are told."""
    folder, _ = finish(review_spec, state=state)
    with pytest.raises(InputError) as caught:
        judge_run(folder)
    assert said in f"{caught.value.message} {caught.value.hint}"


def test_other_tasks_are_judged_as_they_were(write_rows: Any, run_spec: Any, tiny_model: Any, finish: Any) -> None:
    """Tags of words, answers in contexts and texts: the same figures from the saved model."""
    draw = random.Random(1)
    words = ["ann", "bob", "paris", "rome", "went", "to", "from", "saw"]
    texts = [" ".join(draw.choices(words, k=6)) for _ in range(40)]
    tags = {"ann": "B-PER", "bob": "B-PER", "paris": "B-LOC", "rome": "B-LOC"}
    bert, gpt = tiny_model("bert", texts), tiny_model("gpt2", texts, n_embd=32, n_layer=2, n_head=2)
    tagged = [{"tokens": one.split(), "tags": [tags.get(word, "O") for word in one.split()]} for one in texts]
    asked = [{"question": one.split()[0], "context": one, "answers": one.split()[2]} for one in texts]
    specs = [
        run_spec("token-classification", write_rows("a.jsonl", tagged), config=bert, roles=("tokens", "tags")),
        run_spec(
            "question-answering", write_rows("b.jsonl", asked), config=bert, training={"stride": 4},
            roles=("question", "context", "answers"),
        ),
        run_spec("causal-lm", write_rows("c.jsonl", [{"text": one} for one in texts]), config=gpt, roles=("text",)),
    ]  # fmt: skip
    for spec in specs:
        folder, prepared = finish(spec, name=spec.task)
        expected = prepared.evaluate(prepared.model, prepared.validation, 8)
        found = judge_run(folder)
        assert found.metrics == pytest.approx(expected.metrics), spec.task
        assert found.samples == expected.samples
