"""Totals of token prices: «$0.0003 per 1K tokens» beside «1M tokens: $0.30», within one list or paragraph."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Final

from tonnage.claims.document import TextLine
from tonnage.claims.figures import Amount, parse_amount, parse_number
from tonnage.claims.statements import ArithmeticClaim, Place

_SCALES: Final = {"": 1.0, "k": 1e3, "thousand": 1e3, "m": 1e6, "million": 1e6, "b": 1e9, "billion": 1e9}
_COUNT: Final = (
    r"(?P<number>\d[\d,]*(?:\.\d+)?)?\s*(?P<scale>k|m|b|thousand|million|billion)?\s*(?:input |output )?tokens\b"
)
_DOLLARS: Final = r"(?P<usd>\$\s?\d[\d,]*(?:\.\d+)?(?:\s*(?:-|–|to)\s*\$?\s?\d[\d,]*(?:\.\d+)?)?)"
_RATE: Final = re.compile(rf"{_DOLLARS}\s*(?:/|per|for(?: each)?)\s*{_COUNT}", re.IGNORECASE)
_TOTAL: Final = re.compile(
    rf"(?<![\w$.])(?=\d){_COUNT}(?:\s*(?:/|per|a)\s*\w+)?\s*(?::|=|costs?|is|→|at)\s*{_DOLLARS}", re.IGNORECASE
)


def token_price_claims(block: Sequence[TextLine]) -> Iterator[ArithmeticClaim]:
    """A total for a number of tokens, against the one price per token that its block states."""
    rates = [(line, match) for line in block for match in _RATE.finditer(line.text)]
    if len(rates) != 1:
        return
    rate, per = _amount(rates[0][1]), _tokens(rates[0][1])
    for line in block:
        for match in _TOTAL.finditer(line.text):
            total, tokens = _amount(match), _tokens(match)
            if rate is None or total is None or not per or not tokens:
                continue
            ends = [(rate.low, total.low)] if not total.is_range else [(rate.low, total.low), (rate.high, total.high)]
            yield _claim(line, rates[0][1], match, ends, tokens / per, total)


def _claim(
    line: TextLine,
    rate: re.Match[str],
    total: re.Match[str],
    ends: Sequence[tuple[float, float]],
    times: float,
    printed: Amount,
) -> ArithmeticClaim:
    """The end of the range that is furthest off stands for the claim."""
    low, claimed = max(ends, key=lambda pair: abs(pair[0] * times - pair[1]))
    result = parse_amount(f"${claimed:,.10g}")
    return ArithmeticClaim(
        place=Place(line=line.number, text=line.text.strip(), headings=line.headings),
        expression=f"{times:,.10g} × ${low:g}",
        value=Decimal(str(low)) * Decimal(str(times)),
        result=result if result is not None else printed,
        claimed=f"{total[0].strip()} at {rate[0].strip()}",
        right=" to ".join(f"${end * times:,.10g}" for end, _ in ends),
    )


def _amount(match: re.Match[str]) -> Amount | None:
    return parse_amount(match["usd"])


def _tokens(match: re.Match[str]) -> float:
    number = parse_number(match["number"]) if match["number"] else 1.0
    return number * _SCALES[(match["scale"] or "").casefold()]
