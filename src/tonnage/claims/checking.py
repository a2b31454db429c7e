"""Check a document: read it, take its claims, answer each one."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from tonnage.catalog import Catalog
from tonnage.claims.document import ClaimsDocument, parse_document
from tonnage.claims.findings import CheckedDocument, ClaimAnswer, Finding, Kind, PassedOver
from tonnage.claims.fit_claims import answer_fit
from tonnage.claims.gpu_answers import answer_gpu, answer_gpu_price
from tonnage.claims.line_claims import LONGEST_LINE_CHARACTERS, line_claims
from tonnage.claims.machine_answers import answer_machine
from tonnage.claims.model_answers import answer_model_memory, answer_model_size
from tonnage.claims.names import Names
from tonnage.claims.platform_claims import answer_platform_price
from tonnage.claims.price_answers import answer_price
from tonnage.claims.rate_answers import answer_rate
from tonnage.claims.statements import (
    ArithmeticClaim,
    Claim,
    FitClaim,
    GpuClaim,
    GpuPriceClaim,
    InstanceClaim,
    MemoryNeedClaim,
    ModelSizeClaim,
    PlatformPriceClaim,
    PriceClaim,
    RateClaim,
)
from tonnage.claims.sums import answer_sum
from tonnage.claims.table_claims import table_claims
from tonnage.values import dataclass


def check_document(text: str, catalog: Catalog, *, name: str) -> CheckedDocument:
    """Every claim of a Markdown text that is understood, with its verdict, in the order of the lines.

    Prices are those of `catalog`, each with the day it was read; nothing is fetched. What is not understood as
    a claim is passed over: no finding does not mean that a statement is right.
    """
    document = parse_document(text)
    names = Names(catalog)
    claims = [claim for table in document.tables for claim in table_claims(table, names)]
    claims += line_claims(document.lines, names)
    found = [finding for claim in claims for finding in _findings(claim, names)]
    ordered = tuple(sorted(_once(found), key=lambda finding: finding.line))
    figures, left = passed_over(document, ordered)
    return CheckedDocument(
        name=name, catalog_name=catalog.name, findings=ordered, remarks=(*document.remarks, *_too_long(document)),
        figures=figures, passed_over=left,
    )  # fmt: skip


def _once(found: list[Finding]) -> Iterator[Finding]:
    """Each figure of a subject once a line, whichever reader found it first."""
    seen: set[tuple[object, ...]] = set()
    for one in found:
        figure = re.search(r"\d[\d,.]*", one.claimed)
        figure_text = figure[0].rstrip(".,") if figure and one.quantity not in ("name", "sizes") else ""
        key = (one.line, one.kind, one.subject, one.quantity, figure_text)
        if key not in seen:
            seen.add(key)
            yield one


def _too_long(document: ClaimsDocument) -> Iterator[str]:
    for line in document.lines:
        if len(line.text) > LONGEST_LINE_CHARACTERS:
            yield f"line {line.number}: longer than {LONGEST_LINE_CHARACTERS:,} characters, not looked at"


def _findings(claim: Claim, names: Names) -> Iterator[Finding]:
    if isinstance(claim, InstanceClaim):
        for part in answer_machine(claim, names):
            yield _finding(claim, "machine", claim.machine.text, part.quantity, part.claimed, part.answer)
    elif isinstance(claim, PriceClaim):
        quantity = f"{claim.purchase.replace('_', '-')} price {'a month' if claim.is_monthly else 'an hour'}"
        yield _finding(claim, "price", claim.machine.text, quantity, claim.claimed, answer_price(claim, names))
    elif isinstance(claim, GpuClaim):
        quantity = claim.quantity.removesuffix("_gib").removesuffix("_gb_per_s").removesuffix("_w").replace("_", " ")
        yield _finding(claim, "gpu", claim.gpu.text, quantity, claim.claimed, answer_gpu(claim))
    elif isinstance(claim, GpuPriceClaim):
        answer = answer_gpu_price(claim, names.catalog)
        yield _finding(claim, "price", claim.gpu.text, "price a GPU-hour", claim.claimed, answer)
    elif isinstance(claim, ArithmeticClaim):
        yield _finding(claim, "sum", claim.expression, "result", claim.claimed, answer_sum(claim))
    elif isinstance(claim, ModelSizeClaim):
        size = claim.parameters.text
        yield _finding(claim, "model size", claim.model, "parameters", size, answer_model_size(claim))
    elif isinstance(claim, MemoryNeedClaim):
        quantity = f"{claim.precision} memory" + ("" if claim.purpose == "unstated" else f" for {claim.purpose}")
        memory = claim.memory.text
        yield _finding(claim, "model memory", claim.model, quantity, memory, answer_model_memory(claim))

    elif isinstance(claim, FitClaim):
        quantity = f"fits, {claim.purpose}" if claim.purpose != "unstated" else "fits"
        yield _finding(claim, "fit", claim.model, quantity, claim.claimed, answer_fit(claim))
    elif isinstance(claim, PlatformPriceClaim):
        answer = answer_platform_price(claim, names.catalog)
        yield _finding(claim, "price", claim.product, f"price per {claim.unit}", claim.claimed, answer)
    elif isinstance(claim, RateClaim):
        quantity = "training rate" if claim.trains else "inference rate"
        subject = f"{claim.model} on {claim.in_job:g} x {claim.gpu.text}"
        yield _finding(claim, "rate", subject, quantity, claim.claimed, answer_rate(claim, names.catalog))


def _finding(claim: Claim, kind: Kind, subject: str, quantity: str, claimed: str, answer: ClaimAnswer) -> Finding:
    return Finding(
        line=claim.place.line, kind=kind, subject=subject, quantity=quantity, claimed=claimed, answer=answer,
        text=claim.place.text,
    )  # fmt: skip


_NUMBER: Final = r"\d[\d,]*(?:\.\d+)?"
_UNIT: Final = (
    r"%|[KMGTP]i?B(?:/s)?|[MGT]bps|[MGT]bit/s|[TP]FLOPS?|TOPS|v?CPUs?|cores|GPUs?|W|watts?|(?:k\s*)?tokens?(?:/s)?|"
    r"(?:requests|samples|images|sequences)/s|hours?|h|minutes|min|seconds|ms|s|days|months?|DBUs?|"
    r"[BM](?:\s+param(?:eter)?s)?|billion|million|parameters"
)
_FIGURE: Final = re.compile(
    rf"(?P<money>[$€]\s?{_NUMBER}[kKM]?\b)|(?<![\w.$-])(?P<number>{_NUMBER})\s?(?P<unit>{_UNIT})(?![\w-])"
)
_CELL: Final = re.compile(rf"^\s*[~≈]?\s*(?P<number>{_NUMBER})\s*$")


@dataclass(frozen=True, slots=True)
class _Figure:
    line: int
    text: str

    @property
    def number(self) -> str:
        return _plain(self.text)


def passed_over(document: ClaimsDocument, findings: Sequence[Finding]) -> tuple[int, tuple[PassedOver, ...]]:
    """How many figures the document has, and those that no finding on their line holds.

    A figure is an amount of money, a number with a unit, or a cell of a table that is a number alone. Two figures
    alike on one line are two, and a finding holds as many as it names.
    """
    figures = list(_figures(document))
    held: dict[int, Counter[str]] = {}
    for finding in findings:
        numbers = {_plain(one) for one in re.findall(_NUMBER, f"{finding.subject} {finding.claimed}")}
        held.setdefault(finding.line, Counter()).update(numbers)
    left = []
    for one in figures:
        here = held.get(one.line, Counter())
        if here[one.number] > 0:
            here[one.number] -= 1
        else:
            left.append(PassedOver(line=one.line, figure=one.text))
    return len(figures), tuple(left)


def _figures(document: ClaimsDocument) -> Iterator[_Figure]:
    for line in document.lines:
        yield from _of_text(line.number, line.text)
    for table in document.tables:
        for row in table.rows:
            for cell in row.cells:
                alone = _CELL.match(cell)
                yield from [_Figure(row.number, alone["number"])] if alone else _of_text(row.number, cell)


def _of_text(line: int, text: str) -> Iterator[_Figure]:
    return (_Figure(line, found[0]) for found in _FIGURE.finditer(text))


def _plain(text: str) -> str:
    """The number alone, as a key: `$1,024.0` and `1024` are one."""
    found = re.search(_NUMBER, text)
    return f"{float(found[0].replace(',', '')):g}" if found else ""
