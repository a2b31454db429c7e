"""`SimilarityFound` as a report (`tonnage/gateway-similarity@1`)."""

from __future__ import annotations

from typing import Any, Final

from tonnage.gateway.semantic.similarity import SimilarityFound, SimilarityStep
from tonnage.reports.blocks import Page, Paragraph
from tonnage.reports.listing import Field, Fields, field_table, field_values, fields_report
from tonnage.reports.rendering import Report
from tonnage.reports.wording import UNKNOWN

SCHEMA: Final = "tonnage/gateway-similarity@1"


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
