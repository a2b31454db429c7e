"""`tonnage compare --check`: the findings of a document as a page, JSON (`tonnage/claims@1`) and CSV."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from tonnage.claims import VERDICTS, CheckedDocument, Finding, PassedOver, Verdict
from tonnage.reports.blocks import Block, Bullets, Heading, Page, Pairs, Paragraph, Table
from tonnage.reports.listing import Field, Fields, cell, field_table, field_values, fields_report
from tonnage.reports.rendering import Report
from tonnage.reports.wording import plural, render_date

SCHEMA: Final = "tonnage/claims@1"
_MEANING: Final[dict[Verdict, str]] = {
    "wrong": "is not so",
    "stale": "was so once",
    "partly": "holds for part of what it says",
    "unknown": "cannot be checked here",
    "ok": "is so",
}


def claims_report(checked: CheckedDocument, *, every_claim: bool = False) -> Report:
    """The report of a checked document. On a page claims that hold are counted; `every_claim` lists them too."""
    return fields_report(lambda: _page(checked, every_claim), lambda: _document(checked), _FINDING, checked.findings)


def _document(checked: CheckedDocument) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "document": checked.name,
        "catalog": checked.catalog_name,
        "counts": dict(checked.counts),
        "claims": [field_values(_FINDING, finding) for finding in checked.findings],
        "figures": checked.figures,
        "passed_over": [{"line": one.line, "figure": one.figure} for one in checked.passed_over],
        "remarks": list(checked.remarks),
    }


def _page(checked: CheckedDocument, every_claim: bool) -> Page:
    return Page(title=_title(checked), blocks=tuple(_blocks(checked, every_claim)))


def _title(checked: CheckedDocument) -> str:
    counts = checked.counts
    counted = f"{counts['wrong']} wrong, {counts['stale']} stale"
    return f"{checked.name}: {counted} of {plural(len(checked.findings), 'claim')}"


def _blocks(checked: CheckedDocument, every_claim: bool) -> Iterator[Block]:
    yield Pairs(rows=tuple((f"{verdict} ({_MEANING[verdict]})", f"{checked.counts[verdict]}") for verdict in _MEANING))
    if not checked.findings:
        yield Paragraph(text="nothing in it was understood as a claim about machines, GPUs, prices, sums or models")
    for verdict in (one for one in VERDICTS if one != "ok"):
        found = [finding for finding in checked.findings if finding.verdict == verdict]
        if found:
            yield Heading(text=verdict.capitalize())
            yield field_table(_FINDING, found)
    fine = [finding for finding in checked.findings if finding.verdict == "ok"]
    if fine and every_claim:
        yield Heading(text="Right")
        yield field_table(_FINDING, fine)
    if checked.passed_over and every_claim:
        yield Heading(text="Passed over")
        yield _passed_table(checked.passed_over)
    if checked.remarks:
        yield Heading(text="Not read as intended")
        yield Bullets(items=checked.remarks)
    held, left = checked.figures - len(checked.passed_over), len(checked.passed_over)
    listed = "" if every_claim or not left else " (--all lists them)"
    yield Paragraph(text=f"{plural(checked.figures, 'figure')} read: {held} in a claim, {left} passed over{listed}.")
    yield Paragraph(text=f"Checked against the catalog of {checked.catalog_name}; nothing was fetched.", tone="faint")


def _passed_table(figures: Sequence[PassedOver]) -> Table:
    """Figures by line."""
    lines: dict[int, list[str]] = {}
    for one in figures:
        lines.setdefault(one.line, []).append(one.figure)
    return field_table(_PASSED, list(lines.items()))


def _what(finding: Finding) -> str:
    return "sum" if finding.kind == "sum" else f"{finding.subject}, {finding.quantity}"


def _read(finding: Finding) -> str:
    return render_date(finding.answer.read_on) if finding.answer.source not in ("", "arithmetic") else ""


_PASSED: Final[Fields[tuple[int, list[str]]]] = (
    cell("line", lambda row: f"{row[0]}", right=True),
    cell("figures", lambda row: "; ".join(row[1]), wraps=True),
)
_FINDING: Final[Fields[Finding]] = (
    Field("line", lambda one: one.line, title="line", show=str, right=True),
    Field("verdict", lambda one: one.verdict),
    Field("kind", lambda one: one.kind),
    Field("subject", lambda one: one.subject),
    Field("quantity", lambda one: one.quantity),
    cell("what", _what, wraps=True),
    Field("claimed", lambda one: one.claimed, title="claimed", show=str, wraps=True),
    Field("right", lambda one: one.answer.right, title="right", show=str, wraps=True),
    cell("hint", lambda one: one.answer.hint, folds=3, wraps=True),
    cell("source", lambda one: one.answer.source, folds=2, fold_text="source: {}", wraps=True),
    cell("read", _read, folds=1, fold_text="read {}"),
    Field("source", lambda one: one.answer.source),
    Field("read_on", lambda one: one.answer.read_on),
    Field("hint", lambda one: one.answer.hint),
    Field("text", lambda one: one.text),
)
