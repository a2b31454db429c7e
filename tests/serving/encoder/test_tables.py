"""Models of tables served: the answers of `tonnage predict`, columns by name, and every bad value named."""

from __future__ import annotations

import asyncio
import json
import pickle
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from tonnage.errors import InputError
from tonnage.features.tables import Feature, TableCoder

xgboost = pytest.importorskip("xgboost", reason="the extra `tabular`")

FEATURES = (
    Feature(name="age", mean=40.0, spread=10.0, gaps=True),
    Feature(name="city", categories=("Bonn", "Oslo", "Rome"), gaps=False),
    Feature(name="size", mean=1.0, spread=2.0, gaps=False),
)
ROWS: list[dict[str, Any]] = [
    {"age": 31, "city": "Rome", "size": 0.5}, {"age": None, "city": "Oslo", "size": -2.25},
    {"age": 58.5, "city": "Bonn", "size": 3}, {"age": 44, "city": "Rome", "size": 1e3},
]  # fmt: skip
Client = Callable[..., httpx.Response]


def coder(objective: Any) -> TableCoder:
    classes = ("no", "yes") if objective == "classification" else ()
    return TableCoder(features=FEATURES, label="bought", objective=objective, classes=classes)


def table(rows: int = 300) -> tuple[Any, Any]:
    """Rows as numbers, and a label that follows from all of them."""
    made = np.random.default_rng(0)
    codes = np.stack([made.normal(40, 10, rows), made.integers(0, 3, rows), made.normal(1, 2, rows)], axis=1)
    codes = codes.astype(np.float32)
    return codes, (codes[:, 0] / 10 + (codes[:, 1] == 2) * 3 - codes[:, 2] > 3.5).astype(int)


def write_trees(folder: Path, objective: str) -> Path:
    """A folder as a run of boosted trees saves it."""
    codes, labels = table()
    from tonnage.recipes.tasks.boosted_trees import _kinds

    told = coder(objective)
    data = xgboost.DMatrix(codes, label=labels, feature_names=[one.name for one in FEATURES],
                           feature_types=_kinds(told), enable_categorical=True)  # fmt: skip
    kinds = {"classification": {"objective": "multi:softprob", "num_class": 2}, "regression": {}}
    folder.mkdir(parents=True, exist_ok=True)
    xgboost.train({"max_depth": 4, "nthread": 1, **kinds[objective]}, data, 12).save_model(folder / "model.ubj")
    told.save(folder)
    return folder


def write_network(folder: Path, objective: str) -> Path:
    """A folder as a run of a network saves it, its weights random."""
    import torch

    from tonnage.recipes.tasks.mlp import _save, build_network

    torch.manual_seed(0)
    settings = {"inputs": 5, "hidden_layers": [8, 8], "outputs": 2 if objective == "classification" else 1,
                "scale": [0.0, 1.0] if objective == "classification" else [10.0, 3.0]}  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    _save(build_network(settings), folder, coder=coder(objective), settings=settings)
    return folder


def predicted(folder: Path, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What `tonnage predict` writes of the rows, by its own code."""
    from types import SimpleNamespace

    from tonnage.recipes.answering.answerer import make
    from tonnage.recipes.tasks.boosted_trees import load_booster
    from tonnage.recipes.tasks.mlp import load_network
    from tonnage.recipes.trained import TrainedTable

    parts: dict[str, Any] = {"coder": TableCoder.load(folder)}
    if (folder / "model.ubj").is_file():
        parts["booster"] = load_booster(folder)
    else:
        parts["network"] = load_network(folder).eval()
    trained = TrainedTable(spec=SimpleNamespace(), **parts)  # type: ignore[arg-type]
    return make(trained).answer([(f"row {at}", row) for at, row in enumerate(rows)], len(rows))


@pytest.fixture(scope="session")
def trees(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_trees(tmp_path_factory.mktemp("trees"), "classification")


def calls(model: Path, *asked: tuple[str, Any], **service: Any) -> list[httpx.Response]:
    """The answers to (path, body) pairs, one after the other, of a server of the model; no body: GET."""
    from tonnage.serving.encoder.app import App
    from tonnage.serving.encoder.caching import open_cache
    from tonnage.serving.encoder.engine import Encoder
    from tonnage.serving.encoder.service import EncoderService
    from tonnage.serving.encoder.versions import Versions

    fields: dict[str, Any] = {"workers": 1, "batch_tokens": 64, **service}
    told = EncoderService(model=str(model), name="tiny", **fields)
    app = App(Versions(encoder := Encoder(told, cache=open_cache(told.cache_items, None)), Encoder))

    async def all_of() -> list[httpx.Response]:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://served") as client:
            found = []
            for path, body in asked:
                sent = {"content": body} if isinstance(body, bytes) else {"json": body}
                headers = {"inference-header-content-length": str(body.rindex(b"}") + 1)} if "content" in sent else {}
                post = client.post(path, **sent, headers=headers) if body is not None else client.get(path)
                found.append(await post)
            return found

    try:
        return asyncio.run(all_of())
    finally:
        assert encoder.drain(timeout_s=10)


@pytest.mark.parametrize("objective", ["classification", "regression"])
@pytest.mark.parametrize("write", [write_trees, write_network])
def test_rows_are_answered_as_predict_answers_them(write: Any, objective: str, tmp_path: Path) -> None:
    """Trees give the very same numbers, a network those of torch to 1e-5; a missing age and a new city included."""
    folder = write(tmp_path, objective)
    rows = ROWS if write is write_network else [*ROWS, {"age": 20, "city": "Lima", "size": None, "bought": "yes"}]
    (answer,) = calls(folder, ("/predict", {"rows": rows}))
    expected = predicted(folder, rows)
    assert answer.status_code == 200
    if write is write_trees:
        assert answer.json() == expected
        return
    for one, other in zip(answer.json(), expected, strict=True):
        assert one.get("label") == other.get("label")
        key = "value" if objective == "regression" else "probability"
        assert one[key] == pytest.approx(other[key], rel=1e-5, abs=1e-6)


def tensors(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {"name": name, "datatype": kind, "shape": [len(rows)], "data": [row[name] for row in rows]}
        for name, kind in (("age", "FP32"), ("city", "BYTES"), ("size", "FP64"))
    ]


def as_bytes(rows: list[dict[str, Any]]) -> bytes:
    """The same request with its tensors behind the JSON."""
    told, tail = [], b""
    for one in tensors(rows):
        if one["datatype"] == "BYTES":
            content = b"".join(struct.pack("<I", len(text)) + text.encode() for text in one["data"])
        else:
            content = np.array(one["data"], dtype="<f4" if one["datatype"] == "FP32" else "<f8").tobytes()
        tail += content
        told.append({key: one[key] for key in ("name", "datatype", "shape")}
                    | {"parameters": {"binary_data_size": len(content)}})  # fmt: skip
    return json.dumps({"inputs": told}).encode() + tail


def test_open_inference_takes_columns_and_bytes(trees: Path) -> None:
    """A tensor for each column, as JSON or as bytes: the labels and probabilities of plain rows."""
    path = "/v2/models/tiny/infer"
    told, plain, json_found, bytes_found = calls(
        trees, ("/v2/models/tiny", None), ("/predict", {"rows": ROWS}), (path, {"inputs": tensors(ROWS), "id": "a"}),
        (path, as_bytes(ROWS)),
    )  # fmt: skip
    assert [(one["name"], one["datatype"]) for one in told.json()["inputs"]] == [
        ("age", "FP32"), ("city", "BYTES"), ("size", "FP32")]  # fmt: skip
    assert told.json()["inputs"][1]["parameters"]["categories"] == ["Bonn", "Oslo", "Rome"]
    label, score = json_found.json()["outputs"]
    assert label["data"] == [one["label"] for one in plain.json()]
    likeliest = np.array(score["data"]).reshape(score["shape"]).max(axis=1)
    assert likeliest.round(6).tolist() == [one["probability"] for one in plain.json()]
    assert bytes_found.json()["outputs"] == json_found.json()["outputs"]


def one(**changed: Any) -> dict[str, Any]:
    return {"rows": [{**ROWS[0], **changed}]}


def without(name: str) -> dict[str, Any]:
    return {"rows": [{key: value for key, value in ROWS[0].items() if key != name}]}


INFER = "/v2/models/tiny/infer"
MATRIX = {"name": "rows", "datatype": "FP32", "shape": [1, 3], "data": [1, 2, 3]}
BAD: list[tuple[str, Any, int, str, str]] = [
    ("/predict", {"rows": []}, 400, "invalid_request", "batch is empty"),
    ("/predict", {"inputs": ["text"]}, 400, "invalid_request", "`rows` is a list"),
    ("/predict", {"rows": [3]}, 400, "wrong_type", "rows[0] is no object"),
    ("/predict", {"rows": [[1, "Rome"]]}, 400, "wrong_shape", "has 2 values, the model reads 3"),
    ("/predict", without("city"), 400, "missing_column", "'city' not there"),
    ("/predict", one(siz=3), 400, "unknown_column", "did you mean 'size'"),
    ("/predict", one(size="big"), 400, "wrong_type", "'size': 'big' is not a finite number"),
    ("/predict", one(size=1e300), 400, "wrong_type", "not a finite number"),
    ("/predict", one(size=[1]), 400, "wrong_type", "not a finite number"),
    ("/predict", one(city={"name": "Rome"}), 400, "wrong_type", "not a category"),
    ("/predict", {"rows": ROWS * 300}, 413, "too_large", "1200 rows in one request, at most 1024"),
    ("/embed", {"inputs": "it"}, 424, "model_type", "task is tabular-classification"),
    (INFER, {"inputs": [MATRIX]}, 400, "wrong_type", "'city' hold categories"),
    (INFER, {"inputs": [{**MATRIX, "shape": [1, 2]}]}, 400, "wrong_shape", "has 3 values, `shape` says [1, 2]"),
    (INFER, {"inputs": [{**MATRIX, "datatype": "FP7"}]}, 400, "wrong_type", "datatype 'FP7'"),
    (INFER, {"inputs": [{**MATRIX, "data": ["a", 1, 2]}]}, 400, "wrong_type", "holds 'a'"),
    (INFER, {"inputs": tensors(ROWS)[:2]}, 400, "missing_column", "'size' not there"),
    (INFER, {"inputs": [*tensors(ROWS), {**tensors(ROWS)[0], "name": "x"}]}, 400, "unknown_column", "'x'"),
    (INFER, {"inputs": [*tensors(ROWS)[:2], tensors(ROWS[:2])[2]]}, 400, "wrong_shape", "different numbers of rows"),
    (INFER, {"inputs": tensors([])}, 400, "invalid_request", "batch is empty"),
    (INFER, as_bytes(ROWS)[:-3], 400, "invalid_request", "bytes are left"),
]  # fmt: skip


def test_bad_requests_are_named(trees: Path) -> None:
    """Each with its status, a word for programs and a sentence; the server answers the next request."""
    found = calls(trees, *((path, body) for path, body, *_ in BAD), ("/predict", {"rows": ROWS}))
    for (path, body, status, kind, words), answer in zip(BAD, found, strict=False):
        said = (answer.status_code, answer.json().get("error_type"))
        assert said == (status, kind), (path, body, answer.text)
        assert words in answer.json()["error"]
    assert found[-1].status_code == 200


def test_a_network_says_what_it_never_met(tmp_path: Path) -> None:
    """No value, or a new category, in a column that had none in training; where it had gaps, as predict fills them."""
    folder = write_network(tmp_path, "regression")
    none, new, filled = calls(folder, ("/predict", one(size=None)), ("/predict", one(city="Lima")),
                              ("/predict", one(age=None)))  # fmt: skip
    for answer, words in ((none, "'size': nothing is there"), (new, "'Lima', which no row of its training had")):
        assert (answer.status_code, answer.json()["error_type"]) == (400, "missing_value")
        assert words in answer.json()["error"]
    expected = predicted(folder, one(age=None)["rows"])[0]["value"]
    assert filled.json()[0]["value"] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("write", [write_trees, write_network])
def test_an_answer_does_not_depend_on_its_batch_mates(write: Any, tmp_path: Path) -> None:
    """Alone, among others, and kept: the same to 1e-6."""
    rows = [{"age": at, "city": "Oslo", "size": at / 7} for at in range(40)]
    found = calls(write(tmp_path, "classification"), ("/predict", {"rows": rows}),
                  *(("/predict", {"rows": [row]}) for row in rows), ("/predict", {"rows": rows}), ("/metrics", None),
                  cache_items=30)  # fmt: skip
    together, alone, again = found[0].json(), [answer.json()[0] for answer in found[1:-2]], found[-2].json()
    for others in (alone, again):
        assert [one["label"] for one in others] == [one["label"] for one in together]
        assert [one["probability"] for one in others] == pytest.approx([one["probability"] for one in together])
    assert "tonnage_encoder_kept_answers_total 30.0" in found[-1].text


def test_rows_of_several_requests_are_computed_together(trees: Path) -> None:
    """What waits is one batch, as many rows as the budget holds; each request gets its own answers."""
    from tonnage.serving.encoder.tables.models import load_xgboost
    from tonnage.serving.encoder.tables.rows import NumberRows, computing

    model = load_xgboost(trees / "model.ubj", TableCoder.load(trees), threads=1)
    codes, _ = table(9)
    parts = [NumberRows(codes[:2]), NumberRows(codes[2:3]), NumberRows(codes[3:])]
    found = computing(model)(parts)
    assert [len(one) for one in found] == [2, 1, 6]
    assert [row for one in found for row in one] == model.predict(codes).tolist()


def test_a_bare_file_of_xgboost(tmp_path: Path) -> None:
    """One matrix where all columns are numbers, classes by their numbers, the probabilities of the library itself."""
    codes, labels = table()
    booster = xgboost.train({"objective": "binary:logistic", "nthread": 1}, xgboost.DMatrix(codes, label=labels), 5)
    booster.save_model(tmp_path / "mine.json")
    matrix = {"name": "input-0", "datatype": "FP64", "shape": [4, 3], "data": codes[:4].tolist()}
    rows = {"rows": codes[:4].tolist()}
    gap, huge = ([[value, 0, 0], *codes[1:4].tolist()] for value in (None, 1e300))
    infer, plain, told, missing, beyond = calls(
        tmp_path / "mine.json", (INFER, {"inputs": [matrix]}), ("/predict", rows), ("/info", None),
        *((INFER, {"inputs": [{**matrix, "data": values}]}) for values in (gap, huge)),
    )  # fmt: skip
    own = booster.predict(xgboost.DMatrix(codes[:4]))
    assert np.array(infer.json()["outputs"][1]["data"]).reshape(4, 2)[:, 1] == pytest.approx(own, abs=1e-7)
    assert [one["label"] for one in plain.json()] == [str(int(one > 0.5)) for one in own]
    assert told.json()["labels"] == ["0", "1"]
    with_gap = booster.predict(xgboost.DMatrix(np.array([[np.nan, 0, 0]])))[0]
    assert missing.json()["outputs"][1]["data"][1] == pytest.approx(with_gap, abs=1e-7)
    assert (beyond.status_code, beyond.json()["error_type"]) == (400, "wrong_type")


def test_files_of_a_data_frame_keep_their_categories(tmp_path: Path) -> None:
    """XGBoost and LightGBM: a category is sent by its text; the answers are those of the library on the frame."""
    pandas, lightgbm = pytest.importorskip("pandas"), pytest.importorskip("lightgbm")
    codes, labels = table()
    city = pandas.Categorical.from_codes(codes[:, 1].astype(int), ["Bonn", "Oslo", "Rome"])
    frame = pandas.DataFrame({"age": codes[:, 0].astype(float), "city": city, "size": codes[:, 2]})
    boosted = xgboost.XGBClassifier(n_estimators=5, enable_categorical=True, n_jobs=1).fit(frame, labels)
    boosted.save_model(tmp_path / "x.ubj")
    light = lightgbm.LGBMClassifier(n_estimators=5, verbose=-1, n_jobs=1).fit(frame, labels)
    light.booster_.save_model(tmp_path / "l.txt")
    rows = [{**row, "size": float(row["size"])} for row in frame[:8].to_dict("records")]
    for file, model in ((tmp_path / "x.ubj", boosted), (tmp_path / "l.txt", light)):
        (answer,) = calls(file, ("/predict", {"rows": rows}))
        own = model.predict_proba(frame[:8]).max(axis=1)
        assert [one["probability"] for one in answer.json()] == pytest.approx(own.tolist(), abs=1e-6)
    cut = (tmp_path / "l.txt").read_bytes()[:-2000]
    (tmp_path / "cut.txt").write_bytes(cut[: cut.index(b"end of trees") - 30] if b"end of trees" in cut else cut)
    with pytest.raises(InputError, match="cut short"):
        calls(tmp_path / "cut.txt")


class Harmful:
    """A program in a pickle."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (Path("harm-was-done"),))


def test_a_pickle_is_refused_unless_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever it is called, before a byte of it is run; with trust, trees in it are served by their classes' names."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.ubj").write_bytes(pickle.dumps(Harmful()))
    with pytest.raises(InputError, match="is a pickle"):
        calls(tmp_path / "model.ubj")
    assert not (tmp_path / "harm-was-done").exists()
    codes, labels = table()
    booster = xgboost.XGBClassifier(n_estimators=3, n_jobs=1).fit(codes, labels)
    (tmp_path / "trees.pkl").write_bytes(pickle.dumps(booster))
    (answer,) = calls(tmp_path / "trees.pkl", ("/predict", {"rows": codes[:3].tolist()}), trust=True)
    assert [one["label"] for one in answer.json()] == [str(one) for one in booster.predict(codes[:3])]
    (tmp_path / "other.pkl").write_bytes(pickle.dumps({"no": "trees"}))
    with pytest.raises(InputError, match="holds a dict"):
        calls(tmp_path / "other.pkl", trust=True)


def test_files_that_are_no_model(tmp_path: Path, trees: Path) -> None:
    """Cut short, of something else, of a run without its model, several in a folder, in another number format."""
    whole = (trees / "model.ubj").read_bytes()
    (tmp_path / "cut.ubj").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "notes.txt").write_text("hello")
    (tmp_path / "run").mkdir()
    coder("regression").save(tmp_path / "run")
    (tmp_path / "two").mkdir()
    for name in ("a.ubj", "b.ubj"):
        (tmp_path / "two" / name).write_bytes(whole)
    for model, words, service in (
        ("cut.ubj", "XGBoost cannot read", {}), ("notes.txt", "is not a model of XGBoost", {}),
        ("run", "and no model", {}), ("two", "several models: a.ubj, b.ubj", {}),
        ("two/a.ubj", "its own numbers", {"weights": "int8"}), ("two/a.ubj", "is for tabular", {"task": "embedding"}),
        ("two/a.ubj", "belong to an encoder of texts", {"calibration": "texts.txt"}),
    ):  # fmt: skip
        with pytest.raises(InputError, match=words):
            calls(tmp_path / model, **service)
