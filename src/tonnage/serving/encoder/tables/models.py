"""A table's model opened: its file read by its library, its reader, its sweep."""

from __future__ import annotations

import importlib
import json
from itertools import count
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tonnage.errors import InputError, MissingExtra
from tonnage.features.tables import TableCoder, softmax
from tonnage.serving.encoder.export import digest_of_files
from tonnage.serving.encoder.opened import Opened
from tonnage.serving.encoder.service import EncoderService
from tonnage.serving.encoder.tables.boosters import load_lightgbm, load_pickle, load_xgboost
from tonnage.serving.encoder.tables.files import TableFile, find_table
from tonnage.serving.encoder.tables.rows import NumberRows, TableModel, TableReader, computing

SIZES: Final = (1, 16, 256)  # rows: a call costs far more than a row


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
