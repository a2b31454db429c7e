"""How often a similarity lets a wrong answer through: measured on pairs of questions whose meaning is known; and its
report (`tonnage/gateway-similarity@1`).
"""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from tonnage.errors import InputError
from tonnage.gateway.semantic.embeddings import Vectors
from tonnage.gateway.semantic.questions import numbers_in
from tonnage.reports.blocks import Page, Paragraph
from tonnage.reports.listing import Field, Fields, field_table, field_values, fields_report
from tonnage.reports.rendering import Report
from tonnage.reports.wording import UNKNOWN
from tonnage.values import dataclass

COLUMNS: Final = ("text", "other", "same")
STEPS: Final = (0.80, 0.85, 0.90, 0.92, 0.94, 0.95, 0.96, 0.97, 0.98, 0.99)
CONFIDENT: Final = 1.645  # standard deviations: 95 %, one-sided
_SAME: Final = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}
SCHEMA: Final = "tonnage/gateway-similarity@1"


class QuestionPair(NamedTuple):
    """Two questions; `same`: one answer serves both."""

    text: str
    other: str
    same: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SimilarityStep:
    """What a threshold does: pairs of one meaning that are found, pairs of two meanings that are taken for one, and the
    upper end of the one-sided 95 % interval of their share (Wilson 1927)."""

    at_least: float
    found: int
    same_pairs: int
    false: int
    other_pairs: int
    false_share_high: float

    @property
    def found_share(self) -> float | None:
        return self.found / self.same_pairs if self.same_pairs else None

    @property
    def false_share(self) -> float | None:
        return self.false / self.other_pairs if self.other_pairs else None


@dataclass(frozen=True, slots=True, kw_only=True)
class SimilarityFound:
    """The steps of a route's model of embeddings. `safe`: the least step whose false share is surely at most
    `most_false`; None: there is none, or too few pairs to say."""

    route: str
    deployment: str
    stated: float
    most_false: float
    steps: tuple[SimilarityStep, ...]
    tokens: int

    @property
    def safe(self) -> float | None:
        return next((one.at_least for one in self.steps if one.false_share_high <= self.most_false), None)

    @property
    def at_stated(self) -> SimilarityStep:
        return next(one for one in self.steps if one.at_least == self.stated)


def read_pairs(path: Path) -> list[QuestionPair]:
    """A CSV of `text`, `other`, `same` (1 or 0). Raises InputError with the line."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = csv.DictReader(file)
            missing = [name for name in COLUMNS if name not in (rows.fieldnames or ())]
            if missing:
                raise InputError(f"{path}: no column {', '.join(missing)}", hint=f"columns: {', '.join(COLUMNS)}")
            found = [_pair(row, path, rows.line_num) for row in rows]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path} cannot be read: {error}") from error
    if not found:
        raise InputError(f"{path} has no pairs", hint=f"columns: {', '.join(COLUMNS)}")
    return found


def _pair(row: dict[str, str], path: Path, line: int) -> QuestionPair:
    same = _SAME.get((row["same"] or "").strip().casefold())
    if same is None or not (row["text"] or "").strip() or not (row["other"] or "").strip():
        raise InputError(f"{path}, line {line}: needs two texts, and 1 or 0 for whether they mean the same")
    return QuestionPair(row["text"], row["other"], same)


def judge(pairs: Sequence[QuestionPair], texts: Vectors, others: Vectors, stated: float) -> tuple[SimilarityStep, ...]:
    """The steps and the stated threshold, ascending. Pairs with other numbers are never taken for one."""
    cosines = np.sum(texts * others, axis=1)
    comparable = np.array([numbers_in(one.text) == numbers_in(one.other) for one in pairs])
    same = np.array([one.same for one in pairs])
    return tuple(_step(level, (cosines >= level) & comparable, same) for level in sorted({*STEPS, stated}))


def _step(level: float, taken: np.ndarray, same: np.ndarray) -> SimilarityStep:
    false, others = int(np.sum(taken & ~same)), int(np.sum(~same))
    high = share_at_most(false, others)
    return SimilarityStep(
        at_least=level, found=int(np.sum(taken & same)), same_pairs=int(np.sum(same)), false=false,
        other_pairs=others, false_share_high=high,
    )  # fmt: skip


def share_at_most(count: int, total: int) -> float:
    """The upper end of the one-sided 95 % interval of a share (Wilson, «Probable inference», JASA 22, 1927).

    >>> round(share_at_most(0, 300), 4), share_at_most(0, 0)
    (0.0089, 1.0)
    """
    if total == 0:
        return 1.0
    share, spread = count / total, CONFIDENT**2 / total
    return min(1.0, (share + spread / 2 + CONFIDENT * math.sqrt(share * (1 - share) / total + spread / (4 * total)))
               / (1 + spread))  # fmt: skip


def _share(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.1%}"


_STEP: Final[Fields[SimilarityStep]] = (
    Field("at_least", lambda one: one.at_least, title="similarity", right=True),
    Field("found", lambda one: one.found),
    Field("same_pairs", lambda one: one.same_pairs),
    Field("found_share", lambda one: one.found_share, title="found again", right=True, show=_share),
    Field("false", lambda one: one.false, title="false hits", right=True),
    Field("other_pairs", lambda one: one.other_pairs),
    Field("false_share", lambda one: one.false_share, title="share", right=True, show=_share),
    Field("false_share_high", lambda one: one.false_share_high, title="at most (95 %)", right=True, show=_share),
)


def similarity_report(found: SimilarityFound) -> Report:
    return fields_report(lambda: _page(found), lambda: _document(found), _STEP, found.steps)


def _page(found: SimilarityFound) -> Page:
    here = found.at_stated
    head = (
        f"{found.route} compares questions by {found.deployment} and takes those of {found.stated:g} for one: "
        f"{here.found} of {here.same_pairs} pairs of one meaning are found, {here.false} of {here.other_pairs} others "
        "are taken for one."
    )
    if found.safe is None:
        safe = f"No step surely keeps false hits below {found.most_false:.1%}: more pairs of other meanings would tell."
    else:
        safe = f"False hits surely stay below {found.most_false:.1%} from a similarity of {found.safe:g}."
    return Page(
        title=f"Similarity of questions: {found.route}",
        blocks=(
            Paragraph(text=head), field_table(_STEP, found.steps), Paragraph(text=safe),
            Paragraph(text=f"Pairs with other numbers are never one. {found.tokens:,} tokens were asked for.",
                      tone="faint"),
        ),
    )  # fmt: skip


def _document(found: SimilarityFound) -> dict[str, Any]:
    return {
        "schema": SCHEMA, "route": found.route, "deployment": found.deployment, "stated": found.stated,
        "most_false": found.most_false, "safe": found.safe, "tokens": found.tokens,
        "steps": [field_values(_STEP, one) for one in found.steps],
    }  # fmt: skip
