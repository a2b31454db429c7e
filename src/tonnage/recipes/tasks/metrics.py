"""How good answers are: figures between 0 and 1 unless the name says otherwise."""

from __future__ import annotations

import math
import re
import string
from collections import Counter
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


def regression_metrics(values: Sequence[float], answers: Sequence[float]) -> Mapping[str, float]:
    """Root mean squared and mean absolute error, in the label's unit.

    >>> dict(regression_metrics([1.0, 2.0, 3.0], [1.0, 2.0, 6.0]))
    {'rmse': 1.7320508075688772, 'mae': 1.0}
    """
    errors = [answer - value for value, answer in zip(values, answers, strict=True)]
    return {
        "rmse": math.sqrt(sum(error * error for error in errors) / len(errors)),
        "mae": sum(abs(error) for error in errors) / len(errors),
    }


def area_under_curve(labels: Sequence[int], scores: Sequence[float]) -> float | None:
    """Chance that a row of class 1 scores above one of class 0 (AUC); None where a class does not occur.

    >>> area_under_curve([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8])
    0.75
    """
    if len(set(labels)) < 2:
        return None
    try:
        from sklearn.metrics import roc_auc_score
    except ImportError as error:
        raise MissingExtra("measuring a classifier", "train") from error
    return float(roc_auc_score(labels, scores))


def tagging_metrics(tags: Sequence[Sequence[str]], answers: Sequence[Sequence[str]]) -> Mapping[str, float]:
    """Accuracy over the words; for entity tags (IOB2) precision, recall and F1 of whole entities, by seqeval.

    >>> tags = [["O", "O", "B-MISC", "I-MISC", "O"], ["B-PER", "I-PER", "O"]]
    >>> dict(tagging_metrics(tags, [["O", "B-MISC", "I-MISC", "I-MISC", "O"], ["B-PER", "I-PER", "O"]]))
    {'accuracy': 0.75, 'precision': 0.5, 'recall': 0.5, 'f1': 0.5}
    """
    pairs = [pair for true, said in zip(tags, answers, strict=True) for pair in zip(true, said, strict=True)]
    found = {"accuracy": sum(true == said for true, said in pairs) / len(pairs)}
    if not any(true[:2] == "B-" for true, _ in pairs):
        return found
    try:
        from seqeval.metrics import f1_score, precision_score, recall_score
        from seqeval.scheme import IOB2
    except ImportError as error:
        raise MissingExtra("measuring entities", "train") from error
    true_tags, said_tags = [list(row) for row in tags], [list(row) for row in answers]
    for name, score in (("precision", precision_score), ("recall", recall_score), ("f1", f1_score)):
        found[name] = float(score(true_tags, said_tags, mode="strict", scheme=IOB2, zero_division=0))
    return found


def answer_metrics(accepted: Sequence[Sequence[str]], answers: Sequence[str]) -> Mapping[str, float]:
    """Exact match and F1 over words, the best over the accepted answers, as SQuAD measures them.

    No accepted answer means that the context holds none: then an empty answer is right.

    >>> dict(answer_metrics([["the Eiffel Tower"], []], ["Eiffel Tower, Paris", ""]))
    {'exact_match': 0.5, 'f1': 0.9}
    """
    pairs = [(right or ("",), said) for right, said in zip(accepted, answers, strict=True)]
    exact = [max(float(normal_answer(one) == normal_answer(said)) for one in right) for right, said in pairs]
    overlap = [max(_word_f1(one, said) for one in right) for right, said in pairs]
    return {"exact_match": sum(exact) / len(exact), "f1": sum(overlap) / len(overlap)}


def writing_metrics(wanted: Sequence[str], written: Sequence[str]) -> Mapping[str, float]:
    """Texts written beside those wanted: ROUGE-L (F of the longest common run of words, gaps allowed) and the share
    that is the same. Words in lower case, without punctuation.

    Source: Lin 2004, ROUGE: a package for automatic evaluation of summaries, section 3.1, with beta = 1.

    >>> dict(writing_metrics(["the cat sat on the mat", "no"], ["The cat lay on a mat.", "No"]))
    {'rouge_l': 0.8333333333333333, 'exact_match': 0.5}
    """
    pairs = [(_words(right), _words(said)) for right, said in zip(wanted, written, strict=True)]
    return {
        "rouge_l": sum(_rouge_l(*pair) for pair in pairs) / len(pairs),
        "exact_match": sum(right == said for right, said in pairs) / len(pairs),
    }


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


def _rouge_l(right: Sequence[str], said: Sequence[str]) -> float:
    if not right or not said:
        return float(right == said)
    common = [0] * (len(said) + 1)  # longest common subsequence with each beginning of `said`
    for word in right:
        before = 0
        for at, other in enumerate(said, start=1):
            before, common[at] = common[at], before + 1 if word == other else max(common[at], common[at - 1])
    return 2 * common[-1] / (len(right) + len(said))


def normal_answer(text: str) -> str:
    """Lower case, no punctuation, no articles, single spaces: how SQuAD's own script compares answers.

    >>> normal_answer("The  Eiffel-Tower!")
    'eiffeltower'
    """
    kept = "".join(letter for letter in text.lower() if letter not in set(string.punctuation))
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", kept).split())


def _word_f1(right: str, said: str) -> float:
    true, found = normal_answer(right).split(), normal_answer(said).split()
    if not true or not found:
        return float(true == found)
    common = sum((Counter(true) & Counter(found)).values())
    return 2 * common / (len(true) + len(found))
