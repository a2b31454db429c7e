"""The network that a run trained over a table, computed by NumPy: no torch in the server."""

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
from tonnage.serving.encoder.tables.rows import TableModel

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
