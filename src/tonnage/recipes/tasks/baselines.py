"""What is reached without the model: the commonest class, and words counted (TF-IDF) with logistic regression."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from tonnage.recipes.task import Evaluation
from tonnage.recipes.tasks.metrics import classification_metrics

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
