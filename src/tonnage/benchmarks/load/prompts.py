"""Texts to send: of a data set, or made of common words to a length in tokens of the service's own tokenizer."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from tonnage.benchmarks.load.dialects import Prompt
from tonnage.errors import InputError
from tonnage.sizing.length_points import length_points
from tonnage.traffic.arrivals import Arrival
from tonnage.values import dataclass
from tonnage.workload.jobs import Lengths

MOST_ROWS: Final = 100_000  # of a data set, kept in memory; the rest is not read
# Common nouns: nearly all vocabularies hold each as one token.
WORDS: Final = (
    "time", "year", "people", "way", "day", "man", "thing", "woman", "life", "child", "world", "school", "state",
    "family", "student", "group", "country", "problem", "hand", "part", "place", "case", "week", "company", "system",
    "program", "question", "work", "number", "night", "point", "home", "water", "room", "mother", "area", "money",
    "story", "fact", "month", "lot", "right", "study", "book", "eye", "job", "word", "business", "issue", "side",
    "kind", "head", "house", "service", "friend", "father", "power", "hour", "game", "line", "end", "member", "law",
    "car", "city", "name", "team", "minute", "idea", "body", "back", "parent", "face", "level", "office", "door",
    "health", "person", "art", "war", "history", "party", "result", "change", "morning", "reason", "research", "girl",
    "guy", "moment", "air", "teacher", "force", "education",
)  # fmt: skip


DRAWN_WORDS: Final = 6
_LONG_TEXT: Final = random.Random(0).choices(WORDS, k=20_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenCount:
    """How a service counts: tokens = `fixed` + `per_word` times the words; one a word until it is learned."""

    fixed: float = 0.0
    per_word: float = 1.0

    def words_for(self, tokens: float) -> int:
        return max(round((tokens - self.fixed) / self.per_word), 1)


def learn_count(few: tuple[int, int], many: tuple[int, int]) -> TokenCount:
    """The count of two (words, tokens); one token a word where they say nothing.

    >>> learn_count((10, 25), (110, 225))
    TokenCount(fixed=5.0, per_word=2.0)
    """
    per_word = (many[1] - few[1]) / (many[0] - few[0])
    return TokenCount(fixed=few[1] - per_word * few[0], per_word=per_word) if per_word > 0 else TokenCount()


def made_text(words: int, draw: random.Random) -> str:
    """So many words. The first few are drawn for each text, so that no two share a beginning for long and no prefix
    cache helps; the rest is a piece of one text drawn once, which costs a tenth."""
    first = draw.choices(WORDS, k=min(words, DRAWN_WORDS))
    left = words - len(first)
    begin = draw.randrange(len(_LONG_TEXT))
    piece = _LONG_TEXT[begin : begin + left]
    while len(piece) < left:
        piece += _LONG_TEXT[: left - len(piece)]
    return " ".join(first + piece)


class Prompts:
    """One prompt after another: rows of `rows` in turn, else texts of drawn lengths; a trace's lengths win."""

    def __init__(
        self,
        *,
        count: TokenCount,
        input_tokens: Lengths,
        output_tokens: Lengths | None,
        rows: tuple[Prompt, ...] = (),
        seed: int = 0,
    ) -> None:
        self._count, self._rows = count, rows
        self._draw = random.Random(seed)
        self._read, self._written = _points(input_tokens), None if output_tokens is None else _points(output_tokens)
        self._next = 0

    def prompt(self, arrival: Arrival) -> Prompt:
        written = arrival.output_tokens
        if written is None and self._written is not None:
            written = round(self._drawn(self._written))
        if self._rows:
            row = self._rows[self._next % len(self._rows)]
            self._next += 1
            return row if row.output_tokens is not None else _lasting(row, written)
        read = arrival.input_tokens if arrival.input_tokens is not None else self._drawn(self._read)
        return Prompt(text=made_text(self._count.words_for(read), self._draw), output_tokens=written)

    def _drawn(self, points: tuple[list[float], list[float]]) -> float:
        return self._draw.choices(points[0], weights=points[1])[0]


def read_rows(path: Path) -> tuple[Prompt, ...]:
    """Prompts of a JSONL file (`text`, `prompt`, `messages`, or `body` as OpenAI's batch files have it) or, of any
    other name, of a text file: one a line. InputError names the line that cannot be used."""
    try:
        with path.open(encoding="utf-8") as stream:
            found = tuple(_rows(stream, path))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read: {error}", hint="JSON lines, or one text a line") from error
    if not found:
        raise InputError(f"{path} has no row")
    return found


def _rows(stream: Iterator[str], path: Path) -> Iterator[Prompt]:
    as_json = path.suffix in (".jsonl", ".ndjson")
    for number, line in enumerate(stream, start=1):
        if number > MOST_ROWS:
            return
        if line.strip():
            yield _row(line, path, number) if as_json else Prompt(text=line.rstrip("\n"))


def _row(line: str, path: Path, number: int) -> Prompt:
    where = f"{path}:{number}"
    try:
        row = json.loads(line)
    except ValueError as error:
        raise InputError(f"{where}: {error}", hint="one JSON object a line") from error
    if not isinstance(row, Mapping):
        raise InputError(f"{where}: found a {type(row).__name__}, expected an object")
    return _prompt_of(row, where)


def _prompt_of(row: Mapping[str, Any], where: str) -> Prompt:
    body = row["body"] if isinstance(row.get("body"), Mapping) else row
    text = next((body[name] for name in ("text", "prompt", "input", "inputs") if isinstance(body.get(name), str)), None)
    messages = body.get("messages")
    if text is None and not isinstance(messages, list):
        raise InputError(f"{where}: no text", hint='each row has "text", "prompt", "messages" or "body"')
    tokens = body.get("max_tokens")
    return Prompt(
        text=text or " ".join(str(one.get("content", "")) for one in messages or () if isinstance(one, Mapping)),
        messages=tuple(messages or ()), output_tokens=tokens if isinstance(tokens, int) else None,
        body=body if body is not row else None,
    )  # fmt: skip


def _lasting(row: Prompt, tokens: int | None) -> Prompt:
    return Prompt(text=row.text, messages=row.messages, body=row.body, output_tokens=tokens)


def _points(lengths: Lengths) -> tuple[list[float], list[float]]:
    found = length_points(lengths)
    return found.tokens.tolist(), found.shares.tolist()
