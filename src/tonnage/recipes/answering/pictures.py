"""Classes of images."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from tonnage.recipes.answering.answerer import Answer, Answerer, PlacedRow, rounded, value_of
from tonnage.recipes.data.images import Images, image_at
from tonnage.recipes.tasks.image_classification import collate, in_order
from tonnage.recipes.tasks.items import answers
from tonnage.recipes.trained import TrainedModel


def make(trained: TrainedModel, *, max_new_tokens: int) -> Answerer:  # noqa: ARG001
    """`label`, and the `probability` the model gives it."""
    return Answerer(answer=partial(_answer, trained), keys=frozenset({"label", "probability"}), batches=4)


def _answer(trained: TrainedModel, rows: Sequence[PlacedRow], batch: int) -> list[Answer]:
    assert trained.pixels is not None
    column, names = trained.spec.column("image") or "image", trained.labels.names
    places = [place for place, _ in rows]
    sources = [image_at(value_of(row, column, "image"), row[0]) for row in rows]
    items = Images(sources, places, [0] * len(rows), trained.pixels)
    found: list[Answer] = [{} for _ in rows]
    seen = partial(collate, pixels=trained.pixels)
    for positions, _, output in answers(trained.model, items, batch, seen, order=in_order(items)):
        best = output.logits.float().softmax(dim=-1).max(dim=-1)
        for at, number, chance in zip(positions, best.indices.tolist(), best.values.tolist(), strict=True):
            found[at] = {"label": names[number], "probability": rounded(chance)}
    return found
