"""Answers marked in a text: a long context is read in windows that overlap."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tonnage.errors import DataError, InputError
from tonnage.recipes.data.rows import DatasetRows
from tonnage.recipes.data.splits import Splits, load_splits
from tonnage.recipes.task import Evaluation, Item, Items, Prepared
from tonnage.recipes.tasks.items import answers, encode, of_texts, pad, pad_widths
from tonnage.recipes.tasks.labels import check_texts
from tonnage.recipes.tasks.metrics import answer_metrics, normal_answer
from tonnage.recipes.tasks.models import load_model, load_tokenizer, longest_input, save_model, shape_of
from tonnage.runs.spec import RunSpec
from tonnage.values import dataclass

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module

    from tonnage.recipes.trained import TrainedModel

LONGEST_ANSWER: Final = 30  # tokens, as in the published SQuAD evaluations of BERT
CONSIDERED: Final = 20  # likeliest starts and ends that are paired


@dataclass(frozen=True, slots=True)
class ContextQuestion:
    """A question, its context, and where in it the answers are: (first letter, text); none where it has none."""

    question: str
    context: str
    answers: tuple[tuple[int, str], ...]


def prepare(spec: RunSpec) -> Prepared:
    """Roles: `question`, `context`, `answers` (SQuAD's mapping, a text or a list of texts), maybe `answer_start`."""
    splits = read(spec)
    parts = [_read(rows, spec) for rows in splits]
    tokenizer = load_tokenizer(spec)
    tokenizer.padding_side = "right"
    model = load_model(spec, "AutoModelForQuestionAnswering", padding=tokenizer.pad_token_id)
    window = TokenWindows(tokenizer, longest_input(spec, tokenizer, model), spec.training.stride)
    questions = [question for part in parts for question in part]
    starts = [sum(len(part) for part in parts[:at]) for at in range(len(parts))]
    encoded = [window.encode(part, start) for part, start in zip(parts, starts, strict=True)]
    collate = partial(_collate, tokenizer=tokenizer, widths=pad_widths(spec.training.compile, window.longest))
    return Prepared(
        model=model,
        **of_texts(encoded, collate),
        evaluate=partial(_evaluate, collate=collate, questions=questions),
        save=partial(_save, tokenizer=tokenizer),
        baseline=partial(_baseline, parts[-1]),
        shape=shape_of(model),
    )


def read(spec: RunSpec) -> Splits:
    """The rows of a run."""
    return load_splits(spec.data, roles=("question", "context", "answers", "answer_start"), same=("context",))


def judge(trained: TrainedModel, rows: DatasetRows, batch: int) -> Evaluation:
    """Figures of a finished model on questions whose answers are known."""
    questions = _read(rows, trained.spec)
    items = TokenWindows(trained.tokenizer, trained.longest, trained.spec.training.stride).encode(questions, 0)
    collate = partial(_collate, tokenizer=trained.tokenizer)
    return _evaluate(trained.model, items, batch, collate=collate, questions=questions)


def _read(rows: DatasetRows, spec: RunSpec) -> list[ContextQuestion]:
    names = {role: spec.column(role) or role for role in ("question", "context", "answers")}
    questions = check_texts(rows, names["question"], "question")
    contexts = check_texts(rows, names["context"], "context")
    found = rows.column(names["answers"], "answers")
    start = spec.column("answer_start")
    starts = rows.column(start, "answer_start") if start is not None else [None] * len(rows)
    return [
        ContextQuestion(questions[at], contexts[at], _answers(found[at], starts[at], contexts[at], rows.where(at)))
        for at in range(len(rows))
    ]


def _answers(value: Any, start: Any, context: str, where: str) -> tuple[tuple[int, str], ...]:
    """Answers with their places. DataError where one is not in the context (there, where a place is given)."""
    texts, starts = value, start
    if isinstance(value, Mapping):
        texts, starts = value.get("text", []), value.get("answer_start")
    texts = [] if texts in (None, "") else [texts] if isinstance(texts, str) else texts
    starts = [None] * len(texts) if starts is None else [starts] if isinstance(starts, (int, str)) else starts
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts) or len(starts) != len(texts):
        hint = 'a text, a list of texts, or {"text": [...], "answer_start": [...]} is expected'
        raise DataError(f"{where}: answers hold {str(value)[:60]!r}", hint=hint)
    return tuple((_place(text, at, context, where), text) for text, at in zip(texts, starts, strict=True))


def _place(text: str, start: Any, context: str, where: str) -> int:
    at = context.find(text) if start is None else int(start)
    if at < 0 or context[at : at + len(text)] != text:
        there = "" if start is None else f" at letter {start}, where {context[at : at + len(text)]!r} stands"
        raise DataError(
            f"{where}: the answer {text!r} is not in the context{there}",
            hint="an answer is copied from its context, letter by letter; `answer_start` counts letters from 0",
        )
    return at


@dataclass(frozen=True, slots=True)
class TokenWindows:
    """Cuts question and context into windows of tokens."""

    tokenizer: Any
    longest: int
    stride: int

    def encode(self, questions: Sequence[ContextQuestion], first: int) -> Items:
        """A sample per window: tokens, where the answer is in it, which letters each token covers."""
        self._check(questions)

        def rows(some: range) -> Mapping[str, Sequence[Any]]:
            part = questions[some.start : some.stop]
            encoded = self.tokenizer(
                [one.question.strip() for one in part],
                [one.context for one in part],
                truncation="only_second",
                max_length=self.longest,
                stride=self.stride,
                return_overflowing_tokens=True,
                return_offsets_mapping=True,
            )
            owners = encoded.pop("overflow_to_sample_mapping")
            offsets = encoded.pop("offset_mapping")
            spans = [_context_offsets(offset, encoded.sequence_ids(window)) for window, offset in enumerate(offsets)]
            marks = [_marks(part[owner], span) for owner, span in zip(owners, spans, strict=True)]
            return {
                **encoded,
                "start": [mark[0] for mark in marks],
                "end": [mark[1] for mark in marks],
                "from": [[-1 if pair is None else pair[0] for pair in span] for span in spans],
                "to": [[-1 if pair is None else pair[1] for pair in span] for span in spans],
                "question": [first + some.start + owner for owner in owners],
            }

        return encode(len(questions), rows)

    def _check(self, questions: Sequence[ContextQuestion]) -> None:
        """A window must hold the question, and more of the context than two windows share."""
        length = max(len(self.tokenizer(one.question).input_ids) for one in questions)
        if length + self.stride + 2 >= self.longest:
            raise InputError(
                f"a question of {length} tokens is too long for windows of {self.longest} that share {self.stride}",
                hint="raise the `max` of `data.seq_len`, or lower `run.stride`",
            )


Span = tuple[int, int] | None


def _context_offsets(offsets: Sequence[tuple[int, int]], parts: Sequence[int | None]) -> list[Span]:
    """For each token the letters of the context it covers; None for tokens of the question and special ones."""
    return [(pair[0], pair[1]) if part == 1 else None for pair, part in zip(offsets, parts, strict=True)]


def _marks(question: ContextQuestion, spans: Sequence[Span]) -> tuple[int, int]:
    """First and last token of the first answer; (0, 0), the first special token, where this window does not hold it."""
    if not question.answers:
        return 0, 0
    start, text = question.answers[0]
    end = start + len(text)
    inside = [at for at, span in enumerate(spans) if span is not None and span[0] < end and span[1] > start]
    if not inside:
        return 0, 0
    first, last = spans[inside[0]], spans[inside[-1]]
    whole = first is not None and last is not None and first[0] <= start and last[1] >= end
    return (inside[0], inside[-1]) if whole else (0, 0)


def _collate(items: Sequence[Item], *, tokenizer: Any, widths: Sequence[int] = ()) -> dict[str, Tensor]:
    import torch

    return {
        **pad(items, tokenizer, widths=widths),
        "start_positions": torch.tensor([item["start"] for item in items]),
        "end_positions": torch.tensor([item["end"] for item in items]),
    }


def _evaluate(
    model: Module, items: Items, batch_size: int, *, collate: Any, questions: Sequence[ContextQuestion]
) -> Evaluation:
    best: dict[int, tuple[float, str]] = {}
    nothing: dict[int, float] = {}
    for positions, _, output in answers(model, items, batch_size, collate):
        starts, ends = output.start_logits.float().cpu(), output.end_logits.float().cpu()
        for row, at in enumerate(positions):
            item = items[at]
            number = item["question"]
            found = best_span(starts[row], ends[row], item)
            if found is not None and found[0] > best.get(number, (float("-inf"), ""))[0]:
                best[number] = (found[0], questions[number].context[found[1] : found[2]])
            empty = float(starts[row][0] + ends[row][0])
            nothing[number] = min(empty, nothing.get(number, float("inf")))
    numbers = sorted(nothing)
    some_have_none = any(not questions[number].answers for number in numbers)
    said = []
    for number in numbers:
        score, text = best.get(number, (float("-inf"), ""))
        said.append("" if some_have_none and nothing[number] > score else text)
    accepted = [[text for _, text in questions[number].answers] for number in numbers]
    return Evaluation(metrics=answer_metrics(accepted, said), samples=len(numbers))


def best_span(starts: Tensor, ends: Tensor, item: Item) -> tuple[float, int, int] | None:
    """Score, first and last letter of the likeliest answer in a window."""
    count = len(item["from"])
    considered = min(CONSIDERED, count)
    best = None
    for start in starts[:count].topk(considered).indices.tolist():
        for end in ends[:count].topk(considered).indices.tolist():
            if item["from"][start] < 0 or item["from"][end] < 0 or not start <= end < start + LONGEST_ANSWER:
                continue
            score = float(starts[start] + ends[end])
            if best is None or score > best[0]:
                best = (score, item["from"][start], item["to"][end])
    return best


def _save(model: Module, folder: Path, *, tokenizer: Any) -> None:
    save_model(model, tokenizer, folder)


def _baseline(judged: Sequence[ContextQuestion]) -> Evaluation:
    """The sentence of the context that shares most words with the question."""
    said = [_nearest_sentence(one) for one in judged]
    accepted = [[text for _, text in one.answers] for one in judged]
    found = answer_metrics(accepted, said)
    return Evaluation(metrics={f"nearest_sentence_{name}": value for name, value in found.items()}, samples=len(said))


def _nearest_sentence(question: ContextQuestion) -> str:
    asked = set(normal_answer(question.question).split())
    sentences = [one for one in re.split(r"(?<=[.!?])\s+", question.context) if one]
    return max(sentences, key=lambda one: len(asked & set(normal_answer(one).split())), default="")
