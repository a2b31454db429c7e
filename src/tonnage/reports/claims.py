"""`tonnage compare --check`: the findings of a document as a page, JSON (`tonnage/claims@1`) and CSV."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from tonnage.claims import VERDICTS, CheckedDocument, Finding, PassedOver, Verdict
from tonnage.reports.blocks import Block, Bullets, Column, Heading, Page, Pairs, Paragraph, Table
from tonnage.reports.plain import plain_day
from tonnage.reports.rendering import Report
from tonnage.reports.wording import plural, render_date

SCHEMA: Final = "tonnage/claims@1"
_CSV_COLUMNS: Final = (
    "line", "verdict", "kind", "subject", "quantity", "claimed", "right", "source", "read_on", "hint", "text",
)  # fmt: skip
_MEANING: Final[dict[Verdict, str]] = {
    "wrong": "is not so",
    "stale": "was so once",
    "partly": "holds for part of what it says",
    "unknown": "cannot be checked here",
    "ok": "is so",
}


def claims_report(checked: CheckedDocument, *, every_claim: bool = False) -> Report:
    """The report of a checked document. On a page claims that hold are counted; `every_claim` lists them too."""
    return Report(
        page=lambda: _page(checked, every_claim),
        document=lambda: _document(checked),
        columns=_CSV_COLUMNS,
        rows=lambda: [list(_keys(finding).values()) for finding in checked.findings],
    )


def _document(checked: CheckedDocument) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "document": checked.name,
        "catalog": checked.catalog_name,
        "counts": dict(checked.counts),
        "claims": [_keys(finding) for finding in checked.findings],
        "figures": checked.figures,
        "passed_over": [{"line": one.line, "figure": one.figure} for one in checked.passed_over],
        "remarks": list(checked.remarks),
    }


def _keys(finding: Finding) -> dict[str, Any]:
    return {
        "line": finding.line,
        "verdict": finding.verdict,
        "kind": finding.kind,
        "subject": finding.subject,
        "quantity": finding.quantity,
        "claimed": finding.claimed,
        "right": finding.answer.right,
        "source": finding.answer.source,
        "read_on": plain_day(finding.answer.read_on),
        "hint": finding.answer.hint,
        "text": finding.text,
    }


def _page(checked: CheckedDocument, every_claim: bool) -> Page:
    return Page(title=_title(checked), blocks=tuple(_blocks(checked, every_claim)))


def _title(checked: CheckedDocument) -> str:
    counts = checked.counts
    told = f"{counts['wrong']} wrong, {counts['stale']} stale"
    return f"{checked.name}: {told} of {plural(len(checked.findings), 'claim')}"


def _blocks(checked: CheckedDocument, every_claim: bool) -> Iterator[Block]:
    yield Pairs(rows=tuple((f"{verdict} ({_MEANING[verdict]})", f"{checked.counts[verdict]}") for verdict in _MEANING))
    if not checked.findings:
        yield Paragraph(text="nothing in it was understood as a claim about machines, GPUs, prices, sums or models")
    for verdict in (one for one in VERDICTS if one != "ok"):
        found = [finding for finding in checked.findings if finding.verdict == verdict]
        if found:
            yield Heading(text=verdict.capitalize())
            yield _table(found)
    fine = [finding for finding in checked.findings if finding.verdict == "ok"]
    if fine and every_claim:
        yield Heading(text="Right")
        yield _table(fine)
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
    columns = (Column(title="line", align="right"), Column(title="figures", wraps=True))
    return Table(columns=columns, rows=tuple((f"{line}", "; ".join(found)) for line, found in lines.items()))


def _table(findings: Sequence[Finding]) -> Table:
    columns = (
        Column(title="line", align="right"),
        Column(title="what", wraps=True),
        Column(title="claimed", wraps=True),
        Column(title="right", wraps=True),
        Column(title="hint", folds=3, fold_text="{}", wraps=True),
        Column(title="source", folds=2, fold_text="source: {}", wraps=True),
        Column(title="read", folds=1, fold_text="read {}"),
    )
    return Table(columns=columns, rows=tuple(_row(finding) for finding in findings))


def _row(finding: Finding) -> tuple[str, ...]:
    answer = finding.answer
    what = "sum" if finding.kind == "sum" else f"{finding.subject}, {finding.quantity}"
    when = render_date(answer.read_on) if answer.source not in ("", "arithmetic") else ""
    return (f"{finding.line}", what, finding.claimed, answer.right, answer.hint, answer.source, when)
