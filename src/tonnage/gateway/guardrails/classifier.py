"""A deployment of classification, asked for a guardrail or for a route's rules: its cost is held, settled and put into
the ledger as any other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, Protocol

import orjson

from tonnage.gateway.file.described import Caller
from tonnage.gateway.money.book import SpendBook
from tonnage.gateway.proxy.asked import BYTES_PER_TOKEN
from tonnage.gateway.proxy.running import Running
from tonnage.gateway.proxy.side_request import NotUsable, SideFailed, SideRequest, SideRequests

OVERLAP_CHARS: Final = 200  # of two windows: a phrase at their border is whole in one of them
TEXTS_A_REQUEST: Final = 32  # what TEI takes at a time by default
MOST_WINDOWS: Final = 256
TOKENS_A_WINDOW: Final = 16  # what a classifier adds around each


class CheckFailed(Exception):
    """A rule could not look at a text."""


class ClassifierTerms(Protocol):
    """What is asked of the deployment: `labels` that count from the score `above` on, texts in windows of letters,
    `moderations`: OpenAI's way, else that of an encoder server."""

    @property
    def labels(self) -> frozenset[str]: ...
    @property
    def above(self) -> float: ...
    @property
    def moderations(self) -> bool: ...
    @property
    def window_chars(self) -> int: ...


class Classifier:
    """Of one rule. `running`: the configuration at work, with the deployment that is asked; `outcome`: as the ledger
    names its requests."""

    def __init__(
        self, rule: ClassifierTerms, deployment: str | None, running: Running, book: SpendBook, outcome: str
    ) -> None:
        assert deployment is not None
        self.rule, self._outcome = rule, outcome
        self._asking = SideRequests(deployment, running, book)
        self.deployment = self._asking.deployment

    async def labels(self, texts: Sequence[str], *, caller: Caller, route: str, request: str) -> frozenset[str]:
        """The labels that count as found in any of the texts. Raises CheckFailed."""
        windows = [one for text in texts for one in _windows(text, self.rule.window_chars)]
        if len(windows) > MOST_WINDOWS:
            raise CheckFailed(f"the texts are over {MOST_WINDOWS} pieces of {self.rule.window_chars} letters")
        found: set[str] = set()
        for at in range(0, len(windows), TEXTS_A_REQUEST):
            found |= await self._ask(windows[at : at + TEXTS_A_REQUEST], caller, route, request)
        return frozenset(found)

    async def _ask(self, texts: list[str], caller: Caller, route: str, request: str) -> set[str]:
        """One request of the classifier."""
        body = orjson.dumps(
            {"input": texts, "model": self.deployment.model}
            if self.rule.moderations
            else {"inputs": texts, "truncate": True}
        )
        asked = SideRequest(
            target=b"/moderations" if self.rule.moderations else b"/predict",
            body=body,
            tokens=sum(len(one) // BYTES_PER_TOKEN + 1 for one in texts),
            most_tokens=len(body) + TOKENS_A_WINDOW * len(texts),
            outcome=self._outcome,
        )
        try:
            return await self._asking.ask(asked, self._found, caller=caller, route=route, request=request)
        except SideFailed as error:
            raise CheckFailed(str(error)) from error

    def _found(self, status: int, body: bytes) -> set[str]:
        """Raises NotUsable for an answer without labels and scores."""
        if status != 200:
            raise NotUsable(str(status))
        try:
            said = orjson.loads(body)
            scored = list(_moderated(said) if self.rule.moderations else _predicted(said))
        except (orjson.JSONDecodeError, KeyError, TypeError, ValueError) as error:
            raise NotUsable("what has no labels") from error
        if not scored:
            raise NotUsable("no labels")
        return {label for label, score in scored if label in self.rule.labels and score >= self.rule.above}


def _predicted(said: Any) -> Iterator[tuple[str, float]]:
    """A list for each text, of labels with their scores (Text Embeddings Inference, /predict)."""
    for text in said:
        for one in text if isinstance(text, list) else [text]:
            yield str(one["label"]), float(one["score"])


def _moderated(said: Any) -> Iterator[tuple[str, float]]:
    """Scores by category for each text (OpenAI, /moderations)."""
    for result in said["results"]:
        for label, score in result["category_scores"].items():
            yield str(label), float(score)


def _windows(text: str, chars: int) -> Iterator[str]:
    step = max(chars - OVERLAP_CHARS, chars // 2, 1)
    at = 0
    while True:
        yield text[at : at + chars]
        if at + chars >= len(text):
            return
        at += step
