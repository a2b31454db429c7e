"""Sums that a text prints with their result: `2 × $0.526 × 8 × 22 = $185`. Read, not executed; then answered.

A result is right when it is the value rounded to the digits that are printed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import ROUND_FLOOR, ROUND_HALF_UP, Context, Decimal, DivisionByZero, InvalidOperation
from typing import Final

from tonnage.claims.figures import NUMBER, Amount, find_amounts
from tonnage.claims.findings import ClaimAnswer
from tonnage.claims.statements import ArithmeticClaim
from tonnage.values import dataclass

LARGEST: Final = 10**15  # beyond that it is no amount of money, hours or tokens
LONGEST_RESULT: Final = 60
SAME_UNIT_TOLERANCE: Final = Decimal("0.02")
LONGEST_SUM: Final = 300  # characters before the equals sign that are looked at
_TOKEN: Final = re.compile(
    rf"(?P<number>(?:USD\s?|\$\s?)?(?:{NUMBER})(?:\s?[kKMBT](?![A-Za-z])|\s?%)?)"
    r"|(?P<operator>[×·*÷+−]|[xX](?![A-Za-z])|(?<=\s)[-–](?=\s)|/(?=\s*[$\d(]))"
    r"|(?P<open>\()|(?P<close>\))|(?P<word>(?:/\s?)?[A-Za-z][\w./-]*)|(?P<space>\s+)"
)
_SEPARATORS: Final = ":;,|\"'`→>#=•!?~≈"  # what may be before a sum; after anything else a stretch is not one
_BEHIND: Final = re.compile(r"\s?(?P<share>[%¢])|(?P<unread>[eE^]\d|\s?[×x*·]\s?10\b|\s?[-–+×*/x]\s?[\d$])")
_SCALES: Final = {"k": Decimal(10) ** 3, "M": Decimal(10) ** 6, "B": Decimal(10) ** 9, "T": Decimal(10) ** 12}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sum:
    """An expression, its value, the result printed behind it, and the dollar amounts that it multiplies."""

    expression: str
    sign: str  # = or ≈
    value: Decimal
    result: Amount
    prices: tuple[str, ...]


def find_sums(line: str) -> Iterator[Sum]:
    """Every sum of a line that has at least one operation before and a number behind its equals sign."""
    start = 0
    for match in re.finditer(r"(?<![=<>!:+*/-])[=≈](?!=)", line):
        left = line[max(start, match.start() - LONGEST_SUM) : match.start()]
        start = match.end()
        result = _result(line[match.end() : match.end() + LONGEST_RESULT])
        tokens = _expression_tokens(left) if result is not None else []
        value = _Evaluation(tokens).value()
        if result is None or value is None:
            continue
        prices = tuple(token[0].strip() for token in tokens if token.lastgroup == "number" and "$" in token[0])
        if not prices and not result.is_price:
            has_unit = bool(result.unit) or any(token.lastgroup == "word" for token in tokens)
            value = _in_unit_of(result, value, has_unit=has_unit)
        if value is not None:
            text = left[tokens[0].start() :].strip()
            yield Sum(expression=text, sign=match[0], value=value, result=result, prices=prices)


def _result(behind: str) -> Amount | None:
    """The one number behind an equals sign; None where there is none, a range, or the start of another sum."""
    if not re.match(r"\s*(?:~|about)?\s*\$?\s?\d", behind):
        return None
    result = next(find_amounts(behind), None)
    if result is None or result.is_range or result.high > LARGEST:
        return None
    rest = _BEHIND.match(behind[result.end :])
    if rest is None:
        return result
    return result.scaled(0.01) if rest["share"] else None


def _in_unit_of(result: Amount, value: Decimal, *, has_unit: bool) -> Decimal | None:
    """A value without a price, in the unit of its result: bytes may be printed as GB. None where no prefix fits."""
    printed = Decimal(str(result.low))
    for power in sorted(range(-5, 6), key=abs):
        scaled = value * Decimal(1000) ** power
        if abs(scaled - printed) <= SAME_UNIT_TOLERANCE * abs(scaled):
            return scaled
    return None if has_unit else value


def _expression_tokens(left: str) -> list[re.Match[str]]:
    """The tokens of the longest stretch before the equals sign that may be an expression; words before it are cut."""
    tokens: list[re.Match[str]] = []
    position, broken = 0, False
    while position < len(left):
        match = _TOKEN.match(left, position)
        if match is None:
            tokens, position, broken = [], position + 1, left[position] not in _SEPARATORS
            continue
        if match.lastgroup != "space" and not broken:
            tokens.append(match)
        position = match.end()
    first = next((i for i, token in enumerate(tokens) if token.lastgroup != "word"), len(tokens))
    return tokens[first:] if first < len(tokens) and tokens[first].lastgroup in ("number", "open") else []


class _Evaluation:
    """Recursive descent over tokens; `value` is None where they are no expression with an operation."""

    def __init__(self, tokens: list[re.Match[str]]) -> None:
        self.tokens, self.position, self.operations = tokens, 0, 0

    def value(self) -> Decimal | None:
        if not self.tokens:
            return None
        try:
            found = self._sum()
        except (ValueError, InvalidOperation, DivisionByZero, RecursionError):
            return None
        complete = self.position == len(self.tokens)
        return found if complete and self.operations and abs(found) <= LARGEST else None

    def _sum(self) -> Decimal:
        total = self._product()
        while (sign := self._operator("+", "-", "–", "−")) is not None:
            other = self._product()
            total = total + other if sign == "+" else total - other
        return total

    def _product(self) -> Decimal:
        total = self._factor()
        while (sign := self._operator("×", "·", "*", "x", "X", "/", "÷")) is not None:
            other = self._factor()
            total = total / other if sign in "/÷" else total * other
        return total

    def _factor(self) -> Decimal:
        if self.position >= len(self.tokens):
            raise ValueError("an operator without a number behind it")
        token = self.tokens[self.position]
        self.position += 1
        if token.lastgroup == "open":
            found = self._sum()
            if self.position >= len(self.tokens) or self.tokens[self.position].lastgroup != "close":
                raise ValueError("a bracket that is not closed")
            self.position += 1
        elif token.lastgroup == "number":
            found = _number(token[0])
        else:
            raise ValueError(f"'{token[0]}' where a number should be")
        while self.position < len(self.tokens) and self.tokens[self.position].lastgroup == "word":
            self.position += 1  # a unit: «8 hours/day»
        return found

    def _operator(self, *signs: str) -> str | None:
        if self.position >= len(self.tokens):
            return None
        token = self.tokens[self.position]
        if token.lastgroup != "operator" or token[0] not in signs:
            return None
        self.position += 1
        self.operations += 1
        return token[0]


def _number(text: str) -> Decimal:
    match = re.search(NUMBER, text)
    assert match is not None
    value = Decimal(match[0].replace(",", ""))
    rest = text[match.end() :].strip()
    if rest.endswith("%"):
        return value / 100
    return value * _SCALES.get(rest[:1], _SCALES.get(rest[:1].upper(), Decimal(1))) if rest else value


ROUND_NUMBER_TOLERANCE: Final = Decimal("0.02")  # how far rounding to tens, hundreds, ... may go
EXACT_DIGITS: Final = Context(prec=12)
LARGE_FACTOR: Final = 10
SMALL_ERROR: Final = Decimal("0.01")  # below that it looks like rounding, and is not
ROUGH_TOLERANCE: Final = Decimal("0.05")  # a result printed with «~» or «≈»


def answer_sum(claim: ArithmeticClaim) -> ClaimAnswer:
    """ok (exact, rounded, cut off, or rough where it says so) or wrong, however small the difference."""
    printed, step = Decimal(str(claim.result.low)), Decimal(str(claim.result.step)).normalize()
    how = _how(claim, printed, step)
    return ClaimAnswer(
        verdict="ok" if how else "wrong",
        right=claim.right or _shown(claim, step),
        source="arithmetic",
        hint=how or _off(claim.value, printed),
    )


def _shown(claim: ArithmeticClaim, step: Decimal) -> str:
    """The value to the digits printed, and in full where that is not the same."""
    unit = "$" if claim.result.is_price else ""
    right = (claim.value / step).quantize(Decimal(1), ROUND_HALF_UP) * step
    exact = f"{EXACT_DIGITS.plus(claim.value).normalize():,f}"
    return f"{unit}{right:,f}" + ("" if right == claim.value else f" (exactly {unit}{exact})")


def _how(claim: ArithmeticClaim, printed: Decimal, step: Decimal) -> str:
    """In what sense the printed result is right; "" where in none."""
    if printed == claim.value:
        return "exact"
    difference = abs(printed - claim.value)
    if difference <= step / 2:
        return f"rounded to {step:f}"
    if (claim.value / step).quantize(Decimal(1), ROUND_FLOOR) * step == printed:
        return f"cut off at {step:f}"
    place = _last_digit(printed, step)
    if difference <= place / 2 and difference <= ROUND_NUMBER_TOLERANCE * abs(claim.value):
        return f"rounded to {place:,f}"
    rough = claim.result.approximate or "≈" in claim.claimed
    if rough and abs(printed - claim.value) <= ROUGH_TOLERANCE * abs(claim.value):
        return "roughly"
    return ""


def _last_digit(printed: Decimal, step: Decimal) -> Decimal:
    """The place of the last digit that is not a zero: 100 for 1,600; it may have been rounded to that."""
    place = step
    while printed and printed % (place * 10) == 0:
        place *= 10
    return place


def _off(value: Decimal, printed: Decimal) -> str:
    difference = printed - value
    if not value:
        return "not the sum"
    times = printed / value
    if times >= LARGE_FACTOR:
        return f"not the sum: {times:,.0f} times too high"
    share = abs(difference / value)
    what = "not the sum rounded to the digits printed" if share < SMALL_ERROR else "not the sum"
    return f"{what}: off by {difference:+,.2f} ({share * 100:.2g} %)"
