"""Classes of texts, or of pairs of texts."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from tonnage.recipes.answering.answerer import Answer, Answerer, PlacedRow, rounded, text_of
from tonnage.recipes.tasks.items import answers, pad
from tonnage.recipes.trained import TrainedModel


def make(trained: TrainedModel, *, max_new_tokens: int) -> Answerer:  # noqa: ARG001
    """`label`, and the `probability` the model gives it."""
    return Answerer(answer=partial(_answer, trained), keys=frozenset({"label", "probability"}), batches=16)


def _answer(trained: TrainedModel, rows: Sequence[PlacedRow], batch: int) -> list[Answer]:
    spec, tokenizer, names = trained.spec, trained.tokenizer, trained.labels.names
    column, pair = spec.column("text") or "text", spec.column("text_pair")
    first = [text_of(row, column, "text") for row in rows]
    second = None if pair is None else [text_of(row, pair, "text_pair") for row in rows]
    encoded = tokenizer(first, second, truncation=True, max_length=trained.longest)
    items = [{name: values[at] for name, values in encoded.items()} for at in range(len(rows))]
    found: list[Answer] = [{} for _ in rows]
    for positions, _, output in answers(trained.model, items, batch, partial(pad, tokenizer=tokenizer)):
        best = output.logits.float().softmax(dim=-1).max(dim=-1)
        for at, number, chance in zip(positions, best.indices.tolist(), best.values.tolist(), strict=True):
            found[at] = {"label": names[number], "probability": rounded(chance)}
    return found
