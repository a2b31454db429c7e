"""Question answering: windows over long contexts, answers found again letter by letter, measured as SQuAD does."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tonnage.errors import DataError, InputError
from tonnage.runs.spec import RunSpec

pytest.importorskip("transformers", reason="the extra `train`")
torch = pytest.importorskip("torch", reason="the extra `train`")

from tonnage.recipes.tasks import program  # noqa: E402
from tonnage.recipes.tasks.metrics import answer_metrics  # noqa: E402

ROLES = ("question", "context", "answers")
COLOURS = ["red", "green", "blue", "yellow", "pink", "white"]
THINGS = ["ball", "hat", "door", "car", "lamp", "chair", "coat", "cup"]


def rows(count: int, things: int = 3) -> list[dict[str, Any]]:
    draw = random.Random(0)
    found = []
    for _ in range(count):
        chosen = draw.sample(THINGS, k=things)
        colours = [draw.choice(COLOURS) for _ in chosen]
        context = " ".join(f"The {thing} is {colour} ." for thing, colour in zip(chosen, colours, strict=True))
        at = draw.randrange(things)
        place = context.index(f"The {chosen[at]} is ") + len(f"The {chosen[at]} is ")
        answers = {"text": [colours[at]], "answer_start": [place]}
        found.append({"question": f"what colour is the {chosen[at]}", "context": context, "answers": answers})
    return found


@pytest.fixture
def spec_for(write_rows: Any, run_spec: Callable[..., RunSpec], tiny_model: Any) -> Callable[..., RunSpec]:
    def make(some: list[dict[str, Any]], **training: Any) -> RunSpec:
        texts = [f"{row['question']} {row['context']}" for row in some]
        config = tiny_model("bert", texts)
        data = {"validation_fraction": 0.25}
        return run_spec(
            "question-answering", write_rows("rows.jsonl", some), config=config, roles=ROLES, data=data,
            training={"stride": 4, **training},
        )  # fmt: skip

    return make


class Oracle(torch.nn.Module):  # type: ignore[misc,name-defined]
    """Answers with the marks it is trained on: what a perfect model would say."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))

    def forward(self, input_ids: Any, start_positions: Any, end_positions: Any, **_: Any) -> Any:
        width = input_ids.shape[1]
        score = [torch.nn.functional.one_hot(marks, width).float() * 9 for marks in (start_positions, end_positions)]
        return SimpleNamespace(start_logits=score[0], end_logits=score[1])


@pytest.mark.parametrize("max_tokens", [64, 24], ids=["one window", "several windows"])
def test_a_perfect_model_scores_one(spec_for: Any, max_tokens: int) -> None:
    """Marks, windows and the way back to letters fit together: with the right tokens every answer is exact."""
    prepared = program("question-answering")(spec_for(rows(40, things=6), max_tokens=max_tokens))
    windows = len(prepared.validation)
    found = prepared.evaluate(Oracle(), prepared.validation, 4)
    assert dict(found.metrics) == {"exact_match": 1.0, "f1": 1.0}
    assert found.samples == 10
    assert windows == 10 if max_tokens == 64 else windows > 20


def test_it_learns(spec_for: Any, train_a_little: Any, tmp_path: Path) -> None:
    """A tiny model's loss falls over the rows; it saves and loads."""
    prepared = program("question-answering")(spec_for(rows(40), max_tokens=48))
    losses = train_a_little(prepared, steps=30, batch=15, learning_rate=3e-3)
    assert losses[-1] < 0.7 * losses[0]
    assert prepared.baseline is not None
    assert set(prepared.baseline().metrics) == {"nearest_sentence_exact_match", "nearest_sentence_f1"}
    prepared.save(prepared.model, tmp_path / "model")
    assert {path.name for path in (tmp_path / "model").iterdir()} >= {
        "config.json",
        "model.safetensors",
        "tokenizer.json",
    }


def test_questions_without_an_answer(spec_for: Any) -> None:
    """An empty list of answers is a question that the context does not answer; saying nothing is then right."""
    some = rows(20)
    for row in some[::2]:
        row["answers"] = {"text": [], "answer_start": []}
    found = program("question-answering")(spec_for(some, max_tokens=48))
    assert dict(found.evaluate(Oracle(), found.validation, 4).metrics) == {"exact_match": 1.0, "f1": 1.0}


FAULTS = [
    ({"answers": {"text": ["purple"], "answer_start": [4]}}, "'purple' is not in the context at letter 4"),
    ({"answers": "purple"}, "'purple' is not in the context"),
    ({"answers": {"text": ["red", "red"], "answer_start": [4]}}, "answers hold"),
    ({"context": None}, "'context' (context) holds nothing"),
]


@pytest.mark.parametrize(("change", "said"), FAULTS, ids=[said for _, said in FAULTS])
def test_answers_that_are_not_there_are_refused(change: dict[str, Any], said: str, spec_for: Any) -> None:
    """An answer must stand in its context where it is said to; the row is named."""
    some = rows(4)
    some[2] |= change
    spec = spec_for(some)
    with pytest.raises(DataError) as caught:
        program("question-answering")(spec)
    assert "rows.jsonl:3: " in caught.value.message
    assert said in caught.value.message


def test_windows_must_hold_the_question(spec_for: Any) -> None:
    """Windows too short for question and overlap are refused with what to change."""
    with pytest.raises(InputError, match="is too long for windows of 10"):
        program("question-answering")(spec_for(rows(8), max_tokens=10))


PUBLISHED = [  # accepted, said, exact match, F1: by the rules of SQuAD's evaluation script, worked by hand
    (["Denver Broncos", "the Denver Broncos"], "Denver Broncos!", 1.0, 1.0),
    (["10"], "10 points", 0.0, 2 / 3),
    (["in the north of the city"], "north", 0.0, 2 / 5),
    ([], "", 1.0, 1.0),
    (["gold"], "", 0.0, 0.0),
]


@pytest.mark.parametrize(("accepted", "said", "exact", "f1"), PUBLISHED)
def test_answers_are_compared_as_squad_does(accepted: list[str], said: str, exact: float, f1: float) -> None:
    """Case, punctuation and articles do not count; the best accepted answer does."""
    found = answer_metrics([accepted], [said])
    assert found["exact_match"] == exact
    assert found["f1"] == pytest.approx(f1)
