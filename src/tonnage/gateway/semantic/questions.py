"""The question of a request: its last text, apart from all that must be the same for an answer to be given again."""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

from tonnage.gateway.proxy.asked import GatewayRequest

_NUMBERS: Final = re.compile(r"\d+(?:[.,]\d+)*")
_TEXT_PARTS: Final = ("text", "input_text")


class Question(NamedTuple):
    """`text`: what the user wrote last. `rest`: the request without it, for the key of what must be equal."""

    text: str
    rest: GatewayRequest


def numbers_in(text: str) -> tuple[str, ...]:
    """Questions about other years, amounts or articles have embeddings that are close.

    >>> numbers_in("Sales of 2023, in EUR 1,000?")
    ('1,000', '2023')
    """
    return tuple(sorted(_NUMBERS.findall(text)))


def question_of(asked: GatewayRequest, most_chars: int) -> Question | None:
    """None where the last turn is not one text of the user, or is longer than `most_chars`: models of embeddings read
    the beginning of a long text alone."""
    if asked.surface in ("chat", "messages"):
        name = "messages"
    elif asked.surface == "responses":
        name = "input"
    else:
        return None
    given = asked.said.get(name)
    if isinstance(given, str):
        text, without = given, ""
    elif isinstance(given, list) and given and isinstance(given[-1], dict) and given[-1].get("role") == "user":
        found = _text(given[-1].get("content"))
        if found is None:
            return None
        text, without = found, [*given[:-1], {**given[-1], "content": ""}]  # type: ignore[assignment]
    else:
        return None
    if not text.strip() or len(text) > most_chars:
        return None
    return Question(text, asked._replace(said={**asked.said, name: without}))


def _text(content: Any) -> str | None:
    """The text of a turn that is nothing else."""
    if isinstance(content, str):
        return content
    if isinstance(content, list) and len(content) == 1 and isinstance(content[0], dict):
        part = content[0]
        text = part.get("text")
        if part.get("type") in _TEXT_PARTS and isinstance(text, str) and part.keys() <= {"type", "text"}:
            return text
    return None
