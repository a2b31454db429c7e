"""A table's model opened: its file read by its library, its reader, its sweep."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np

from tonnage.errors import InputError
from tonnage.features.tables import TableCoder
from tonnage.serving.encoder.export import digest_of_files
from tonnage.serving.encoder.opened import Opened
from tonnage.serving.encoder.service import EncoderService
from tonnage.serving.encoder.tables.boosters import load_lightgbm, load_pickle, load_xgboost
from tonnage.serving.encoder.tables.files import TableFile, find_table
from tonnage.serving.encoder.tables.network import load_network
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
