"""What a request asks of a table's model, and its answer: rows in plain JSON, tensors of Open Inference v2."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from tonnage.serving.encoder.engine import Encoder
from tonnage.serving.encoder.faults import BadRequest, WrongShape, WrongType
from tonnage.serving.encoder.protocols import Body, EncoderRequest
from tonnage.serving.encoder.tables.rows import TableModel, TableReader
from tonnage.serving.encoder.tensors import TEXTS, Tensor, as_text, read_tensors

MATRIX: Final = "rows"


def _reader(encoder: Encoder) -> TableReader:
    reader = encoder.opened.reader
    assert isinstance(reader, TableReader)
    return reader


def ask_rows(encoder: Encoder, body: Body) -> EncoderRequest:
    """`{"rows": [{column: value, ...}, ...]}`, answered as `tonnage predict` does: `value`; `label`, `probability`."""
    reader, rows = _reader(encoder), body.get("rows")
    if not isinstance(rows, list):
        raise BadRequest("`rows` is a list of rows: objects with a value for each column")

    def answer(found: Sequence[Any], _: int) -> Any:
        return reader.model.coder.answers(np.asarray(found))

    return EncoderRequest(given=reader.rows(rows), answer=answer)


def ask_table_infer(encoder: Encoder, body: Body) -> EncoderRequest:
    """A tensor for each column, [n] or [n, 1], categories as BYTES; or one of all columns, [n, columns]."""
    reader, name, version = _reader(encoder), encoder.service.name, encoder.version
    values = _matrix(reader, read_tensors(body))

    def answer(found: Sequence[Any], _: int) -> Any:
        outputs = _outputs(reader.model, np.asarray(found))
        return {"model_name": name, "model_version": version, "id": body.get("id", ""), "outputs": outputs}

    return EncoderRequest(given=values, answer=answer)


def _matrix(reader: TableReader, tensors: Sequence[Tensor]) -> Any:
    first = tensors[0]
    if len(tensors) == 1 and first.values.ndim == 2 and first.name not in reader.names:
        return reader.matrix(_texts(first))
    counts = {one.name: _count(one) for one in tensors}
    if len(set(counts.values())) > 1:
        raise WrongShape(f"the tensors have different numbers of rows: {counts}")
    for one in tensors:
        _check_type(reader.model, one)
    columns = {one.name: _texts(one).reshape(-1).tolist() for one in tensors}
    return reader.columns(columns, counts[first.name])


def _texts(one: Tensor) -> Any:
    """The values of a tensor, texts as texts."""
    if one.datatype != TEXTS:
        return one.values
    made = np.empty(one.values.size, dtype=object)
    made[:] = [as_text(value, one.name) for value in one.values.reshape(-1).tolist()]
    return made.reshape(one.values.shape)


def _count(one: Tensor) -> int:
    if one.values.ndim not in (1, 2) or (one.values.ndim == 2 and one.values.shape[1] != 1):
        raise WrongShape(f"`{one.name}` has the shape {list(one.values.shape)}; a column is [n] or [n, 1]")
    return len(one.values)


def _check_type(model: TableModel, one: Tensor) -> None:
    feature = next((feature for feature in model.coder.features if feature.name == one.name), None)
    if feature is None:  # named as an unknown column where the columns are read
        return
    if feature.categories is None and one.datatype == TEXTS:
        raise WrongType(f"`{one.name}` holds numbers, and came as {TEXTS}")
    if feature.categories is not None and one.datatype != TEXTS:
        raise WrongType(f"`{one.name}` holds categories by their text: send {TEXTS}, not {one.datatype}")


def table_metadata(encoder: Encoder, name: str, versions: Sequence[str]) -> Body:
    """The columns that the model reads, with their categories, and its outputs."""
    model = _reader(encoder).model
    inputs = [
        {"name": one.name, "datatype": "FP64" if model.dtype == "float64" else "FP32", "shape": [-1]}
        if one.categories is None
        else {"name": one.name, "datatype": TEXTS, "shape": [-1], "parameters": {"categories": list(one.categories)}}
        for one in model.coder.features
    ]
    outputs: list[Body] = [{"name": "value", "datatype": "FP64", "shape": [-1]}]
    if model.coder.objective == "classification":
        outputs = [{"name": "label", "datatype": TEXTS, "shape": [-1]},
                   {"name": "score", "datatype": "FP64", "shape": [-1, len(model.labels)]}]  # fmt: skip
    return {"name": name, "versions": list(versions), "platform": f"tonnage-{model.runtime.partition(' ')[0]}",
            "inputs": inputs, "outputs": outputs}  # fmt: skip


def _outputs(model: TableModel, found: Any) -> list[Body]:
    if model.coder.objective == "regression":
        return [{"name": "value", "datatype": "FP64", "shape": [len(found)], "data": found.tolist()}]
    labels = [model.labels[at] for at in found.argmax(axis=1)]
    return [{"name": "label", "datatype": TEXTS, "shape": [len(labels)], "data": labels},
            {"name": "score", "datatype": "FP64", "shape": list(found.shape),
             "data": found.reshape(-1).tolist()}]  # fmt: skip
