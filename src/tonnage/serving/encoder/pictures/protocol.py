"""What a request asks of a model of pictures, and its answer: base64 in plain JSON, tensors of Open Inference v2."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from tonnage.serving.encoder.engine import Encoder
from tonnage.serving.encoder.faults import BadRequest, WrongShape, WrongTask, WrongType
from tonnage.serving.encoder.pictures.reading import Given, picture_of
from tonnage.serving.encoder.protocols import Body, EncoderRequest, flag, unit_vector
from tonnage.serving.encoder.tensors import TEXTS, Tensor, read_tensors

IMAGE: Final = "image"
TOP: Final = 5  # classes of an answer, where the request names no number


def _needs(encoder: Encoder, task: str) -> None:
    if encoder.folder.task != task:
        raise WrongTask(f"the model's task is {encoder.folder.task}; this endpoint needs {task}")


def _images(body: Body) -> list[Given]:
    found = body.get("images")
    if not isinstance(found, list):
        raise BadRequest("`images` is a list of pictures in base64")
    return [picture_of(one, f"images[{at}]") for at, one in enumerate(found)]


def ask_pictures(encoder: Encoder, body: Body) -> EncoderRequest:
    """`{"images": [BASE64, ...], "top_k": 5}`: of each the likeliest classes with their probabilities."""
    _needs(encoder, "image-classification")
    top = body.get("top_k", TOP)
    if type(top) is not int or top < 1:
        raise BadRequest("`top_k` is a whole number of at least 1")
    labels = encoder.folder.labels

    def answer(found: Sequence[Any], _: int) -> Any:
        return [[{"label": labels[at], "score": float(row[at])} for at in np.argsort(-row)[:top]]
                for row in map(np.asarray, found)]  # fmt: skip

    return EncoderRequest(given=_images(body), answer=answer)


def ask_picture_vectors(encoder: Encoder, body: Body) -> EncoderRequest:
    """`{"images": [BASE64, ...]}`: one vector a picture, of length 1 unless `normalize` is false."""
    _needs(encoder, "image-embedding")
    normal = flag(body, "normalize") is not False

    def answer(found: Sequence[Any], _: int) -> Any:
        return [unit_vector(one, normalise=normal).tolist() for one in found]

    return EncoderRequest(given=_images(body), answer=answer)


def ask_picture_infer(encoder: Encoder, body: Body) -> EncoderRequest:
    """One tensor `image`: BYTES [n] or [n, 1], files of pictures (in base64 where they are in JSON), or UINT8
    [n, rows, columns, 3], their pixels."""
    name, version = encoder.service.name, encoder.version
    tensors = read_tensors(body)
    if len(tensors) != 1 or tensors[0].name != IMAGE:
        raise BadRequest(f"`inputs` is a list of one tensor, `{IMAGE}`")

    def answer(found: Sequence[Any], _: int) -> Any:
        outputs = _outputs(encoder, np.asarray(found))
        return {"model_name": name, "model_version": version, "id": body.get("id", ""), "outputs": outputs}

    return EncoderRequest(given=_given(tensors[0]), answer=answer)


def _given(tensor: Tensor) -> list[Given]:
    values = tensor.values
    if tensor.datatype == "UINT8":
        if values.ndim != 4 or values.shape[3] != 3:
            raise WrongShape(f"`{IMAGE}` has the shape {list(values.shape)}; pixels are [n, rows, columns, 3]")
        return list(np.ascontiguousarray(values))
    if tensor.datatype != TEXTS:
        raise WrongType(f"`{IMAGE}` has datatype {tensor.datatype}; {TEXTS} or UINT8 is taken")
    if values.ndim not in (1, 2) or (values.ndim == 2 and values.shape[1] != 1):
        raise WrongShape(f"`{IMAGE}` has the shape {list(values.shape)}; files are [n] or [n, 1]")
    return [picture_of(one, f"{IMAGE}[{at}]") for at, one in enumerate(values.reshape(-1).tolist())]


def picture_metadata(encoder: Encoder, name: str, versions: Sequence[str]) -> Body:
    """What the model takes and gives."""
    outputs = [{"name": "embedding", "datatype": "FP32", "shape": [-1, -1]}]
    if encoder.folder.task == "image-classification":
        outputs = [{"name": "label", "datatype": TEXTS, "shape": [-1]},
                   {"name": "score", "datatype": "FP32", "shape": [-1, len(encoder.folder.labels)]}]  # fmt: skip
    return {"name": name, "versions": list(versions), "platform": "tonnage-encoder",
            "inputs": [{"name": IMAGE, "datatype": TEXTS, "shape": [-1]}], "outputs": outputs}  # fmt: skip


def _outputs(encoder: Encoder, found: Any) -> list[Body]:
    flat = {"datatype": "FP32", "shape": list(found.shape), "data": found.astype(float).reshape(-1).tolist()}
    if encoder.folder.task == "image-embedding":
        return [{"name": "embedding", **flat}]
    labels = [encoder.folder.labels[at] for at in found.argmax(axis=1)]
    return [{"name": "label", "datatype": TEXTS, "shape": [len(labels)], "data": labels}, {"name": "score", **flat}]
