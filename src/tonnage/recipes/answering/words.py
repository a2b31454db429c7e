"""Tags of the words of a sentence, and the entities they make up."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from typing import Any

from tonnage.errors import DataError
from tonnage.recipes.answering.answerer import Answer, Answerer, PlacedRow, rounded, value_of
from tonnage.recipes.tasks.items import answers, pad
from tonnage.recipes.trained import TrainedModel

Letters = list[tuple[int, int]] | None  # the span of each word in its text; None: words came as a list


def make(trained: TrainedModel, *, max_new_tokens: int) -> Answerer:  # noqa: ARG001
    """`tags`, one a word (null: beyond the longest input), and for entity tags `entities` with their spans."""
    return Answerer(answer=partial(_answer, trained), keys=frozenset({"tags", "entities"}), batches=16)


def _answer(trained: TrainedModel, rows: Sequence[PlacedRow], batch: int) -> list[Answer]:
    tokenizer, names = trained.tokenizer, trained.labels.names
    column = trained.spec.column("tokens") or "tokens"
    read = [_words(row, column) for row in rows]
    words = [one for one, _ in read]
    encoded = tokenizer(words, is_split_into_words=True, truncation=True, max_length=trained.longest)
    places = [encoded.word_ids(at) for at in range(len(rows))]
    items = [{name: values[at] for name, values in encoded.items()} for at in range(len(rows))]
    entities = any(name[:2] == "B-" for name in names)
    found: list[Answer] = [{} for _ in rows]
    for positions, batch_of, output in answers(trained.model, items, batch, partial(pad, tokenizer=tokenizer)):
        best = output.logits.float().softmax(dim=-1).max(dim=-1)
        for row, at in enumerate(positions):
            kept = batch_of["attention_mask"][row].bool()  # padding may be on either side
            numbers, chances = best.indices[row][kept].tolist(), best.values[row][kept].tolist()
            tags, sure = _tags(places[at], numbers, chances, names, len(words[at]))
            found[at] = {"tags": tags}
            if entities:
                found[at]["entities"] = _entities(words[at], read[at][1], tags, sure)
    return found


def _words(row: PlacedRow, column: str) -> tuple[list[str], Letters]:
    value = value_of(row, column, "tokens")
    if isinstance(value, str):
        parts = list(re.finditer(r"\S+", value))
        words, letters = [one.group() for one in parts], [one.span() for one in parts]
    else:
        words, letters = value, None
    if not isinstance(words, list) or not words or not all(isinstance(one, (str, int)) for one in words):
        shown = "nothing" if value in (None, [], "") else repr(value)[:60]
        raise DataError(
            f"{row[0]}: '{column}' (tokens) holds {shown}", hint="a list of texts is expected, or words with spaces"
        )
    return [str(one) for one in words], letters


def _tags(
    places: Sequence[int | None], numbers: Sequence[int], chances: Sequence[float], names: Sequence[str], count: int
) -> tuple[list[str | None], list[float]]:
    """Each word's tag, said at its first piece, and how sure the model is; null for words that were cut off."""
    tags: list[str | None] = [None] * count
    sure = [0.0] * count
    for place, number, chance in zip(places, numbers, chances, strict=True):
        if place is not None and tags[place] is None:
            tags[place], sure[place] = names[number], chance
    return tags, sure


def _entities(words: list[str], letters: Letters, tags: list[str | None], sure: list[float]) -> list[dict[str, Any]]:
    """Words that belong together: begun by B-, gone on with by I- of the same type; a stray I- begins one too."""
    found: list[dict[str, Any]] = []
    kind = None
    for at, tag in enumerate(tags):
        if tag is None or tag[:2] not in ("B-", "I-"):
            kind = None
        elif tag[:2] == "I-" and tag[2:] == kind:
            found[-1]["last"] = at
        else:
            kind = tag[2:]
            found.append({"first": at, "last": at, "type": kind})
    return [_entity(words, letters, sure, **one) for one in found]


def _entity(
    words: list[str], letters: Letters, sure: list[float], *, first: int, last: int, type: str
) -> dict[str, Any]:
    """Type, text, the words it spans (from, to before), the letters where it is from a text, its least sure word."""
    span = {} if letters is None else {"start": letters[first][0], "end": letters[last][1]}
    return {
        "type": type,
        "text": " ".join(words[first : last + 1]),
        "words": [first, last + 1],
        **span,
        "probability": rounded(min(sure[first : last + 1])),
    }
