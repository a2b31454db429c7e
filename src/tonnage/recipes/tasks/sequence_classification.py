"""Texts, or pairs of texts, sorted into classes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tonnage.recipes.data.rows import DatasetRows
from tonnage.recipes.data.splits import Splits, load_splits
from tonnage.recipes.task import Evaluation, Item, Items, Prepared
from tonnage.recipes.tasks.items import answers, count_tokens, encode, longest_first, pad, pad_widths
from tonnage.recipes.tasks.labels import check_texts, find_labels, number_trained
from tonnage.recipes.tasks.metrics import classification_metrics
from tonnage.recipes.tasks.models import load_model, load_tokenizer, longest_input, save_model, shape_of
from tonnage.runs.spec import RunSpec
from tonnage.values import dataclass

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module

    from tonnage.recipes.trained import TrainedModel


@dataclass(frozen=True, slots=True)
class _SplitTexts:
    """One split: texts, their partners where they are pairs, and their classes."""

    first: Sequence[str]
    second: Sequence[str] | None
    labels: Sequence[int]

    def joined(self) -> Sequence[str]:
        if self.second is None:
            return self.first
        return [f"{one} {other}" for one, other in zip(self.first, self.second, strict=True)]


def prepare(spec: RunSpec) -> Prepared:
    """Roles: `text`, `label`, and `text_pair` where two texts are judged together."""
    splits = read(spec)
    label = spec.column("label") or "label"
    labels = find_labels(splits, label)
    parts = [_SplitTexts(*_texts(rows, spec), labels.number(rows, label)) for rows in splits]
    tokenizer = load_tokenizer(spec)
    model = load_model(spec, "AutoModelForSequenceClassification", padding=tokenizer.pad_token_id, **labels.config())
    longest = longest_input(spec, tokenizer, model)
    train, validation, *test = (_encode(part, tokenizer, longest) for part in parts)
    collate = partial(_collate, tokenizer=tokenizer, widths=pad_widths(spec.training.compile, longest))
    return Prepared(
        model=model,
        train=train,
        validation=validation,
        test=test[0] if test else None,
        collate=collate,
        longest=longest_first,
        tokens=count_tokens,
        evaluate=partial(_evaluate, collate=collate),
        save=partial(_save, tokenizer=tokenizer),
        baseline=partial(_baseline, parts[0], parts[-1]),
        shape=shape_of(model),
    )


def read(spec: RunSpec) -> Splits:
    """The rows of a run."""
    return load_splits(spec.data, roles=("text", "text_pair", "label"), stratify="label", same=("text", "text_pair"))


def judge(trained: TrainedModel, rows: DatasetRows, batch: int) -> Evaluation:
    """Figures of a finished model on labelled rows."""
    label = trained.spec.column("label") or "label"
    part = _SplitTexts(*_texts(rows, trained.spec), number_trained(trained.labels.names, rows, label))
    items = _encode(part, trained.tokenizer, trained.longest)
    return _evaluate(trained.model, items, batch, collate=partial(_collate, tokenizer=trained.tokenizer))


def _texts(rows: DatasetRows, spec: RunSpec) -> tuple[Sequence[str], Sequence[str] | None]:
    pair = spec.column("text_pair")
    first = check_texts(rows, spec.column("text") or "text", "text")
    return first, None if pair is None else check_texts(rows, pair, "text_pair")


def _encode(part: _SplitTexts, tokenizer: Any, longest: int) -> Items:
    def rows(some: range) -> Mapping[str, Sequence[Any]]:
        second = None if part.second is None else list(part.second[some.start : some.stop])
        encoded = tokenizer(list(part.first[some.start : some.stop]), second, truncation=True, max_length=longest)
        return {**encoded, "labels": part.labels[some.start : some.stop]}

    return encode(len(part.first), rows)


def _collate(items: Sequence[Item], *, tokenizer: Any, widths: Sequence[int] = ()) -> dict[str, Tensor]:
    import torch

    return {**pad(items, tokenizer, widths=widths), "labels": torch.tensor([item["labels"] for item in items])}


def _evaluate(model: Module, items: Items, batch_size: int, *, collate: Any) -> Evaluation:
    said: list[int] = []
    true: list[int] = []
    for _, batch, output in answers(model, items, batch_size, collate):
        said += output.logits.argmax(dim=-1).tolist()
        true += batch["labels"].tolist()
    return Evaluation(metrics=classification_metrics(true, said), samples=len(true))


def _save(model: Module, folder: Path, *, tokenizer: Any) -> None:
    save_model(model, tokenizer, folder)


def _baseline(train: _SplitTexts, judged: _SplitTexts) -> Evaluation:
    return text_baseline(train.joined(), train.labels, judged.joined(), judged.labels)


MOST_ROWS: Final = 200_000  # learned from by the word counts; more changes little and takes minutes


def text_baseline(
    train: Sequence[str], train_labels: Sequence[int], texts: Sequence[str], labels: Sequence[int]
) -> Evaluation:
    """Figures of two simple classifiers on the same rows, named `majority_...` and `tfidf_logistic_...`."""
    commonest = Counter(train_labels).most_common(1)[0][0]
    figures = {f"majority_{name}": value for name, value in _majority(commonest, labels).items()}
    answers = _tfidf_answers(train[:MOST_ROWS], train_labels[:MOST_ROWS], texts)
    found = classification_metrics(labels, answers)
    return Evaluation(
        metrics={**figures, **{f"tfidf_logistic_{name}": value for name, value in found.items()}}, samples=len(labels)
    )


def _majority(commonest: int, labels: Sequence[int]) -> dict[str, float]:
    return dict(classification_metrics(labels, [commonest] * len(labels)))


def _tfidf_answers(train: Sequence[str], labels: Sequence[int], texts: Sequence[str]) -> list[int]:
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    counter = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, token_pattern=r"(?u)\b\w+\b")
    model = make_pipeline(counter, LogisticRegression(C=10.0, max_iter=300))
    model.fit(train, labels)
    return [int(answer) for answer in model.predict(texts)]
