"""What rules of routes ask of a request's text: its language, stated words, what classifiers say."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from tonnage.gateway.file.described import Gateway, Route, RouteRule
from tonnage.gateway.guardrails.detectors import phrases_pattern
from tonnage.gateway.proxy.asked import GatewayRequest
from tonnage.gateway.routing.languages import language_of

_TEXT_PARTS: Final = ("text", "input_text")
_NO_LABELS: Final[Mapping[str, frozenset[str]]] = MappingProxyType({})


class RequestClasses(NamedTuple):
    """`language` None: not known, or not looked for; `words`: those of rules that the text has; `labels`: by
    classifier, one that could not be asked is missing."""

    language: str | None = None
    words: frozenset[str] = frozenset()
    labels: Mapping[str, frozenset[str]] = _NO_LABELS


UNCLASSIFIED: Final = RequestClasses()


class WantedClasses:
    """What the rules of a route ask, and those of the routes that it falls back to."""

    def __init__(self, rules: Iterable[RouteRule]) -> None:
        rules = tuple(rules)
        self.language = any(rule.languages is not None for rule in rules)
        self.classifiers = tuple(dict.fromkeys(rule.classifier for rule in rules if rule.classifier is not None))
        words = dict.fromkeys(word for rule in rules for word in rule.words or ())
        self._words = {word: phrases_pattern([word]) for word in words}

    def __bool__(self) -> bool:
        return self.language or bool(self.classifiers) or bool(self._words)

    def read(self, text: str) -> RequestClasses:
        """Language and words; classifiers are asked over the wire."""
        return RequestClasses(
            language=language_of(text) if self.language else None,
            words=frozenset(word for word, pattern in self._words.items() if pattern.search(text)),
        )


def wanted_classes(gateway: Gateway, route: Route) -> WantedClasses:
    return WantedClasses(_rules(gateway, route))


def last_text(asked: GatewayRequest) -> str:
    """What the user wrote last: the texts of the last turn that has one, a prompt, an input; "" where there is none."""
    said = asked.said
    for name in ("messages", "input", "prompt"):
        value = said.get(name)
        if isinstance(value, str):
            return value
        if isinstance(value, list):
            return _of_turns(value)
    return ""


def _rules(gateway: Gateway, route: Route) -> Iterator[RouteRule]:
    at: Route | None = route
    while at is not None:
        yield from at.rules
        at = None if at.fallback is None else gateway.routes[at.fallback]


def _of_turns(turns: list[Any]) -> str:
    if all(isinstance(one, str) for one in turns):  # prompts, or texts for embeddings
        return "\n".join(turns)
    for turn in reversed(turns):
        if isinstance(turn, dict) and turn.get("role") == "user" and (text := _text(turn.get("content"))):
            return text
    return ""


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else ()
    texts = (one.get("text") for one in parts if isinstance(one, dict) and one.get("type") in _TEXT_PARTS)
    return "\n".join(one for one in texts if isinstance(one, str))
