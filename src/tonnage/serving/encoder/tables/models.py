"""A table's model opened: its file read by its library (boosted trees of XGBoost and LightGBM), its reader, its sweep.

What the columns are the coder beside the trees of a run says; of a bare file the library does: names, categories by
their text where the trees were grown from a data frame, and classes as numbers, since neither library saves what they
are called.
"""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tonnage.errors import InputError, MissingExtra
from tonnage.features.tables import Feature, TableCoder, softmax
from tonnage.serving.encoder.export import digest_of_files
from tonnage.serving.encoder.opened import Opened
from tonnage.serving.encoder.service import EncoderService
from tonnage.serving.encoder.tables.files import TableFile, check_whole, find_table
from tonnage.serving.encoder.tables.rows import NumberRows, TableModel, TableReader, computing

SIZES: Final = (1, 16, 256)  # rows: a call costs far more than a row
Predict = Callable[[NDArray[Any]], NDArray[Any]]
BINARY: Final = ("binary", "binary:logistic")  # their one output is the probability of the second class
SEVERAL: Final = ("multiclass", "multiclassova", "softmax", "multi:softprob", "multi:softmax")


def open_table(service: EncoderService) -> Opened:
    """The model of a file, or of a run's folder. InputError for what cannot be served so."""
    file = find_table(Path(service.model), trust=service.trust)
    if file is None:
        raise InputError(f"{service.model} holds no model of a table")
    if service.weights != "fp32":
        raise InputError(f"a model of a table is served in its own numbers, not in {service.weights}",
                         hint="leave --dtype out")  # fmt: skip
    model = _load(file, threads=service.threads)
    if service.task not in (None, model.task):
        raise InputError(f"{service.model} is for {model.task}, not {service.task}", hint="leave --task out")
    return Opened(
        kind="tables", folder=model, digest=digest_of_files(file.parts), runtime=model.runtime, device="cpu",
        reader=TableReader(model), compute=computing(model),
        example=NumberRows(np.zeros((1, len(model.coder.features)), dtype=model.dtype)), sizes=SIZES,
        request_items=min(service.request_rows, service.queue_items), settings=model.runtime,
    )  # fmt: skip


def _load(file: TableFile, *, threads: int) -> TableModel:
    if file.library == "lightgbm":
        return load_lightgbm(file.file, threads=threads)
    if file.library == "pickle":
        return load_pickle(file.file, threads=threads)
    if file.run is not None and file.library == "network":
        return load_network(file.run, file.file)
    coder = None if file.run is None else TableCoder.load(file.run)
    return load_xgboost(file.file, coder, threads=threads)


SETTINGS: Final = "mlp.json"


def load_network(folder: Path, weights: Path) -> TableModel:
    """Linear layers with ReLU between. It goes on from a missing value only where its training had some."""
    coder = TableCoder.load(folder)
    found = _weights(weights)
    layers = []
    for at in count(step=2):  # every other layer of the run's network is its ReLU
        if f"layers.{at}.weight" not in found:
            break
        layers.append((np.ascontiguousarray(found[f"layers.{at}.weight"].T), found[f"layers.{at}.bias"]))
    said = json.loads((folder / SETTINGS).read_text(encoding="utf-8"))
    widths = [*(one.shape[0] for one, _ in layers), *(one.shape[1] for one, _ in layers[-1:])]
    if widths != [said["inputs"], *said["hidden_layers"], said["outputs"]]:
        raise InputError(f"{weights} has layers of {widths}, {SETTINGS} says otherwise: {said}")
    mean, spread = found["scale"]

    def predict(codes: NDArray[Any]) -> NDArray[Any]:
        values: NDArray[Any] = coder.scaled_codes(codes)
        for number, (matrix, bias) in enumerate(layers):
            values = values @ matrix + bias
            if number < len(layers) - 1:
                values = np.maximum(values, 0)
        return values[:, 0] * spread + mean if coder.objective == "regression" else softmax(values)

    return TableModel(coder=coder, predict=predict, runtime=f"numpy {np.__version__}", bridges_gaps=False)


def load_xgboost(file: Path, coder: TableCoder | None, *, threads: int) -> TableModel:
    """Trees of XGBoost. InputError for a file that it cannot read."""
    library = _library("xgboost", "tabular")
    booster = library.Booster()
    try:
        booster.load_model(str(file))
    except library.core.XGBoostError as error:
        raise InputError(f"XGBoost cannot read {file}: {str(error).splitlines()[0]}") from error
    return xgboost_model(booster, coder, classes=None, threads=threads)


def xgboost_model(booster: Any, coder: TableCoder | None, *, classes: Sequence[Any] | None, threads: int) -> TableModel:
    """Trees in memory. `inplace_predict` gives what `predict` does, bit for bit, and makes no matrix first."""
    library = _library("xgboost", "tabular")
    objective = json.loads(booster.save_config())["learner"]["objective"]["name"]
    booster.set_param({"nthread": threads, "device": "cpu"})
    if objective == "multi:softmax":
        booster.set_param({"objective": "multi:softprob"})

    best = booster.attr("best_iteration")  # of training that was stopped early: later trees are not used
    trees = (0, 0) if best is None else (0, int(best) + 1)

    def predict(codes: NDArray[Any]) -> NDArray[Any]:
        found: NDArray[Any] = booster.inplace_predict(codes, iteration_range=trees, validate_features=False)
        return found

    count = int(booster.num_features())
    names = booster.feature_names or [f"f{at}" for at in range(count)]
    made = coder or _coder(names, dict(_xgboost_categories(booster, names)), objective, classes)
    runtime = f"xgboost {library.__version__}"
    return _checked(TableModel(coder=made, predict=_shaped(predict, objective), runtime=runtime), count)


def _xgboost_categories(booster: Any, names: Sequence[str]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The categories of a data frame's columns, which XGBoost (3.1 and later) saves as Arrow does: bytes, and where
    each begins. Columns of categories without names are numbers."""
    if "c" not in (booster.feature_types or ()):
        return
    said = json.loads(booster.save_raw(raw_format="json"))["learner"]["gradient_booster"]
    said = said.get("model") or said.get("gbtree", {}).get("model", {})
    for name, one in zip(names, said.get("cats", {}).get("enc", ()), strict=False):
        if one["offsets"]:
            whole = bytes(value & 0xFF for value in one["values"])
            places = zip(one["offsets"], one["offsets"][1:], strict=False)
            yield name, tuple(whole[begin:end].decode() for begin, end in places)
        elif one["values"]:
            yield name, tuple(str(value) for value in one["values"])


def load_lightgbm(file: Path, *, threads: int) -> TableModel:
    """Trees of LightGBM. InputError for a file that it cannot read."""
    library = _library("lightgbm", "lightgbm")
    check_whole(file)
    try:
        booster = library.Booster(model_file=str(file))
    except library.basic.LightGBMError as error:
        raise InputError(f"LightGBM cannot read {file}: {error}") from error
    return lightgbm_model(booster, classes=None, threads=threads)


def lightgbm_model(booster: Any, *, classes: Sequence[Any] | None, threads: int) -> TableModel:
    """Trees in memory; rows are numbers of 64 bits, as LightGBM compares them."""
    library = _library("lightgbm", "lightgbm")
    names, text = booster.feature_name(), booster.model_to_string(num_iteration=0)
    objective = (re.search(r"^objective=(\S+)", text, re.MULTILINE) or ("", "none"))[1]
    infos = (re.search(r"^feature_infos=(.*)$", text, re.MULTILINE) or ("", ""))[1].split()
    of_categories = [name for name, info in zip(names, infos, strict=True) if not info.startswith("[") and ":" in info]
    categories: dict[str, tuple[str, ...]] = {}
    if booster.pandas_categorical:
        named = [tuple(str(one) for one in some) for some in booster.pandas_categorical]
        if len(named) != len(of_categories):
            raise InputError("the file does not say which columns its categories are of",
                             hint="a column of categories that no tree uses was saved: train without it")  # fmt: skip
        categories = dict(zip(of_categories, named, strict=True))

    def predict(codes: NDArray[Any]) -> NDArray[Any]:
        return np.asarray(booster.predict(codes, num_threads=threads))

    coder = _coder(names, categories, objective, classes)
    runtime = f"lightgbm {library.__version__}"
    made = TableModel(coder=coder, predict=_shaped(predict, objective), runtime=runtime, dtype="float64")
    return _checked(made, int(booster.num_feature()))


def load_pickle(file: Path, *, threads: int) -> TableModel:
    """Trees out of a pickle that is trusted: a booster of either library, or their scikit-learn classes."""
    try:
        held: Any = importlib.import_module("joblib").load(file)
    except Exception as error:  # whatever the program in a pickle raises
        raise InputError(f"the pickle {file} cannot be read: {type(error).__name__}: {error}") from error
    kind = type(held)
    classes = list(getattr(held, "classes_", ())) or None
    if kind.__module__.startswith("xgboost"):
        booster = held.get_booster() if hasattr(held, "get_booster") else held
        return xgboost_model(booster, None, classes=classes, threads=threads)
    if kind.__module__.startswith("lightgbm"):
        return lightgbm_model(getattr(held, "booster_", held), classes=classes, threads=threads)
    raise InputError(f"{file} holds a {kind.__name__}", hint="boosted trees of XGBoost or LightGBM are served")


def _weights(file: Path) -> dict[str, NDArray[Any]]:
    try:
        library: Any = importlib.import_module("safetensors")
        reading: Any = importlib.import_module("safetensors.numpy")
    except ImportError as error:
        raise MissingExtra("a network's weights", "serve") from error
    try:
        found: dict[str, NDArray[Any]] = reading.load_file(file)
    except library.SafetensorError as error:
        raise InputError(f"the weights {file} cannot be read: {error}") from error
    return found


def _coder(
    names: Sequence[str], categories: dict[str, tuple[str, ...]], objective: str, classes: Sequence[Any] | None
) -> TableCoder:
    """Of a bare file: classes are called by their numbers where nothing else is known."""
    features = tuple(Feature(name=name, categories=categories.get(name)) for name in names)
    if objective not in BINARY + SEVERAL:
        return TableCoder(features=features, label="label", objective="regression")
    found = tuple(str(one) for one in classes or ())
    return TableCoder(features=features, label="label", objective="classification", classes=found)


def _shaped(predict: Predict, objective: str) -> Predict:
    """(rows, classes) also where a library gives the probability of the second class alone."""

    def shaped(codes: NDArray[Any]) -> NDArray[Any]:
        found = predict(codes)
        if objective in BINARY:
            return np.stack((1 - found, found), axis=1)
        return found.reshape(len(codes), -1)

    return shaped if objective in BINARY + SEVERAL else predict


def _checked(model: TableModel, columns: int) -> TableModel:
    """One row through it: as many outputs as there are classes, which are counted where they have no names."""
    coder = model.coder
    if len(coder.features) != columns:
        raise InputError(f"the trees read {columns} columns, the table beside them names {len(coder.features)}")
    try:
        found = model.predict(np.zeros((1, columns), dtype=model.dtype))
    except Exception as error:  # each library has exceptions of its own
        raise InputError(f"the model does not compute a row: {type(error).__name__}: {error}") from error
    if coder.objective == "regression":
        if found.shape != (1,):
            raise InputError(f"the model gives {found[0].size} values for a row", hint="one value is served")
        return model
    if found.ndim == 1:
        raise InputError("the model gives one value for a row; the table beside it names classes")
    classes = coder.classes or tuple(str(number) for number in range(found.shape[1]))
    if len(classes) != found.shape[1]:
        raise InputError(f"the model gives {found.shape[1]} probabilities, {len(classes)} classes are named")
    return replace(model, coder=replace(coder, classes=classes))


def _library(name: str, extra: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise MissingExtra(f"a model of {name}", extra) from error
