"""What an inference row's engine did and how its requests came, filled into its columns once, when it is read.

Three steps, each filling only cells that are still blank:

1. `key=value` in the note, for every optional column (`request_rate_qps=4; pp=2`).
2. The source: `inference_sources` knows how each documented source measured.
3. Words of the note: named features (`FEATURES`) and counted ones (`COUNTS`).

A row whose note calls it suspect is marked so. After this no prediction looks at a note or a source.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from math import isfinite
from typing import Any, Final

from tonnage.calibration.columns import ENGINE_COLUMNS, LOAD_COLUMNS
from tonnage.calibration.inference_sources import documented_facts
from tonnage.calibration.rows import InferenceRow

KEY_VALUE: Final = re.compile(rf"(?<![\w.])({'|'.join((*ENGINE_COLUMNS, *LOAD_COLUMNS))})=([\w.,+/-]+)")
# A feature by its name: column, value, words. Of several data sets and kinds of lengths, the first counts.
FEATURES: Final[tuple[tuple[str, str, re.Pattern[str]], ...]] = tuple(
    (column, value, re.compile(words, re.IGNORECASE))
    for column, value, words in (
        ("traced", "y", r"torchscript"),
        ("compiled", "y", r"(?<!no )\bxla\b"),
        ("kv_cache", "fp8", r"kv cache fp8"),
        ("remote", "y", r"triton"),
        ("padding", "removed", r"remov\w*[ -]padding|padding removed"),
        ("start_up", "y", r"inflated by start-up"),
        ("data_set", "cnn/dailymail", r"cnn/dailymail"),
        ("data_set", "openorca", r"openorca"),
        ("data_set", "sharegpt", r"sharegpt"),
        ("lengths", "varied", r"sharegpt"),
        ("lengths", "fixed", r"fixed"),
    )
)
COUNTS: Final[tuple[tuple[str, re.Pattern[str]], ...]] = (
    ("prompts", re.compile(r"(\d+)\s+(?:sharegpt-like )?(?:prompts|requests)\b", re.IGNORECASE)),
    ("beams", re.compile(r"beam width (\d+)", re.IGNORECASE)),
)
DOUBT: Final = re.compile(r"suspect|anomalous", re.IGNORECASE)


def with_inference_facts(row: InferenceRow) -> InferenceRow:
    """The row with its blank columns filled from its note and its source; the same row where it is filled already."""
    for facts in (_stated, documented_facts, _named):
        row = _filled(row, facts(row))
    return replace(row, quality="suspect") if DOUBT.search(row.note) and row.quality != "suspect" else row


def _filled(row: InferenceRow, found: Mapping[str, Any]) -> InferenceRow:
    blank = {name: value for name, value in found.items() if getattr(row, name) in ("", None)}
    return replace(row, **blank) if blank else row


def _stated(row: InferenceRow) -> dict[str, Any]:
    """`key=value` of the note; a number that is none, or not finite, states nothing."""
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
    """What words of the note name or count."""
    found: dict[str, str | int] = {}
    for column, value, words in FEATURES:
        if column not in found and words.search(row.note):
            found[column] = value
    for column, words in COUNTS:
        if stated := words.search(row.note):
            found[column] = int(stated[1])
    return found
