"""How good answers are: figures between 0 and 1 unless the name says otherwise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tonnage.errors import MissingExtra


def classification_metrics(labels: Sequence[int], answers: Sequence[int]) -> Mapping[str, float]:
    """Accuracy, and F1 averaged over the classes that occur in labels or answers, each counting the same.

    >>> dict(classification_metrics([0, 0, 1, 1], [0, 0, 0, 1]))
    {'accuracy': 0.75, 'macro_f1': 0.7333333333333334}
    """
    try:
        from sklearn.metrics import accuracy_score, f1_score
    except ImportError as error:
        raise MissingExtra("measuring a classifier", "train") from error
    return {
        "accuracy": float(accuracy_score(labels, answers)),
        "macro_f1": float(f1_score(labels, answers, average="macro", zero_division=0.0)),
    }
