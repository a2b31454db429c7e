"""Is a sum so? By the digits printed: a result is right when it is the value rounded to them."""

from __future__ import annotations

from decimal import ROUND_FLOOR, ROUND_HALF_UP, Context, Decimal
from typing import Final

from tonnage.claims.findings import ClaimAnswer
from tonnage.claims.statements import ArithmeticClaim

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
