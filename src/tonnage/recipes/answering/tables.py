"""Values or classes of rows of a table, by trees or a network."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from tonnage.features.tables import softmax
from tonnage.recipes.answering.answerer import Answer, Answerer, PlacedRow, value_of
from tonnage.recipes.tasks import boosted_trees, mlp
from tonnage.recipes.trained import TrainedTable


def make(trained: TrainedTable) -> Answerer:
    """`label` and its `probability`, or `value`."""
    regression = trained.coder.objective == "regression"
    keys = frozenset({"value"} if regression else {"label", "probability"})
    return Answerer(answer=partial(_answer, trained), keys=keys, batches=1)


def _answer(trained: TrainedTable, rows: Sequence[PlacedRow], batch: int) -> list[Answer]:  # noqa: ARG001
    coder = trained.coder
    columns = {one.name: [value_of(row, one.name, "feature") for row in rows] for one in coder.features}
    if trained.network is None:
        output = boosted_trees.predict_rows(trained.booster, coder, columns)
    else:
        output = mlp.predict_rows(trained.network, coder, columns)
        output = output if coder.objective == "regression" else softmax(output)
    return coder.answers(output)
