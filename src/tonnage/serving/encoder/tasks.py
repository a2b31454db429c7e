"""From a request's texts to token numbers, and from a model's outputs to answers, for each task."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from tonnage.errors import MissingExtra
from tonnage.serving.encoder.batching import Text
from tonnage.serving.encoder.faults import BadRequest, TooLarge
from tonnage.serving.encoder.folders import ModelFolder
from tonnage.serving.encoder.runtimes import Array, Model, padded
from tonnage.values import dataclass

LONGEST_ANSWER: Final = 64  # tokens of a span that answers a question
Pair = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Where each token stands in the text that answers are read from; None: in the question, or special."""

    text: str
    offsets: Sequence[tuple[int, int] | None]


class Tokens:
    """Texts to token numbers by the folder's own fast tokenizer (Rust, outside Python's lock)."""

    def __init__(self, folder: ModelFolder, *, most_tokens: int | None) -> None:
        try:
            library: Any = importlib.import_module("tokenizers")
        except ImportError as error:
            raise MissingExtra("an encoder's tokenizer", "serve") from error
        self.most_tokens = min(most_tokens or folder.most_tokens, folder.most_tokens)
        self._whole, self._cut = (library.Tokenizer.from_file(str(folder.path / "tokenizer.json")) for _ in range(2))
        for one in (self._whole, self._cut):
            one.no_padding()
            one.no_truncation()
        self._cut.enable_truncation(self.most_tokens)
        self._task = folder.task
        self.padding = self._whole.token_to_id("[PAD]") or self._whole.token_to_id("<pad>") or 0

    def read(self, given: str | Pair, *, truncate: bool) -> Text:
        """One text or pair. TooLarge where it has more tokens than the model takes, unless it may be cut."""
        parts = (given,) if isinstance(given, str) else given
        found = self._whole.encode(*parts)
        if len(found.ids) > self.most_tokens:
            if not truncate:
                raise TooLarge(f"the text has {len(found.ids)} tokens, the model takes {self.most_tokens}: "
                               'shorten it, or send "truncate": true')  # fmt: skip
            found = self._cut.encode(*parts)
        segments = found.type_ids if len(parts) > 1 else None
        return Text(ids=found.ids, segments=segments, parts=self._span(found, parts))

    def _span(self, found: Any, parts: Sequence[str]) -> Span | None:
        if self._task == "token-classification":
            offsets = [None if special else at for special, at in
                       zip(found.special_tokens_mask, found.offsets, strict=True)]  # fmt: skip
            return Span(text=parts[0], offsets=offsets)
        if self._task == "question-answering":
            offsets = [at if sequence == 1 else None for sequence, at in
                       zip(found.sequence_ids, found.offsets, strict=True)]  # fmt: skip
            return Span(text=parts[-1], offsets=offsets)
        return None


def computing(folder: ModelFolder, model: Model, *, padding: int) -> Callable[[Sequence[Text]], Sequence[Any]]:
    """A batch of texts to their answers, as the task's endpoint gives them."""
    read = _READERS[folder.task]

    def compute(texts: Sequence[Text]) -> Sequence[Any]:
        ids, mask, segments = padded(texts, padding=padding)
        return read(folder, texts, model.outputs(ids, mask, segments), mask)

    return compute


def _classified(folder: ModelFolder, _: Sequence[Text], logits: Array, __: Array) -> Sequence[Any]:
    """Label and probability, most probable first."""
    scores = _softmax(logits)
    labels = folder.labels or tuple(f"LABEL_{number}" for number in range(scores.shape[1]))
    order = np.argsort(-scores, axis=1)
    return [[{"label": labels[at], "score": float(row[at])} for at in best]
            for row, best in zip(scores, order, strict=True)]  # fmt: skip


def _ranked(_: ModelFolder, __: Sequence[Text], logits: Array, ___: Array) -> Sequence[Any]:
    """The logit of a pair: of the only label, or of the last of several."""
    return [float(row[-1]) for row in logits]


def _embedded(folder: ModelFolder, _: Sequence[Text], hidden: Array, mask: Array) -> Sequence[Any]:
    shown = mask[:, :, None].astype(np.float32)
    if folder.pooling == "cls":
        pooled = hidden[:, 0]
    elif folder.pooling == "max":
        pooled = np.where(shown > 0, hidden, -np.inf).max(axis=1)
    else:
        pooled = (hidden * shown).sum(axis=1) / shown.sum(axis=1)
    return list(pooled)


def _marked(folder: ModelFolder, texts: Sequence[Text], logits: Array, _: Array) -> Sequence[Any]:
    """Each token that is no special one, with its label, probability and place in the text; those of «O» left out."""
    return [_marks(folder, text.parts, _softmax(rows)) for text, rows in zip(texts, logits, strict=True)]


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


def _answered(_: ModelFolder, texts: Sequence[Text], logits: Array, __: Array) -> Sequence[Any]:
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


def _softmax(logits: Array) -> Array:
    shifted = np.exp(logits - logits.max(axis=-1, keepdims=True))
    made: Array = shifted / shifted.sum(axis=-1, keepdims=True)
    return made


_READERS: Final[Mapping[str, Callable[[ModelFolder, Sequence[Text], Array, Array], Sequence[Any]]]] = {
    "classification": _classified, "reranking": _ranked, "embedding": _embedded, "token-classification": _marked,
    "question-answering": _answered,
}  # fmt: skip
