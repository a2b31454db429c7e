"""What a request's JSON asks, and an answer's JSON, in the words of each API: TEI's, OpenAI's, Open Inference v2's."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tonnage.serving.encoder.engine import Encoder
from tonnage.serving.encoder.faults import BadRequest, WrongTask
from tonnage.serving.encoder.folders import ModelFolder
from tonnage.serving.encoder.tensors import as_text
from tonnage.serving.encoder.tokens import Pair
from tonnage.values import dataclass

Body = Mapping[str, Any]
Given = Sequence[str | Pair]
TEXT_TASKS: Final = ("classification", "token-classification", "embedding", "reranking", "question-answering")


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderRequest:
    """The texts (or rows) of a request, whether long ones may be cut (None: the server's setting), and how it is
    answered."""

    given: Sequence[Any] | NDArray[Any]
    answer: Callable[[Sequence[Any], int], Any]  # answers and their tokens -> JSON value
    truncate: bool | None = None


def needs(encoder: Encoder, *tasks: str) -> ModelFolder:
    """The folder of a text encoder; WrongTask where the model has none of these tasks."""
    folder = encoder.folder
    if folder.task not in tasks or not isinstance(folder, ModelFolder):
        raise WrongTask(f"the model's task is {folder.task}; this endpoint needs {' or '.join(tasks)}")
    return folder


def read_inputs(body: Body, key: str = "inputs") -> tuple[Given, bool]:
    """The texts under `key`, and whether they came as a list: a text, a list of texts, or of pairs of texts."""
    value = body.get(key)
    if isinstance(value, str):
        return [value], False
    if not isinstance(value, list):
        raise BadRequest(f"`{key}` is a text or a list of texts")
    return [_text(one, f"{key}[{at}]") for at, one in enumerate(value)], True


def _text(one: Any, where: str) -> str | Pair:
    if isinstance(one, str):
        return one
    if isinstance(one, list) and len(one) == 1 and isinstance(one[0], str):
        return one[0]
    if isinstance(one, list) and len(one) == 2 and all(isinstance(part, str) for part in one):
        return (one[0], one[1])
    raise BadRequest(f"`{where}` is not a text, or a pair of texts")


def flag(body: Body, key: str) -> bool | None:
    """True, false, or None where the request does not say. BadRequest for anything else."""
    value = body.get(key)
    if value is not None and not isinstance(value, bool):
        raise BadRequest(f"`{key}` is true or false")
    return value


def ask_predict(encoder: Encoder, body: Body) -> EncoderRequest:
    """TEI's /predict (and /classify): labels with their probabilities, or labelled tokens."""
    folder = needs(encoder, "classification", "token-classification", "reranking")
    texts, several = read_inputs(body)

    def answer(found: Sequence[Any], _: int) -> Any:
        if folder.task == "reranking":
            found = [[{"label": (folder.labels or ("LABEL_0",))[-1], "score": _sigmoid(one)}] for one in found]
        return list(found) if several else found[0]

    return EncoderRequest(given=texts, answer=answer, truncate=flag(body, "truncate"))


def ask_embed(encoder: Encoder, body: Body) -> EncoderRequest:
    """TEI's /embed: one vector a text; `normalize` (true by default) makes their length 1."""
    needs(encoder, "embedding")
    texts, _ = read_inputs(body)
    normal = flag(body, "normalize")
    return EncoderRequest(
        given=texts, truncate=flag(body, "truncate"),
        answer=lambda found, _: [unit_vector(one, normalise=normal is not False).tolist() for one in found],
    )  # fmt: skip


def ask_openai_embeddings(encoder: Encoder, body: Body) -> EncoderRequest:
    """OpenAI's /v1/embeddings: `encoding_format` float or base64, `dimensions` cuts the vectors."""
    needs(encoder, "embedding")
    texts, _ = read_inputs(body, "input")
    form, width, model = body.get("encoding_format", "float"), body.get("dimensions"), body.get("model")
    if form not in ("float", "base64"):
        raise BadRequest("`encoding_format` is float or base64")
    if width is not None and (not isinstance(width, int) or isinstance(width, bool) or width < 1):
        raise BadRequest("`dimensions` is a whole number of at least 1")

    def vector(one: Any) -> Any:
        made = unit_vector(one[:width], normalise=True)
        return made.tolist() if form == "float" else base64.b64encode(made.astype("<f4").tobytes()).decode()

    def answer(found: Sequence[Any], tokens: int) -> Any:
        rows = [{"object": "embedding", "index": at, "embedding": vector(one)} for at, one in enumerate(found)]
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        return {"object": "list", "data": rows, "model": model or encoder.service.name, "usage": usage}

    return EncoderRequest(given=texts, answer=answer)


def ask_rerank(encoder: Encoder, body: Body) -> EncoderRequest:
    """TEI's /rerank: `query` against each of `texts`, best first; `raw_scores` leaves the logits."""
    needs(encoder, "reranking", "classification")
    query = body.get("query")
    if not isinstance(query, str):
        raise BadRequest("`query` is a text")
    texts, _ = read_inputs(body, "texts")
    if not all(isinstance(one, str) for one in texts):
        raise BadRequest("`texts` is a list of texts")
    raw, shown = flag(body, "raw_scores"), flag(body, "return_text")

    def answer(found: Sequence[Any], _: int) -> Any:
        scores = [_score(one, raw=bool(raw)) for one in found]
        rows = [{"index": at, "score": score, **({"text": texts[at]} if shown else {})} for at, score in
                enumerate(scores)]  # fmt: skip
        return sorted(rows, key=lambda row: -row["score"])

    return EncoderRequest(given=[(query, str(one)) for one in texts], answer=answer, truncate=flag(body, "truncate"))


def ask_question(encoder: Encoder, body: Body) -> EncoderRequest:
    """The span of `context` that answers `question`."""
    needs(encoder, "question-answering")
    question, context = body.get("question"), body.get("context")
    if not isinstance(question, str) or not isinstance(context, str):
        raise BadRequest("`question` and `context` are texts")
    return EncoderRequest(
        given=[(question, context)], answer=lambda found, _: found[0], truncate=flag(body, "truncate")
    )


def _score(one: Any, *, raw: bool) -> float:
    """Of a pair: a logit, or the probability of the last label of a classifier."""
    if isinstance(one, float):
        return one if raw else _sigmoid(one)
    return float(max(one, key=lambda part: part["label"])["score"])


def _sigmoid(logit: float) -> float:
    return float(1.0 / (1.0 + np.exp(-logit)))


def unit_vector(one: Any, *, normalise: bool) -> Any:
    """A vector, of length 1 where asked."""
    made = np.asarray(one, dtype=np.float32)
    return made / max(float(np.linalg.norm(made)), 1e-12) if normalise else made


_TEXT: Final = "text"


def model_metadata(encoder: Encoder, name: str, versions: Sequence[str]) -> Body:
    """What the model takes and gives: `text` of BYTES; a pair of texts is a row of two."""
    folder = needs(encoder, *TEXT_TASKS)
    outputs = [{"name": key, "datatype": kind, "shape": [-1, -1] if wide else [-1]} for key, kind, wide in
               _outputs_of(folder)]  # fmt: skip
    pairs = folder.task in ("reranking", "question-answering")
    inputs = [{"name": _TEXT, "datatype": "BYTES", "shape": [-1, 2] if pairs else [-1]}]
    return {
        "name": name,
        "versions": list(versions),
        "platform": "tonnage-encoder",
        "inputs": inputs,
        "outputs": outputs,
    }


def ask_infer(encoder: Encoder, body: Body) -> EncoderRequest:
    """One tensor `text` of BYTES, of shape [n], [n, 1] or [n, 2]."""
    folder, name, version = needs(encoder, *TEXT_TASKS), encoder.service.name, encoder.version
    texts = [_text(list(row) if len(row) > 1 else row[0], _TEXT) for row in _rows(_tensor(body))]

    def answer(found: Sequence[Any], _: int) -> Any:
        outputs = [_output(folder, key, kind, found) for key, kind, _ in _outputs_of(folder)]
        return {"model_name": name, "model_version": version, "id": body.get("id", ""), "outputs": outputs}

    return EncoderRequest(given=texts, answer=answer, truncate=flag(body.get("parameters") or {}, "truncate"))


def _tensor(body: Body) -> Body:
    given = body.get("inputs")
    if not isinstance(given, list) or len(given) != 1 or not isinstance(given[0], dict):
        raise BadRequest(f"`inputs` is a list of one tensor, `{_TEXT}`")
    tensor: Body = given[0]
    if tensor.get("name") != _TEXT:
        raise BadRequest(f"the tensor is named `{_TEXT}`, not {tensor.get('name')!r}")
    if tensor.get("datatype") != "BYTES":
        raise BadRequest(f"`{_TEXT}` has datatype BYTES, not {tensor.get('datatype')!r}")
    return tensor


def _rows(tensor: Body) -> Iterator[list[Any]]:
    shape, data = tensor.get("shape"), tensor.get("data")
    if isinstance(data, np.ndarray):  # it came as bytes
        data = [as_text(one, _TEXT) for one in data.tolist()]
    if not isinstance(shape, list) or not all(isinstance(one, int) and one >= 0 for one in shape):
        raise BadRequest("`shape` is a list of whole numbers")
    if len(shape) not in (1, 2) or (len(shape) == 2 and shape[1] not in (1, 2)):
        raise BadRequest("`shape` is [n], [n, 1] or [n, 2]")
    rows = data if isinstance(data, list) else []
    flat = [part for one in rows for part in (one if isinstance(one, list) else [one])]
    width = shape[1] if len(shape) == 2 else 1
    if len(flat) != shape[0] * width:
        raise BadRequest(f"`data` has {len(flat)} texts, `shape` says {shape}")
    for at in range(0, len(flat), width):
        yield flat[at : at + width]


def _outputs_of(folder: ModelFolder) -> tuple[tuple[str, str, bool], ...]:
    if folder.task == "classification":
        return (("label", "BYTES", False), ("score", "FP32", True))
    if folder.task == "embedding":
        return (("embedding", "FP32", True),)
    return (("score", "FP32", False),) if folder.task == "reranking" else (("answer", "BYTES", False),)


def _output(folder: ModelFolder, key: str, kind: str, found: Sequence[Any]) -> Body:
    if key == "embedding":
        rows = [unit_vector(one, normalise=folder.normalised) for one in found]
        return {"name": key, "datatype": kind, "shape": [len(rows), len(rows[0])],
                "data": [float(value) for row in rows for value in row]}  # fmt: skip
    if folder.task == "classification" and key == "score":
        by_label = [{part["label"]: part["score"] for part in one} for one in found]
        labels = folder.labels or tuple(sorted(by_label[0]))
        return {"name": key, "datatype": kind, "shape": [len(found), len(labels)],
                "data": [row[label] for row in by_label for label in labels]}  # fmt: skip
    data: list[Any] = list(found)
    if folder.task == "classification":
        data = [one[0]["label"] for one in found]
    return {"name": key, "datatype": kind, "shape": [len(found)], "data": data}
