"""Tables: columns become numbers, labels are recognised, trees and networks beat the simple models."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tonnage.errors import DataError, InputError
from tonnage.features.tables import TableCoder
from tonnage.recipes.tasks import program, standalone
from tonnage.recipes.tasks.tables import load_table
from tonnage.runs.folder import RunFolder
from tonnage.runs.journal import EventKind
from tonnage.runs.spec import RunSpec, TabularSpec, Task
from tonnage.runs.states import WorkerExit

datasets = pytest.importorskip("sklearn.datasets", reason="the extra `tabular`")
SETS = {"cancer": "load_breast_cancer", "diabetes": "load_diabetes", "digits": "load_digits"}


@pytest.fixture
def spec_for(write_rows: Any, run_spec: Callable[..., RunSpec]) -> Callable[..., RunSpec]:
    """A specification over one of the tables that scikit-learn carries."""

    def make(name: str, task: Task, *, training: dict[str, Any] | None = None, **tabular: Any) -> RunSpec:
        bunch = getattr(datasets, SETS[name])()
        rows = [
            {f"x{at}": float(value) for at, value in enumerate(row)} | {"label": target.item()}
            for row, target in zip(bunch.data, bunch.target, strict=True)
        ]
        path = write_rows(f"{name}.jsonl", rows)
        data = {"validation_fraction": 0.25}
        given = {"learning_rate": 0.1} | (training or {})
        return run_spec(task, path, roles=("label",), data=data, training=given, tabular=TabularSpec(**tabular))

    return make


def make_folder(tmp_path: Path, spec: RunSpec, name: str = "run") -> RunFolder:
    folder = RunFolder(tmp_path / name)
    folder.create(replace(spec, name=name))
    return folder


def boost(folder: RunFolder) -> int:
    pytest.importorskip("xgboost", reason="the extra `tabular`")
    run = standalone("boosted-trees")
    assert run is not None
    return run(folder)


@pytest.mark.parametrize(("asked", "cuda"), [("cuda", False), ("auto", False), ("cpu", True)])
def test_trees_are_grown_where_it_is_said(asked: Any, cuda: bool) -> None:
    """A build without CUDA refuses a GPU instead of training on the processor under the GPU's name."""
    from tonnage.recipes.tasks.boosted_trees import device_of_trees

    if asked == "cuda":
        with pytest.raises(InputError, match="no CUDA"):
            device_of_trees(asked, {"USE_CUDA": cuda})
    else:
        assert device_of_trees(asked, {"USE_CUDA": cuda}) == "cpu"


def test_trees_classify_better_than_the_majority(tmp_path: Path, spec_for: Any) -> None:
    """Boosted trees on a published table: accuracy and AUC beside the majority class and a linear model."""
    folder = make_folder(tmp_path, spec_for("cancer", "boosted-trees", trees=30, depth=4))
    assert boost(folder) == WorkerExit.DONE
    result = json.loads(folder.result_file.read_text())
    assert set(result["metrics"]) == {"accuracy", "macro_f1", "auc"}
    assert result["metrics"]["accuracy"] > result["baseline"]["majority_accuracy"] + 0.2
    assert result["metrics"]["auc"] > 0.9
    assert {"linear_accuracy", "linear_auc"} <= set(result["baseline"])
    assert result["steps"] == 30
    assert result["samples"] == 30 * 427
    lines = [json.loads(line) for line in folder.metrics_file.read_text().splitlines()]
    assert [line["step"] for line in lines] == [10, 20, 30]
    assert lines[-1]["loss"] < lines[0]["loss"]
    assert {"model.ubj", "table.json"} == {path.name for path in folder.model.iterdir()}


def test_trees_predict_values_better_than_the_mean(tmp_path: Path, spec_for: Any) -> None:
    """A label of fractions is a value: root mean squared error below that of the mean."""
    folder = make_folder(tmp_path, spec_for("diabetes", "boosted-trees", trees=40, depth=2, objective="regression"))
    assert boost(folder) == WorkerExit.DONE
    result = json.loads(folder.result_file.read_text())
    assert result["metrics"]["rmse"] < 0.9 * result["baseline"]["mean_rmse"]


def test_the_saved_trees_answer_as_measured(tmp_path: Path, spec_for: Any) -> None:
    """The saved model and coder, loaded again, give the accuracy that the run stated."""
    spec = spec_for("digits", "boosted-trees", trees=15, depth=4)
    folder = make_folder(tmp_path, spec)
    boost(folder)
    import numpy as np
    import xgboost

    table, coder = load_table(spec), TableCoder.load(folder.model)
    assert coder == table.coder
    booster = xgboost.Booster(model_file=folder.model / "model.ubj")
    names = [feature.name for feature in coder.features]
    rows = xgboost.DMatrix(coder.codes(table.validation.rows.columns), feature_names=names)
    right = float(np.mean(booster.predict(rows).argmax(axis=1) == table.validation.labels))
    assert right == json.loads(folder.result_file.read_text())["metrics"]["accuracy"] > 0.8


def test_a_stopped_run_goes_on_to_the_same_model(
    tmp_path: Path, spec_for: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asked to end by SIGTERM and by `stop`, then resumed: the same figures, round for round, as never stopped."""
    spec = spec_for("cancer", "boosted-trees", trees=25, depth=3, training={"log_every_steps": 1})
    whole, cut = make_folder(tmp_path, spec, "whole"), make_folder(tmp_path, spec, "cut")
    boost(whole)
    from tonnage.recipes.alone import SingleProcess

    stepped = SingleProcess.stepped

    def interrupted(self: SingleProcess, step: int, **figures: Any) -> None:
        stepped(self, step, **figures)
        if step == 7:
            signal.raise_signal(signal.SIGTERM)
        if step == 15:
            self.folder.stop_request.touch()

    monkeypatch.setattr(SingleProcess, "stepped", interrupted)
    assert boost(cut) == WorkerExit.PREEMPTED
    assert boost(cut) == WorkerExit.STOPPED
    cut.stop_request.unlink()
    assert boost(cut) == WorkerExit.DONE
    losses = [
        [json.loads(line)["loss"] for line in folder.metrics_file.read_text().splitlines()] for folder in (whole, cut)
    ]
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)
    results = [json.loads(folder.result_file.read_text()) for folder in (whole, cut)]
    assert results[0]["metrics"] == pytest.approx(results[1]["metrics"], rel=1e-6)
    resumed = [event.fields["step"] for event in cut.events() if event.kind is EventKind.RESUMED]
    assert resumed == [7, 15]


def test_a_damaged_checkpoint_is_passed_over(tmp_path: Path, spec_for: Any) -> None:
    """The newest checkpoint that verifies is gone on from; the other is named in the journal."""
    spec = spec_for("cancer", "boosted-trees", trees=6, depth=2)
    spec = replace(spec, checkpoint=replace(spec.checkpoint, every_steps=2, asynchronous=False))
    folder = make_folder(tmp_path, spec)
    boost(folder)
    folder.result_file.unlink()
    newest = folder.checkpoints / "step-00000006" / "weights.safetensors"
    newest.write_bytes(newest.read_bytes()[:-1])
    assert boost(folder) == WorkerExit.DONE
    kinds = {event.kind: event for event in folder.events()}
    assert "step-00000006" in kinds[EventKind.CHECKPOINT_INVALID].fields["path"]
    assert kinds[EventKind.RESUMED].fields["step"] == 4


@pytest.mark.parametrize(
    ("name", "objective", "metric", "simple"),
    [("digits", "auto", "accuracy", "majority_accuracy"), ("diabetes", "regression", "rmse", "mean_rmse")],
)
def test_a_network_learns_the_table(
    name: str, objective: str, metric: str, simple: str, spec_for: Any, train_a_little: Any, tmp_path: Path
) -> None:
    """The perceptron beats the constant answer on published tables; what it saves answers the same."""
    pytest.importorskip("torch", reason="the extra `train`")
    spec = spec_for(name, "mlp", objective=objective, hidden_layers=(32,))
    prepared = program("mlp")(spec)
    train_a_little(prepared, steps=60, batch=64, learning_rate=1e-2)
    assert prepared.baseline is not None
    found = prepared.evaluate(prepared.model, prepared.validation, 100).metrics
    against = prepared.baseline().metrics
    better = found[metric] > 5 * against[simple] if metric == "accuracy" else found[metric] < 0.9 * against[simple]
    assert better, (found, against)
    assert prepared.tokens({}) == 0
    prepared.save(prepared.model, tmp_path)
    from safetensors.torch import load_file

    from tonnage.recipes.tasks.mlp import build_network

    again = build_network(json.loads((tmp_path / "mlp.json").read_text()))
    again.load_state_dict(load_file(tmp_path / "model.safetensors"))
    assert prepared.evaluate(again, prepared.validation, 7).metrics == pytest.approx(dict(found))


LABELS = [
    (["a", "b", "a", "b"], "classification"),
    ([True, False, True, False], "classification"),
    ([0, 1, 2, 1], "classification"),
    (["0", "1", "2", "1"], "classification"),
    ([0.5, 1.5, 2.0, 3.0], "regression"),
    (["0.5", "1.5", "2", "3"], "regression"),
    (list(range(40)), "regression"),
]


@pytest.mark.parametrize(("labels", "objective"), LABELS)
def test_the_objective_follows_from_the_labels(
    labels: list[Any], objective: str, write_rows: Any, run_spec: Callable[..., RunSpec]
) -> None:
    """Texts, true and false and few whole numbers are classes; fractions and many numbers are values."""
    rows = [{"x": at, "label": label} for at, label in enumerate(labels)]
    spec = run_spec("mlp", write_rows("rows.jsonl", rows), roles=("label",), data={"validation_fraction": 0.5})
    assert load_table(spec).coder.objective == objective


def test_values_are_split_as_asked(spec_for: Any) -> None:
    """A label of values is no class to stratify by: the fraction asked for is held out."""
    table = load_table(spec_for("diabetes", "mlp"))
    assert table.coder.objective == "regression"
    assert len(table.validation.labels) == pytest.approx(442 / 4, abs=1)


def test_columns_become_numbers(write_rows: Any, run_spec: Callable[..., RunSpec]) -> None:
    """Numbers, also as text, stay numbers; texts are categories; missing and never seen values are NaN."""
    rows = [
        {"n": "1.5", "c": "red", "m": None, "label": 0.5, "g": 1},
        {"n": "2.5", "c": "blue", "m": 4, "label": 1.5, "g": 1},
        {"n": "3.5", "c": "green", "m": 6, "label": 2.5, "g": 2},
        {"n": "4.5", "c": None, "m": 8, "label": 3.5, "g": 1},
    ]
    spec = run_spec(
        "mlp", write_rows("rows.jsonl", rows), roles=("label",), data={"group": "g", "validation_fraction": 0.25}
    )
    table = load_table(spec)
    assert [feature.name for feature in table.coder.features] == ["n", "c", "m"]  # neither label nor group
    assert table.coder.features[1].categories == ("blue", "red")
    assert str(table.coder.codes(table.train.rows.columns).tolist()) == (
        "[[1.5, 1.0, nan], [2.5, 0.0, 4.0], [4.5, nan, 8.0]]"
    )
    assert str(table.coder.codes(table.validation.rows.columns).tolist()) == "[[3.5, nan, 6.0]]"
    scaled = table.coder.scaled(table.validation.rows.columns)
    assert scaled.tolist()[0] == pytest.approx([0.5345225, 0.0, 0.0, 0.0])  # (3.5 - 17/6) / 1.247...; no category; mean


FAULTS = [
    ([{"x": 1, "label": "one"}, {"x": 2, "label": 2.5}], "regression", "holds 'one', no number"),
    ([{"x": 1, "label": 2.0}, {"x": 2, "label": 2.0}, {"x": 3, "label": 2.0}], "regression", "nothing to learn"),
    ([{"label": 1.0}, {"label": 2.0}], "regression", "no column but the label"),
    ([{"x": 1, "label": "a"}, {"x": 2, "label": "a"}], "auto", "nothing to tell apart"),
    ([{"x": 1, "lable": 1.0}, {"x": 2, "lable": 2.0}], "auto", "no column 'label'"),
]


@pytest.mark.parametrize(("rows", "objective", "said"), FAULTS, ids=[said for _, _, said in FAULTS])
def test_what_cannot_be_learned_is_refused(
    rows: list[dict[str, Any]], objective: Any, said: str, write_rows: Any, run_spec: Callable[..., RunSpec]
) -> None:
    """Labels of the wrong type or of one value, and tables without features: told with a hint."""
    spec = run_spec("mlp", write_rows("rows.jsonl", rows), roles=("label",), tabular=TabularSpec(objective=objective))
    with pytest.raises(DataError, match=said) as caught:
        load_table(spec)
    assert caught.value.hint
