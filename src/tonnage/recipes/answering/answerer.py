"""What all tasks have in common: the columns they read, their answers to some rows, and the keys of an answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from typing import Any, Final

from tonnage.errors import DataError, did_you_mean, nearest
from tonnage.features.tables import softmax
from tonnage.recipes.tasks import boosted_trees, mlp
from tonnage.recipes.trained import Trained, TrainedTable
from tonnage.values import dataclass

PlacedRow = tuple[str, Mapping[str, Any]]  # file and line, as an error names it; the row
Answer = dict[str, Any]

_MODULES: Final = {
    "sequence-classification": "texts",
    "token-classification": "words",
    "question-answering": "spans",
    "causal-lm": "continuations",
    "sequence-to-sequence": "written",
    "image-classification": "pictures",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Answerer:
    """A finished model as a function: rows in, an answer for each out, in their order."""

    answer: Callable[[Sequence[PlacedRow], int], list[Answer]]  # rows, how many at once
    keys: frozenset[str]  # of an answer
    batches: int  # that are held at once: sorted by length, so that little is padded


def make_answerer(trained: Trained, *, max_new_tokens: int = 64) -> Answerer:
    """The answers of a trained model; `max_new_tokens` is for those that write."""
    if isinstance(trained, TrainedTable):
        return make(trained)
    module = import_module(f"tonnage.recipes.answering.{_MODULES[trained.spec.task]}")
    made: Answerer = module.make(trained, max_new_tokens=max_new_tokens)
    return made


def value_of(row: PlacedRow, column: str, role: str) -> Any:
    """What a row has in a column. DataError names those most like it where there is none."""
    where, values = row
    if column not in values:
        known = sorted(values)
        listed = f"columns: {', '.join(known[:20])}; `--column {role}=COLUMN` names another"
        raise DataError(
            f"{where}: there is no column '{column}' (for {role})", hint=did_you_mean(nearest(column, known), listed)
        )
    return values[column]


def text_of(row: PlacedRow, column: str, role: str) -> str:
    """The text in a column. DataError where it holds something else."""
    value = value_of(row, column, role)
    if not isinstance(value, str):
        found = "nothing" if value is None else f"{str(value)[:60]!r}, a {type(value).__name__}"
        raise DataError(f"{row[0]}: '{column}' ({role}) holds {found}", hint="text is expected there")
    return value


def rounded(value: float) -> float:
    """A probability as it is written: six digits after the point."""
    return round(float(value), 6)


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
