"""What finds things in a text: shapes, words, Presidio. Each says where, and of which kind."""

from __future__ import annotations

import importlib
import importlib.util
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from tonnage.errors import InputError, MissingExtra
from tonnage.gateway.file.guardrail_entries import PII, SECRETS, Guardrail
from tonnage.gateway.observing.redaction import KINDS, found_shapes


class DetectedText(NamedTuple):
    """`kind`: what replaces what was found; it says nothing of its words."""

    begin: int
    end: int
    kind: str


class Detector(Protocol):
    """`slow`: takes long enough to be asked beside the event loop."""

    slow: bool

    def find(self, text: str) -> list[DetectedText]: ...


class ShapeDetector:
    """Keys, tokens, card numbers, e-mail addresses and such, by their shapes and check digits."""

    slow = False

    def __init__(self, kinds: Iterable[str]) -> None:
        wanted = frozenset(kinds)
        self._kinds = {kind: name for kind in KINDS if (name := kind.replace(" ", "-")) in wanted}

    def find(self, text: str) -> list[DetectedText]:
        return [DetectedText(begin, end, self._kinds[kind]) for begin, end, kind in found_shapes(text, self._kinds)]


def phrases_pattern(words: Iterable[str]) -> re.Pattern[str]:
    """Whole words and phrases, in any case; spaces of a phrase match any run of them."""
    phrases = sorted({r"\s+".join(map(re.escape, one.split())) for one in words}, key=len, reverse=True)
    return re.compile(rf"(?<!\w)(?:{'|'.join(phrases)})(?!\w)", re.IGNORECASE)


class WordDetector:
    """Stated words and phrases."""

    slow = False

    def __init__(self, words: Sequence[str]) -> None:
        self._pattern = phrases_pattern(words)

    def find(self, text: str) -> list[DetectedText]:
        return [DetectedText(one.start(), one.end(), "topic") for one in self._pattern.finditer(text)]


class PresidioDetector:
    """Names, places and what else Presidio's recognizers know, from a score on."""

    slow = True

    def __init__(self, model: str, language: str, kinds: frozenset[str] | None, above: float) -> None:
        """Loads the model. Raises MissingExtra, InputError."""
        try:
            analyzer: Any = importlib.import_module("presidio_analyzer")
            provider: Any = importlib.import_module("presidio_analyzer.nlp_engine")
        except ImportError as error:
            raise MissingExtra("guardrails with Presidio", "guardrails") from error
        if not Path(model).is_dir() and importlib.util.find_spec(model) is None:  # Presidio would fetch it
            raise InputError(f"the spaCy model {model} is not installed", hint=f"python -m spacy download {model}")
        models = [{"lang_code": language, "model_name": model}]
        engine = provider.NlpEngineProvider(nlp_configuration={"nlp_engine_name": "spacy", "models": models})
        self._analyzer = analyzer.AnalyzerEngine(nlp_engine=engine.create_engine(), supported_languages=[language])
        self._language, self._above = language, above
        self._kinds = None if kinds is None else sorted(one.upper().replace("-", "_") for one in kinds)

    def find(self, text: str) -> list[DetectedText]:
        found = self._analyzer.analyze(
            text=text, language=self._language, entities=self._kinds, score_threshold=self._above
        )
        return [DetectedText(one.start, one.end, one.entity_type.lower().replace("_", "-")) for one in found]


def make_detector(rule: Guardrail) -> Detector | None:
    """None: a classifier, which is asked over the wire. Raises MissingExtra, InputError."""
    match rule.detect:
        case "secrets":
            return ShapeDetector(rule.kinds or SECRETS)
        case "pii":
            return ShapeDetector(rule.kinds or PII)
        case "words":
            return WordDetector(rule.words)
        case "presidio":
            assert rule.model is not None
            return PresidioDetector(rule.model, rule.language, rule.kinds, rule.above)
        case "classifier":
            return None


def replaced(text: str, findings: Iterable[DetectedText]) -> str:
    """The text with its findings replaced by their kinds; of two that overlap the one that begins first."""
    pieces, at = [], 0
    for one in disjoint(findings):
        pieces += [text[at : one.begin], marker(one.kind)]
        at = one.end
    return "".join([*pieces, text[at:]])


def disjoint(findings: Iterable[DetectedText]) -> list[DetectedText]:
    """In their order, without those that begin inside another one; what such a one reaches beyond it is added to it."""
    kept: list[DetectedText] = []
    for one in sorted(findings, key=lambda one: (one.begin, -one.end)):
        if kept and one.begin < kept[-1].end:
            kept[-1] = kept[-1]._replace(end=max(kept[-1].end, one.end))
        else:
            kept.append(one)
    return kept


def marker(kind: str) -> str:
    """What replaces what was found."""
    return f"[{kind}]"
