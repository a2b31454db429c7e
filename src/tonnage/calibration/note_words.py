"""Words of a row's note that state a column.

A note is a list of clauses between `;`, `,`, ` + ` and brackets. Of a table whose source is not documented here, a
clause counts only where it says nothing else (`FlashAttention-2`, `1000 requests`): a remark that happens to hold such
a word states nothing. A reader of a documented source knows in which words its tables print a column, and finds them
anywhere in a note.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from tonnage.values import dataclass

CLAUSE: Final = re.compile(r"[;,](?:\s|$)|[()]|\s\+\s")
MATRICES: Final = re.compile(r"(?<=\b[qkvo]), (?=[qkvo]\b)")  # «LoRA on q, v» is one clause
JOINED: Final = re.compile(r"(?:with|uses|using|w/)\s+", re.IGNORECASE)  # «with Liger kernels»


@dataclass(frozen=True, slots=True)
class NoteWords:
    """Words that state `value` in `column`; where `value` is empty, the number that they hold."""

    column: str
    value: str
    pattern: re.Pattern[str]

    def found(self, stated: re.Match[str]) -> str | int:
        """The cell. `k` behind a number is a thousand of it: `vocab 250k`."""
        if self.value:
            return self.value
        number, *unit = (group for group in stated.groups() if group)
        return int(number) * (1000 if unit else 1)


def words(column: str, pattern: str, value: str = "") -> NoteWords:
    """`pattern`, in capitals or not, states `value` in `column`, or its first group the number."""
    return NoteWords(column, value, re.compile(pattern, re.IGNORECASE))


def clauses_of(note: str) -> tuple[str, ...]:
    """The clauses of a note.

    >>> clauses_of("ShareGPT, 1000 prompts, request_rate=inf (all at once); vocab 1,024")
    ('ShareGPT', '1000 prompts', 'request_rate=inf', 'all at once', 'vocab 1,024')
    """
    parts = (part.strip(" +.:") for part in CLAUSE.split(MATRICES.sub(",", note)))
    return tuple(filter(None, (part[joined.end() :] if (joined := JOINED.match(part)) else part for part in parts)))


def stated_in_clauses(clauses: Sequence[str], vocabulary: Iterable[NoteWords]) -> dict[str, str | int]:
    """What clauses state that say nothing else; of two for one column the first of the vocabulary counts."""
    found: dict[str, str | int] = {}
    for known in vocabulary:
        stated = next(filter(None, map(known.pattern.fullmatch, clauses)), None)
        if stated is not None:
            found.setdefault(known.column, known.found(stated))
    return found


def stated_anywhere(note: str, vocabulary: Iterable[NoteWords]) -> dict[str, str | int]:
    """What a note of a documented source states, in the words of its vocabulary."""
    found: dict[str, str | int] = {}
    for known in vocabulary:
        stated = known.pattern.search(note)
        if stated is not None:
            found.setdefault(known.column, known.found(stated))
    return found
