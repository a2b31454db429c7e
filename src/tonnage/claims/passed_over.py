"""Figures of a document that no claim holds: what a reader must still check."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from tonnage.claims.document import ClaimsDocument
from tonnage.claims.findings import Finding, PassedOver
from tonnage.values import dataclass

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
