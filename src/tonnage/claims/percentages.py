"""Sums in words: a discount and what it leaves, a saving between two amounts, so many at a price."""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Final

from tonnage.claims.document import TextLine
from tonnage.claims.figures import WORDS, Amount, parse_amount
from tonnage.claims.statements import ArithmeticClaim, Place

_USD: Final = r"\$\s?\d[\d,]*(?:\.\d+)?"
_LEFT: Final = re.compile(
    rf"(?P<share>\d+(?:\.\d+)?)\s?%\s+(?:discount|reduction|rebate|off|less|saving)\s*(?:on|of|from|off)?\s+(?P<from>{_USD})\s+"
    rf"(?:leaves?|is|gives?|makes?|comes? (?:down )?to|means)\s+(?P<to>{_USD})",
    re.IGNORECASE,
)
_SAVED: Final = re.compile(
    rf"\bfrom\s+(?P<from>{_USD})\D{{0,30}}?\bto\s+(?P<to>{_USD})[^.;$%]{{0,40}}?"
    rf"\b(?:saves?|cuts?|saving|reduces?|reduction of|drop of|less by|lowers?)"
    rf"[^.;$%\d]{{0,30}}(?P<share>\d+(?:\.\d+)?)\s?%",
    re.IGNORECASE,
)
_MANY: Final = re.compile(
    rf"\b(?P<count>{'|'.join(WORDS)}|\d{{1,4}})\s+(?P<what>[a-z][\w.-]*)\s+(?:at|for|of)\s+(?P<each>{_USD})"
    rf"(?:\s+(?:each|apiece))?\s+(?:are|is|makes?|comes? to|costs?|totals?|=)\s+(?P<total>{_USD})",
    re.IGNORECASE,
)


def percentage_claims(line: TextLine) -> Iterator[ArithmeticClaim]:
    """The sums in words of one line."""
    for match in _LEFT.finditer(line.text):
        share, before = _number(match["share"]), _number(match["from"])
        yield from _sum(
            line, match, f"{match['from']} less {match['share']} %", before * (1 - share / 100), match["to"]
        )
    for match in _SAVED.finditer(line.text):
        before, after = _number(match["from"]), _number(match["to"])
        if before:
            share = (before - after) / before * 100
            yield from _sum(line, match, f"1 - {match['to']} / {match['from']}", share, match["share"])
    for match in _MANY.finditer(line.text):
        word = match["count"].casefold()
        count = Decimal(WORDS.get(word, 0) or word)
        yield from _sum(
            line, match, f"{match['count']} × {match['each']}", count * _number(match["each"]), match["total"]
        )


def _sum(
    line: TextLine, match: re.Match[str], expression: str, value: Decimal, printed: str
) -> Iterator[ArithmeticClaim]:
    result: Amount | None = parse_amount(printed)
    if result is not None:
        yield ArithmeticClaim(
            place=Place(line=line.number, text=line.text.strip(), headings=line.headings), expression=expression,
            value=value, result=result, claimed=match[0],
        )  # fmt: skip


def _number(text: str) -> Decimal:
    return Decimal(text.replace("$", "").replace(",", "").strip())
