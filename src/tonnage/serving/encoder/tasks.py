"""From a model's outputs to answers, for each task."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from tonnage.serving.encoder.batching import EncodedText
from tonnage.serving.encoder.faults import BadRequest
from tonnage.serving.encoder.folders import ModelFolder
from tonnage.serving.encoder.runtimes import Array, Model, padded
from tonnage.serving.encoder.tokens import Span

LONGEST_ANSWER: Final = 64  # tokens of a span that answers a question


def computing(folder: ModelFolder, model: Model, *, padding: int) -> Callable[[Sequence[EncodedText]], Sequence[Any]]:
    """A batch of texts to their answers, as the task's endpoint gives them."""
    read = _READERS[folder.task]

    def compute(texts: Sequence[EncodedText]) -> Sequence[Any]:
        ids, mask, segments = padded(texts, padding=padding)
        return read(folder, texts, model.outputs(ids, mask, segments), mask)

    return compute


def _classified(folder: ModelFolder, _: Sequence[EncodedText], logits: Array, __: Array) -> Sequence[Any]:
    """Label and probability, most probable first."""
    scores = softmax(logits)
    labels = folder.labels or tuple(f"LABEL_{number}" for number in range(scores.shape[1]))
    order = np.argsort(-scores, axis=1)
    return [[{"label": labels[at], "score": float(row[at])} for at in best]
            for row, best in zip(scores, order, strict=True)]  # fmt: skip


def _ranked(_: ModelFolder, __: Sequence[EncodedText], logits: Array, ___: Array) -> Sequence[Any]:
    """The logit of a pair: of the only label, or of the last of several."""
    return [float(row[-1]) for row in logits]


def _embedded(folder: ModelFolder, _: Sequence[EncodedText], hidden: Array, mask: Array) -> Sequence[Any]:
    # a view would keep the whole batch in memory where answers are kept
    return [row.copy() for row in pooled(folder, hidden, mask)]


def pooled(folder: ModelFolder, hidden: Array, mask: Array) -> Array:
    """(texts, tokens, width) to (texts, width), as the model's folder says."""
    shown = mask[:, :, None].astype(np.float32)
    if folder.pooling == "cls":
        found: Array = hidden[:, 0]
    elif folder.pooling == "max":
        found = np.where(shown > 0, hidden, -np.inf).max(axis=1)
    else:
        found = (hidden * shown).sum(axis=1) / shown.sum(axis=1)
    return found


def _marked(folder: ModelFolder, texts: Sequence[EncodedText], logits: Array, _: Array) -> Sequence[Any]:
    """Each token that is no special one, with its label, probability and place in the text; those of «O» left out."""
    return [_marks(folder, text.parts, softmax(rows)) for text, rows in zip(texts, logits, strict=True)]


def _marks(folder: ModelFolder, span: Span, scores: Array) -> list[Mapping[str, Any]]:
    found: list[Mapping[str, Any]] = []
    for at, row in zip(span.offsets, scores, strict=False):
        best = int(row.argmax())
        label = folder.labels[best]
        if at is None or label == "O":
            continue
        word = span.text[at[0] : at[1]]
        found.append({"entity": label, "score": float(row[best]), "word": word, "start": at[0], "end": at[1]})
    return found


def _answered(_: ModelFolder, texts: Sequence[EncodedText], logits: Array, __: Array) -> Sequence[Any]:
    """The span of the context with the highest sum of start and end, and its probability among all spans."""
    return [_best_span(text.parts, rows) for text, rows in zip(texts, logits, strict=True)]


def _best_span(span: Span, rows: Array) -> Mapping[str, Any]:
    inside = np.array([at is not None for at in span.offsets])
    starts, ends = (np.where(inside, rows[: len(inside), side], -np.inf) for side in (0, 1))
    sums = starts[:, None] + ends[None, :]
    length = np.subtract.outer(np.arange(len(inside)), np.arange(len(inside)))
    sums = np.where((length <= 0) & (length > -LONGEST_ANSWER), sums, -np.inf)
    first, last = divmod(int(sums.argmax()), len(inside))
    begin, end = span.offsets[first], span.offsets[last]
    if begin is None or end is None:
        raise BadRequest("the context has no tokens")
    score = float(1.0 / np.exp(sums - sums.max()).sum())
    return {"answer": span.text[begin[0] : end[1]], "score": score, "start": begin[0], "end": end[1]}


def softmax(logits: Array) -> Array:
    """Probabilities along the last axis."""
    shifted = np.exp(logits - logits.max(axis=-1, keepdims=True))
    made: Array = shifted / shifted.sum(axis=-1, keepdims=True)
    return made


_READERS: Final[Mapping[str, Callable[[ModelFolder, Sequence[EncodedText], Array, Array], Sequence[Any]]]] = {
    "classification": _classified, "reranking": _ranked, "embedding": _embedded, "token-classification": _marked,
    "question-answering": _answered,
}  # fmt: skip
