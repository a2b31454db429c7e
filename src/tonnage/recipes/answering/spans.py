"""Answers to questions, marked in their contexts; a long context is read in windows that overlap."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from tonnage.recipes.answering.answerer import Answer, Answerer, PlacedRow, rounded, text_of
from tonnage.recipes.tasks.items import answers, pad
from tonnage.recipes.tasks.question_answering import ContextQuestion, TokenWindows, best_span
from tonnage.recipes.trained import TrainedModel

if TYPE_CHECKING:
    from torch import Tensor

KEYS = frozenset({"answer", "score", "start", "end", "no_answer_score"})


def make(trained: TrainedModel, *, max_new_tokens: int) -> Answerer:  # noqa: ARG001
    """`answer` with its letters (`start`, `end`) and `score`; `no_answer_score`: that the context holds none."""
    return Answerer(answer=partial(_answer, trained), keys=KEYS, batches=8)


def _answer(trained: TrainedModel, rows: Sequence[PlacedRow], batch: int) -> list[Answer]:
    spec = trained.spec
    names = {role: spec.column(role) or role for role in ("question", "context")}
    questions = [
        ContextQuestion(text_of(row, names["question"], "question"), text_of(row, names["context"], "context"), ())
        for row in rows
    ]
    items = TokenWindows(trained.tokenizer, trained.longest, spec.training.stride).encode(questions, 0)
    best: dict[int, tuple[float, int, int]] = {}
    nothing = dict.fromkeys(range(len(rows)), math.inf)  # of the window that is least sure of it
    for positions, _, output in answers(trained.model, items, batch, partial(pad, tokenizer=trained.tokenizer)):
        starts, ends = output.start_logits.float().cpu(), output.end_logits.float().cpu()
        for row, at in enumerate(positions):
            item = items[at]
            start, end, number = _chances(starts[row], item), _chances(ends[row], item), item["question"]
            found = best_span(start, end, item)
            if found is not None and found[0] > best.get(number, (-math.inf,))[0]:
                best[number] = found
            nothing[number] = min(nothing[number], float(start[0] + end[0]))
    return [_said(questions[at].context, best.get(at), nothing[at]) for at in range(len(rows))]


def _chances(logits: Tensor, item: Any) -> Tensor:
    """Logarithms of the chances of each token of a window to be the one; padding has none."""
    return logits[: len(item["input_ids"])].log_softmax(dim=-1)


def _said(context: str, best: tuple[float, int, int] | None, nothing: float) -> Answer:
    none = rounded(math.exp(nothing))
    if best is None:
        return {"answer": None, "score": None, "start": None, "end": None, "no_answer_score": none}
    score, start, end = best
    return {
        "answer": context[start:end],
        "score": rounded(math.exp(score)),
        "start": start,
        "end": end,
        "no_answer_score": none,
    }
