"""The keys of a gateway file that say how classifiers sort requests, and where these keys contradict one another."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final, Literal

from tonnage.comparison.door import unknown
from tonnage.gateway.file.guardrail_entries import Score
from tonnage.gateway.routing.languages import LANGUAGES
from tonnage.values import dataclass
from tonnage.workload.file.fields import Count, Duration, StrictModel, Word
from tonnage.workload.file.fields import key as entry
from tonnage.workload.file.problems import Problem

UNKNOWN_LANGUAGE: Final = "unknown"
OUTCOME: Final = "classifier"  # as the ledger names its requests


class ClassifierEntry(StrictModel):
    """A deployment that is asked what a request is about; rules of routes name its labels."""

    name: Word = entry("The key above the entry.")
    deployment: Word = entry("The deployment that classifies.")
    above: Score = entry("A label counts from this score on.", default=0.5)
    within: Duration = entry("How long it may take; each request waits for it.", default=1.0, shown="1s")
    fails: Literal["unclassified", "refuse"] = entry(
        "Where it fails or is late: no rule on its labels holds, or the request is refused.", default="unclassified"
    )
    protocol: Literal["predict", "moderations"] = entry(
        "How it is asked: /predict of an encoder server, or /moderations of OpenAI.", default="predict"
    )
    window_chars: Count = entry("Longer texts are classified in pieces of so many letters.", default=1500)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestClassifier:
    """A classifier, resolved. `labels`: those that rules name."""

    name: str
    deployment: str
    above: float
    within_s: float
    refuses: bool  # requests, where it fails
    moderations: bool
    window_chars: int
    labels: frozenset[str]


def read_classifier(one: ClassifierEntry, labels: frozenset[str]) -> RequestClassifier:
    return RequestClassifier(
        name=one.name, deployment=one.deployment, above=one.above, within_s=one.within, refuses=one.fails == "refuse",
        moderations=one.protocol == "moderations", window_chars=one.window_chars, labels=labels,
    )  # fmt: skip


def classifier_problems(one: ClassifierEntry, deployments: Collection[str], used: Collection[str]) -> Iterator[Problem]:
    """What is missing of a classifier. `used`: those that rules name."""
    here = ("classifiers", one.name)
    if one.deployment not in deployments:
        yield unknown((*here, "deployment"), "deployment", one.deployment, deployments)
    if one.name not in used:
        yield Problem(here, "is named by no rule", f"`rules: [{{classifier: {one.name}, labels: ...}}]` of a route")


def language_problems(path: tuple[str | int, ...], languages: Collection[str]) -> Iterator[Problem]:
    for one in languages:
        if one != UNKNOWN_LANGUAGE and one not in LANGUAGES:
            yield unknown(path, "language", one, (*LANGUAGES, UNKNOWN_LANGUAGE))
