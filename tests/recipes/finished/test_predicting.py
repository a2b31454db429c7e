"""Answers of finished models: in order, the same however they are batched, killed and gone on with."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tonnage.errors import InputError
from tonnage.runs.folder import RunFolder
from tonnage.runs.spec import RunSpec

pytest.importorskip("transformers", reason="the extra `train`")

from tonnage.recipes.predicting import Answered, PredictionRequest, predict


class Killed(Exception):
    """What a kill is in these tests."""


def said(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def ask(folder: RunFolder, data: Path | str, out: Path, *, die_after: int | None = None, **given: Any) -> Answered:
    def progress(done: int, rate: float | None) -> None:  # noqa: ARG001
        if die_after is not None and done >= die_after:
            raise Killed

    return predict(folder, PredictionRequest(data=str(data), out=out, **{"batch": 2, **given}), progress=progress)


@pytest.fixture
def folder(review_spec: RunSpec, finish: Any) -> RunFolder:
    found: RunFolder = finish(review_spec)[0]
    return found


@pytest.fixture
def rows(review_spec: RunSpec) -> Path:
    return Path(review_spec.data.train.location)


def test_a_line_a_row_in_order(folder: RunFolder, rows: Path, tmp_path: Path) -> None:
    """Number, id, kept columns, label and its probability; the same one by one as in batches; `limit` ends early."""
    ask(folder, rows, tmp_path / "a.jsonl", keep={"label": "true"})
    ask(folder, rows, tmp_path / "b.jsonl", keep={"label": "true"}, batch=1)
    ask(folder, rows, tmp_path / "c.jsonl", limit=7, device="cpu")
    answers, alone, few = (said(tmp_path / f"{name}.jsonl") for name in "abc")
    assert list(answers[0]) == ["row", "id", "true", "label", "probability"]
    assert [one["row"] for one in answers] == list(range(1, 121))
    assert [(one["id"], one["true"]) for one in answers] == [(one["id"], one["label"]) for one in said(rows)]
    for one, other in zip(answers, alone, strict=True):
        assert one["label"] == other["label"]
        assert one["probability"] == pytest.approx(other["probability"], abs=1e-4)
        assert 0.5 <= one["probability"] <= 1.0
    assert [one["label"] for one in few] == [one["label"] for one in answers[:7]]


def test_a_killed_attempt_is_gone_on_with(folder: RunFolder, rows: Path, tmp_path: Path) -> None:
    """A half-written line is thrown away, whole ones stay, and the file has the bytes of one that was never killed."""
    ask(folder, rows, tmp_path / "whole.jsonl")
    out = tmp_path / "killed.jsonl"
    with pytest.raises(Killed):
        ask(folder, rows, out, die_after=32)
    assert not out.exists()
    part = tmp_path / "killed.jsonl.part"
    lines = part.read_text().splitlines(keepends=True)
    part.write_text("".join(lines[:-3]) + '{"row": 30, "la')
    found = ask(folder, rows, out)
    assert (found.rows, found.resumed_at, found.thrown_away) == (120, len(lines) - 3, False)
    assert out.read_bytes() == (tmp_path / "whole.jsonl").read_bytes()
    assert sorted(one.name for one in tmp_path.glob("killed*")) == ["killed.jsonl"]


def test_a_part_of_something_else_is_begun_anew(folder: RunFolder, rows: Path, tmp_path: Path) -> None:
    """Other rows or settings since the kill: nothing of the part is kept, and that is told."""
    out = tmp_path / "out.jsonl"
    with pytest.raises(Killed):
        ask(folder, rows, out, die_after=32)
    rows.write_text("".join(reversed(rows.read_text().splitlines(keepends=True))))
    found = ask(folder, rows, out)
    assert (found.resumed_at, found.thrown_away) == (0, True)
    assert [one["id"] for one in said(out)] == [one["id"] for one in said(rows)]


def test_rows_from_stdin(folder: RunFolder, rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`-` reads JSON lines from stdin."""
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(rows.read_bytes())))
    assert ask(folder, "-", tmp_path / "out.jsonl").rows == 120


BAD = [
    ('{"body": "x"}\n', {}, "rows.jsonl:1: there is no column 'text' (for text)"),
    ('{"text": "x"}\n\n{"text": 5}\n', {}, "rows.jsonl:3: 'text' (text) holds '5', a int"),
    ('{"text": "x"}\n', {"keep": {"lable": "lable"}}, "no column 'lable' to keep"),
    ('{"text": "x", "label": "y"}\n', {"keep": {"label": "label"}}, "cannot be named 'label'"),
    ('{"text": "x"}\n', {"columns": {"txet": "x"}}, "no role 'txet'"),
    ("", {}, "has no rows"),
    ("no json\n", {}, "rows.jsonl:1: not JSON"),
]


@pytest.mark.parametrize(("text", "given", "message"), BAD, ids=[message for _, _, message in BAD])
def test_bad_rows_are_named(folder: RunFolder, tmp_path: Path, text: str, given: Any, message: str) -> None:
    """File, line and column, what to do, and no file where the answers would be."""
    (tmp_path / "rows.jsonl").write_text(text)
    with pytest.raises(InputError) as caught:
        ask(folder, tmp_path / "rows.jsonl", tmp_path / "out.jsonl", **given)
    assert message in caught.value.message
    assert caught.value.hint
    assert not list(tmp_path.glob("out.jsonl*"))


def test_an_output_that_cannot_be_written_is_told_first(folder: RunFolder, rows: Path, tmp_path: Path) -> None:
    """A folder, a folder that is not there, the input itself, and a file that another process writes."""
    for out, message in ((tmp_path, "is a folder"), (tmp_path / "no" / "a", "is not there"), (rows, "what is read")):
        with pytest.raises(InputError, match=message):
            ask(folder, rows, out)
    from tonnage.recipes.predicting import Output

    with Output(tmp_path / "out.jsonl", {}), pytest.raises(InputError, match="another process"):
        ask(folder, rows, tmp_path / "out.jsonl")


def test_tags_with_spans(write_rows: Any, run_spec: Any, tiny_model: Any, finish: Any, tmp_path: Path) -> None:
    """A tag for each word, null beyond the longest input; entities with the words and letters they span."""
    texts = ["ann saw paris", "bob went to rome", "ann went from rome to paris"] * 8
    tags = {"ann": "B-PER", "bob": "B-PER", "paris": "B-LOC", "rome": "B-LOC"}
    rows = [{"tokens": one.split(), "tags": [tags.get(word, "O") for word in one.split()]} for one in texts]
    spec = run_spec(
        "token-classification", write_rows("rows.jsonl", rows), config=tiny_model("bert", texts),
        roles=("tokens", "tags"), training={"max_tokens": 6},
    )  # fmt: skip
    folder, _ = finish(spec)
    new = write_rows("new.jsonl", [{"tokens": "ann  saw paris"}, {"tokens": ["bob", *["to"] * 6]}])
    ask(folder, new, tmp_path / "out.jsonl")
    text, listed = said(tmp_path / "out.jsonl")
    assert [len(text["tags"]), len(listed["tags"])] == [3, 7]
    assert listed["tags"][4:] == [None] * 3
    assert None not in listed["tags"][:4]
    for entity in text["entities"]:
        assert "ann  saw paris"[entity["start"] : entity["end"]].split() == entity["text"].split()
        first, end = entity["words"]
        assert entity["text"].split() == ["ann", "saw", "paris"][first:end]


def test_entities_are_words_that_belong_together() -> None:
    """B- begins, I- of the same type goes on, anything else ends; an entity is as sure as its least sure word."""
    from tonnage.recipes.answering.words import _entities

    words, tags = ["New", "York", "met", "Ann", "Lee"], ["B-LOC", "I-LOC", "O", "B-PER", "B-PER"]
    found = _entities(words, [(0, 3), (4, 8), (9, 12), (13, 16), (17, 20)], list(tags), [0.9, 0.6, 1.0, 0.8, 0.7])
    assert found[0] == {
        "type": "LOC", "text": "New York", "words": [0, 2], "start": 0, "end": 8, "probability": 0.6,
    }  # fmt: skip
    assert [one["text"] for one in found[1:]] == ["Ann", "Lee"]


def test_answers_stand_in_their_context(
    write_rows: Any, run_spec: Any, tiny_model: Any, finish: Any, tmp_path: Path
) -> None:
    """The answer is the context's own letters, of however many windows it is made."""
    context = " ".join(["ann saw paris and bob went to rome"] * 6)
    rows = [{"question": "ann saw", "context": context + " rome" * at, "answers": "rome"} for at in range(12)]
    spec = run_spec(
        "question-answering", write_rows("rows.jsonl", rows), config=tiny_model("bert", [context]),
        roles=("question", "context", "answers"), training={"stride": 4, "max_tokens": 16},
    )  # fmt: skip
    folder, _ = finish(spec)
    new = write_rows("new.jsonl", [{"question": "bob", "context": context}, {"question": "x", "context": "ann saw"}])
    ask(folder, new, tmp_path / "out.jsonl")
    for row, answer in zip(said(new), said(tmp_path / "out.jsonl"), strict=True):
        assert answer["answer"] == row["context"][answer["start"] : answer["end"]] != ""
        assert 0 < answer["score"] < 1
        assert 0 < answer["no_answer_score"] < 1


def test_text_goes_on_from_its_prompt(
    write_rows: Any, run_spec: Any, tiny_model: Any, finish: Any, tmp_path: Path
) -> None:
    """The likeliest tokens; a prompt padded beside a longer one is gone on with as alone."""
    texts = ["ann saw paris", "bob went to rome and saw ann", "rome"] * 8
    gpt = tiny_model("gpt2", texts, n_embd=32, n_layer=2, n_head=2)
    spec = run_spec(
        "causal-lm", write_rows("rows.jsonl", [{"text": one} for one in texts]), config=gpt, roles=("text",)
    )
    folder, _ = finish(spec)
    new = write_rows("new.jsonl", [{"text": one} for one in texts[:3]])
    ask(folder, new, tmp_path / "a.jsonl", batch=3, max_new_tokens=5)
    ask(folder, new, tmp_path / "b.jsonl", batch=1, max_new_tokens=5)
    answers = said(tmp_path / "a.jsonl")
    assert answers == said(tmp_path / "b.jsonl")
    assert all(0 <= one["tokens"] <= 5 and one["ended"] == (one["tokens"] < 5) for one in answers)
    with pytest.raises(InputError, match="leave no room"):
        ask(folder, new, tmp_path / "c.jsonl", max_new_tokens=64)


@pytest.mark.parametrize("objective", ["classification", "regression"])
@pytest.mark.parametrize("task", ["mlp", "boosted-trees"])
def test_rows_of_tables(task: Any, objective: Any, write_rows: Any, run_spec: Any, finish: Any, tmp_path: Path) -> None:
    """Trees and networks answer rows without labels; their answers have the figures they are judged by."""
    pytest.importorskip("xgboost", reason="the extra `tabular`")
    from tonnage.recipes.judging import judge_run
    from tonnage.recipes.tasks import standalone
    from tonnage.runs.journal import EventKind
    from tonnage.runs.spec import TabularSpec

    rows = [{"a": at % 7, "b": ["x", "y", None][at % 3], "label": 2.5 * (at % 7) + 0.1} for at in range(60)]
    if objective == "classification":
        rows = [{**row, "label": "big" if row["a"] > 3 else "small"} for row in rows]
    spec = run_spec(
        task, write_rows("rows.jsonl", rows), roles=("label",), tabular=TabularSpec(trees=4, hidden_layers=(8,))
    )
    if task == "mlp":
        folder = finish(spec)[0]
    else:
        folder = RunFolder(tmp_path / "home" / "runs" / "one")
        folder.create(replace(spec, name="one"))
        assert standalone(task)(folder) == 0  # type: ignore[misc]
        folder.record(EventKind.SUCCEEDED, who="supervisor")
    new = write_rows("new.jsonl", [{"a": row["a"], "b": row["b"]} for row in rows])
    ask(folder, new, tmp_path / "out.jsonl", batch=7)
    answers, judged = said(tmp_path / "out.jsonl"), judge_run(folder, data=str(tmp_path / "rows.jsonl"))
    if objective == "classification":
        right = sum(one["label"] == row["label"] for one, row in zip(answers, rows, strict=True))
        assert judged.metrics["accuracy"] == pytest.approx(right / 60)
    else:
        off = sum(abs(one["value"] - row["label"]) for one, row in zip(answers, rows, strict=True))
        assert judged.metrics["mae"] == pytest.approx(off / 60, rel=1e-5)
    with pytest.raises(InputError, match="no column 'b'"):
        ask(folder, write_rows("less.jsonl", [{"a": 1}]), tmp_path / "less.out.jsonl")


@pytest.mark.slow
def test_real_weights_from_the_command_line(
    minilm: Path, review_spec: RunSpec, finish: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """MiniLM by `tonnage evaluate` and `tonnage predict`: the accuracy told is that of the answers written."""
    from tonnage.cli import run

    folder, _ = finish(replace(review_spec, config=None, weights=str(minilm)))
    monkeypatch.setenv("TONNAGE_HOME", str(tmp_path / "home"))
    rows = review_spec.data.train.location
    assert run(["evaluate", folder.path.name, "--data", rows, "-o", "json"]) == 0
    judged = json.loads(capsys.readouterr().out)
    assert run(["predict", "one", "--data", rows, "--out", str(tmp_path / "out.jsonl"), "--keep", "label=true"]) == 0
    answers = said(tmp_path / "out.jsonl")
    assert sum(one["label"] == one["true"] for one in answers) / 120 == pytest.approx(judged["metrics"]["accuracy"])
