"""Texts that an encoder-decoder writes from texts."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from tonnage.recipes.answering.answerer import Answer, Answerer, PlacedRow, text_of
from tonnage.recipes.tasks.items import longest_first, pad
from tonnage.recipes.tasks.sequence_to_sequence import ends_of, write
from tonnage.recipes.trained import TrainedModel


def make(trained: TrainedModel, *, max_new_tokens: int) -> Answerer:
    """`text`: the likeliest tokens, at most so many."""
    return Answerer(answer=partial(_answer, trained, max_new_tokens), keys=frozenset({"text"}), batches=16)


def _answer(trained: TrainedModel, most: int, rows: Sequence[PlacedRow], batch: int) -> list[Answer]:
    import torch

    tokenizer, model = trained.tokenizer, trained.model
    column = trained.spec.column("source") or "source"
    encoded = tokenizer([text_of(row, column, "source") for row in rows], truncation=True, max_length=trained.longest)
    items = [{name: encoded[name][at] for name in ("input_ids", "attention_mask")} for at in range(len(rows))]
    start, end = ends_of(model, tokenizer)
    found: list[Answer] = [{} for _ in rows]
    order = longest_first(items)
    for first in range(0, len(order), batch):
        positions = order[first : first + batch]
        padded = pad([items[at] for at in positions], tokenizer)
        inputs = {name: value.to(model.device) for name, value in padded.items()}
        with torch.inference_mode():
            written = write(model, inputs, start=start, end=end, most=most)
        for at, text in zip(positions, tokenizer.batch_decode(written, skip_special_tokens=True), strict=True):
            found[at] = {"text": text}
    return found
