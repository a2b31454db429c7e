"""Sequence classification on real pretrained weights: it learns, measures, saves, and refuses bad rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tonnage.errors import DataError
from tonnage.runs.spec import RunSpec

pytest.importorskip("transformers", reason="the extra `train`")
torch = pytest.importorskip("torch", reason="the extra `train`")

from tonnage.recipes.tasks import program  # noqa: E402

ROLES = ("text", "label")


@pytest.fixture
def spec(minilm: Path, write_rows: Any, reviews: Any, run_spec: Callable[..., RunSpec]) -> RunSpec:
    return run_spec("sequence-classification", write_rows("rows.jsonl", reviews(200)), weights=minilm, roles=ROLES)


def test_it_learns_more_than_the_majority_class(spec: RunSpec, tmp_path: Path, train_a_little: Any) -> None:
    """A few steps on real weights beat the majority class by far; the saved folder loads and answers the same."""
    prepared = program("sequence-classification")(spec)
    before = prepared.evaluate(prepared.model, prepared.validation, 16)
    losses = train_a_little(prepared, steps=12)
    after = prepared.evaluate(prepared.model, prepared.validation, 16)
    assert prepared.baseline is not None
    baseline = prepared.baseline().metrics
    assert losses[-1] < losses[0]
    assert after.samples == before.samples == len(prepared.validation) == 20
    assert after.metrics["accuracy"] >= baseline["majority_accuracy"] + 0.2
    assert set(after.metrics) == {"accuracy", "macro_f1"}
    prepared.save(prepared.model, tmp_path / "model")
    again = program("sequence-classification")(replace(spec, weights=str(tmp_path / "model")))
    assert again.evaluate(again.model, again.validation, 4).metrics == after.metrics
    assert again.model.config.label2id == {"neg": 0, "pos": 1}


def test_adapters_train_a_small_part(spec: RunSpec, train_a_little: Any) -> None:
    """With LoRA the base is frozen, and the task is learned all the same."""
    prepared = program("sequence-classification")(replace(spec, training=replace(spec.training, method="lora")))
    trained = sum(one.numel() for one in prepared.model.parameters() if one.requires_grad)
    assert prepared.shape is not None
    assert 0 < trained < 0.05 * prepared.shape["params"]
    assert prepared.shape["params"] == 22_713_216 + 384 * 2 + 2  # MiniLM's own, with its pooler, and the new head
    train_a_little(prepared, steps=12, learning_rate=1e-3)
    assert prepared.baseline is not None
    after = prepared.evaluate(prepared.model, prepared.validation, 16).metrics["accuracy"]
    assert after >= prepared.baseline().metrics["majority_accuracy"] + 0.2


def test_adapters_load_over_their_base(spec: RunSpec, write_rows: Any, tmp_path: Path) -> None:
    """With three classes too: the saved config names them, and base and adapters together answer as measured."""
    peft = pytest.importorskip("peft", reason="the extra `train`")
    transformers = pytest.importorskip("transformers")
    rows = [{"text": f"{word} film {at}", "label": word} for at in range(20) for word in ("good", "bad", "odd")]
    spec = replace(
        spec, data=replace(spec.data, train=replace(spec.data.train, location=str(write_rows("3.jsonl", rows))))
    )
    prepared = program("sequence-classification")(replace(spec, training=replace(spec.training, method="lora")))
    prepared.save(prepared.model, tmp_path / "model")
    config = transformers.AutoConfig.from_pretrained(tmp_path / "model")
    assert config.id2label == {0: "bad", 1: "good", 2: "odd"}
    base = transformers.AutoModelForSequenceClassification.from_pretrained(spec.weights, config=config)
    again = peft.PeftModel.from_pretrained(base, tmp_path / "model")
    found = [
        one.evaluate(model, one.validation, 8).metrics for one, model in ((prepared, prepared.model), (prepared, again))
    ]
    assert found[0] == found[1]


def test_batches_are_padded_to_their_longest(spec: RunSpec) -> None:
    """A batch is as wide as its longest text; tokens counts what is no padding; longest texts come first."""
    prepared = program("sequence-classification")(spec)
    order = prepared.longest(prepared.train)
    widths = [len(prepared.train[at]["input_ids"]) for at in order]
    assert widths == sorted(widths, reverse=True)
    items = [prepared.train[order[0]], prepared.train[order[-1]]]
    batch = prepared.collate(items)
    assert tuple(batch["input_ids"].shape) == (2, widths[0])
    assert prepared.tokens(batch) == widths[0] + widths[-1]


def test_a_compiled_model_meets_few_widths(spec: RunSpec) -> None:
    """Each width is compiled anew, for a minute: batches come in four at most, and no token is lost to them."""
    plain = program("sequence-classification")(spec)
    compiled = program("sequence-classification")(replace(spec, training=replace(spec.training, compile=True)))
    limit = spec.training.max_tokens
    assert limit is not None
    found = set()
    for at in range(len(plain.train)):
        one, other = plain.collate([plain.train[at]]), compiled.collate([compiled.train[at]])
        assert plain.tokens(one) == compiled.tokens(other)
        found.add(other["input_ids"].shape[1])
        assert one["input_ids"].shape[1] <= other["input_ids"].shape[1] <= limit
    assert len(found) <= 4
    assert found <= {8, 16, limit}


def test_preparing_twice_gives_the_same(spec: RunSpec) -> None:
    """New layers, splits and order follow from the seeds alone."""
    one, other = (program("sequence-classification")(spec) for _ in range(2))
    for name, value in one.model.state_dict().items():
        assert torch.equal(value, other.model.state_dict()[name])
    assert [dict(one.validation[at]) for at in range(20)] == [dict(other.validation[at]) for at in range(20)]


FAULTS = [
    ([{"text": "a", "label": "x"}, {"text": "b", "label": "x"}, {"text": "c", "label": "x"}], "has the label 'x'"),
    ([{"text": "a", "label": 1}, {"text": "b", "label": "x"}, {"text": "c", "label": 0}], "of two types"),
    ([{"text": "a", "label": 0.5}, {"text": "b", "label": 1.5}, {"text": "c", "label": 2.5}], "a float"),
    ([{"text": "a", "label": "x"}, {"text": "b"}, {"text": "c", "label": "y"}], "no label in 'label'"),
    ([{"text": "a", "label": "x"}, {"text": 5, "label": "y"}, {"text": "c", "label": "y"}], "holds 5, a int"),
    ([{"txt": "a", "label": "x"}, {"txt": "b", "label": "y"}], "no column 'text'"),
]


@pytest.mark.parametrize(("rows", "said"), FAULTS, ids=[said for _, said in FAULTS])
def test_what_cannot_be_learned_is_refused(
    rows: list[dict[str, Any]], said: str, write_rows: Any, run_spec: Callable[..., RunSpec], tmp_path: Path
) -> None:
    """One label, mixed or wrong types, missing values and columns: told before any model is loaded, with a hint."""
    spec = run_spec("sequence-classification", write_rows("rows.jsonl", rows), weights=tmp_path, roles=ROLES)
    with pytest.raises(DataError) as caught:
        program("sequence-classification")(spec)
    assert said in caught.value.message
    assert caught.value.hint
