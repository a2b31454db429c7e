"""What an inference row's engine did and how its requests came, filled into its columns once, when it is read.

Three steps, each filling only cells that are still blank:

1. `key=value` in the note, for every optional column (`request_rate_qps=4; pp=2`).
2. The source: `inference_sources` knows how each documented source measured, and in which words its tables say so.
3. Clauses of the note that say nothing else: a named feature or a count (`VOCABULARY`).

A row with a clause that calls anything about it suspect is marked so. After this no prediction looks at a note or a
source.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from math import isfinite
from typing import Any, Final

from tonnage.calibration.columns import ENGINE_COLUMNS, LOAD_COLUMNS
from tonnage.calibration.inference_sources import documented_facts, words_of_source
from tonnage.calibration.note_words import NoteWords, clauses_of, stated_in_clauses, words
from tonnage.calibration.rows import InferenceRow

KEY_VALUE: Final = re.compile(rf"(?<![\w.])({'|'.join((*ENGINE_COLUMNS, *LOAD_COLUMNS))})=([\w.,+/-]+)")
# Features and counts by their names, as clauses of any note. Of several data sets, the first counts.
VOCABULARY: Final[tuple[NoteWords, ...]] = (
    words("traced", r"torchscript(?: \d[\d.]*)?", "y"),
    words("compiled", r"xla", "y"),
    words("attention", r"attention sdpa|SDPA|flash[- ]?att(?:entio)?n(?:[- ]?v?[23])?|FA-?[23]", "sdpa"),
    words("attention", r"attention eager|eager attention", "eager"),
    words("kv_cache", r"kv cache fp8", "fp8"),
    words("remote", r"triton(?: (?:inference )?(?:server|client))?", "y"),
    words("padding", r"padding removed|remov(?:e|ed|es)[ -]padding", "removed"),
    words("data_set", r"cnn/dailymail(?: summari[sz]ation)?", "cnn/dailymail"),
    words("data_set", r"openorca", "openorca"),
    words("data_set", r"(?:\d+ )?sharegpt(?:-like)?(?: (?:prompts|requests))?", "sharegpt"),
    words("lengths", r"(?:\d+ )?sharegpt(?:-like)?(?: (?:prompts|requests))?", "varied"),
    words("lengths", r"fixed(?:[ -]length| lengths)?", "fixed"),
    words("start_up", r"(?:latency_)?mean is inflated by start-up(?: outliers)?", "y"),
    words("prompts", r"(\d+)\s+(?:sharegpt(?:-like)? )?(?:prompts|requests)"),
    words("beams", r"beam width (\d+)"),
)
# Doubt fails to the safe side: a row that is doubted enters no fit. A clause that denies it doubts nothing.
DOUBT: Final = re.compile(r"suspect|suspicious|anomal(?:y|ies|ous)", re.IGNORECASE)
DENIED: Final = re.compile(rf"\b(?:no|not|never|nothing|without)\s+(?:longer\s+)?(?:{DOUBT.pattern})", re.IGNORECASE)


def with_inference_facts(row: InferenceRow) -> InferenceRow:
    """The row with its blank columns filled from its note and its source; the same row where it is filled already."""
    for facts in (_stated, words_of_source, documented_facts, _named):
        row = _filled(row, facts(row))
    doubted = any(DOUBT.search(clause) and not DENIED.search(clause) for clause in clauses_of(row.note))
    return replace(row, quality="suspect") if doubted and row.quality != "suspect" else row


def _filled(row: InferenceRow, found: Mapping[str, Any]) -> InferenceRow:
    blank = {name: value for name, value in found.items() if getattr(row, name) in ("", None)}
    return replace(row, **blank) if blank else row


def _stated(row: InferenceRow) -> dict[str, Any]:
    """`key=value` of the note; a number that cannot be read, or is not finite, states nothing."""
    kinds = InferenceRow.__annotations__
    found: dict[str, Any] = {}
    for name, text in KEY_VALUE.findall(row.note):
        kind = str(kinds[name])
        try:
            value = int(text) if kind.startswith("int") else float(text) if kind.startswith("float") else text
        except ValueError:
            continue
        if isinstance(value, str) or isfinite(value):
            found[name] = value
    return found


def _named(row: InferenceRow) -> dict[str, str | int]:
    return stated_in_clauses(clauses_of(row.note), VOCABULARY)
