"""The keys of guardrails and of classifiers in a gateway file, and where they contradict one another."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Field

from tonnage.comparison.user_files import Names, Text, unknown
from tonnage.errors import InputError
from tonnage.gateway.routing.languages import LANGUAGES
from tonnage.values import dataclass
from tonnage.workload.file.fields import Count, Duration, Spelled, StrictModel, Word, Words
from tonnage.workload.file.fields import key as entry
from tonnage.workload.file.problems import Problem

Detect = Literal["secrets", "pii", "words", "presidio", "classifier"]
Side = Literal["input", "output"]
Act = Literal["refuse", "redact", "report"]
SECRETS: Final = ("private-key", "token", "key", "secret")
PII: Final = ("e-mail", "phone", "social-security-number", "account", "card")
_OF: Final[dict[str, tuple[str, ...]]] = {  # which keys belong to what is detected
    "secrets": ("kinds",), "pii": ("kinds",), "words": ("words", "words_file"),
    "presidio": ("kinds", "model", "language", "above"),
    "classifier": ("deployment", "labels", "above", "protocol", "window_chars"),
}  # fmt: skip
UNKNOWN_LANGUAGE: Final = "unknown"
OUTCOME: Final = "classifier"  # as the ledger names its requests


def _as_sides(value: Any) -> Any:
    return (value,) if isinstance(value, str) else tuple(value) if isinstance(value, list) else value


Sides = Annotated[tuple[Side, ...], BeforeValidator(_as_sides), Field(min_length=1), Spelled("input, output or both")]
Score = Annotated[float, Field(gt=0, le=1), Spelled("number above 0, at most 1")]
Texts = Annotated[tuple[Text, ...], BeforeValidator(_as_sides), Spelled("text or list of texts")]


class GuardrailEntry(StrictModel):
    """A check of what is asked or answered; routes name those that hold for them."""

    name: Word = entry("The key above the entry.")
    detect: Detect = entry("What is looked for: by shape (secrets, pii), by `words`, by Presidio, by a classifier.")
    on: Sides = entry("Where.", default=("input",), shown="input")
    act: Act = entry("Refuse, replace what was found by its kind, or count it only.", default="refuse")
    fails: Literal["closed", "open"] = entry(
        "Where the check itself fails: refuse (closed), or let pass (open).", default="closed"
    )
    stream: Literal["sentence", "whole"] = entry(
        "Streamed answers are held back until a sentence is whole, or all of them.", default="sentence"
    )
    kinds: Names | None = entry("Which kinds of secrets or pii, or entities of Presidio. Default: all.", default=None)
    words: Texts | None = entry("Words and phrases, whole words in any case.", default=None)
    words_file: Word | None = entry("A file of them, one a line; # begins a comment.", default=None)
    deployment: Word | None = entry("The deployment that classifies.", default=None)
    labels: Words | None = entry("Its labels that count as found.", default=None)
    above: Score = entry("From this score on.", default=0.5)
    protocol: Literal["predict", "moderations"] = entry(
        "How it is asked: /predict of an encoder server, or /moderations of OpenAI.", default="predict"
    )
    window_chars: Count = entry("Longer texts are classified in pieces of so many letters.", default=1500)
    model: Word | None = entry(
        "The spaCy model that Presidio uses: a package installed here, or a folder.", default=None
    )
    language: Word = entry("The language that Presidio reads.", default="en")


@dataclass(frozen=True, slots=True, kw_only=True)
class Guardrail:
    """A check, resolved. `kinds` None: all; `above`: the score from which a label or an entity counts."""

    name: str
    detect: Detect
    on: tuple[Side, ...]
    act: Act
    fails_open: bool
    whole: bool
    kinds: frozenset[str] | None
    words: tuple[str, ...]
    deployment: str | None
    labels: frozenset[str]
    above: float
    moderations: bool
    window_chars: int
    model: str | None
    language: str


def read_guardrail(one: GuardrailEntry, folder: Path) -> Guardrail:
    """InputError where its file of words cannot be read or has none."""
    words = list(one.words or ())
    if one.words_file is not None:
        path = folder / one.words_file
        try:
            lines = path.read_text("utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"guardrails.{one.name}: {path} cannot be read: {error}", hint="check the path") from error
        words += [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]
        if not words:
            raise InputError(f"guardrails.{one.name}: {path} has no words", hint="one word or phrase a line")
    return Guardrail(
        name=one.name, detect=one.detect, on=one.on, act=one.act, fails_open=one.fails == "open",
        whole=one.stream == "whole", kinds=None if one.kinds is None else frozenset(one.kinds), words=tuple(words),
        deployment=one.deployment, labels=frozenset(one.labels or ()), above=one.above,
        moderations=one.protocol == "moderations", window_chars=one.window_chars, model=one.model,
        language=one.language,
    )  # fmt: skip


def guardrail_problems(one: GuardrailEntry, deployments: Collection[str]) -> Iterator[Problem]:
    """What a guardrail lacks, or says that its kind of check does not follow."""
    here = ("guardrails", one.name)
    every = {key for keys in _OF.values() for key in keys}
    for key in sorted(every & one.model_fields_set):
        if key not in _OF[one.detect]:
            takes = f"it takes {', '.join(_OF[one.detect])}"
            yield Problem((*here, key), f"says nothing to a check of {one.detect}", takes)
    if one.detect == "words" and not (one.words or one.words_file):
        yield Problem((*here, "words"), "is missing", "words: [...], or words_file: PATH")
    if one.detect == "presidio" and one.model is None:
        yield Problem((*here, "model"), "is missing", "a spaCy model that is installed, such as en_core_web_sm")
    if one.detect == "classifier":
        if one.deployment is None:
            yield Problem((*here, "deployment"), "is missing", "the deployment that classifies")
        elif one.deployment not in deployments:
            yield unknown((*here, "deployment"), "deployment", one.deployment, deployments)
        if not one.labels:
            yield Problem((*here, "labels"), "is missing", "the classifier's labels that count as found")
        if one.act == "redact":
            yield Problem((*here, "act"), "a classifier finds no place that could be redacted", "refuse or report")
    if one.detect in ("secrets", "pii"):
        known = SECRETS if one.detect == "secrets" else PII
        for kind in one.kinds or ():
            if kind not in known:
                yield unknown((*here, "kinds"), "kind", kind, known)


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
