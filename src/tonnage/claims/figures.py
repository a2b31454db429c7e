"""Amounts as documents print them: `1,152GB`, `$0.35-0.95/hr`, `Up to 12.5 Gbps`, `16/32GB`, `<1B`, `70B+`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import inf
from typing import Final

from tonnage.values import dataclass

NUMBER: Final = r"\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?"
_UNIT: Final = (
    r"(?:TB|GB|MB)/s(?:ec)?|[TGM]i?B(?![A-Za-z])|[TGM]bps|[TGM]b(?:it)?/s|Gigabit|TFLOPS?|TOPS|W(?:atts?)?(?![A-Za-z])"
)
_AMOUNT: Final = re.compile(
    rf"(?P<before>~|≈|<=?|>=?|≤|≥|\bup\s+to\b|\bat\s+least\b|\babout\b|\bapprox(?:\.|imately)?)?\s*"
    rf"(?P<currency>\$|USD\s?)?(?P<low>{NUMBER})\s?(?P<low_scale>[kKMBT](?![A-Za-z0-9]))?"
    rf"(?:\s?(?:-|–|—|to)\s?(?:\$|USD\s?)?(?P<high>{NUMBER}))?"
    rf"\s?(?P<scale>[kKMBT](?![A-Za-z0-9]))?\s?(?P<unit>{_UNIT})?\s?(?P<plus>\+)?",
    re.IGNORECASE,
)
_ALTERNATIVES: Final = re.compile(rf"(?P<first>{NUMBER})\s?/\s?(?P<second>{NUMBER})\s?(?P<unit>{_UNIT})", re.IGNORECASE)
_PRODUCT: Final = re.compile(rf"(?P<count>\d+)\s*[x×*]\s*(?P<each>{NUMBER})\s*(?P<unit>[TGM]i?B)\b", re.IGNORECASE)
_SCALES: Final = {"k": 1e3, "m": 1e6, "b": 1e9, "t": 1e12}
WORDS: Final = {
    "single": 1, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "twelve": 12,
    "sixteen": 16,
}  # fmt: skip
_UNKNOWN: Final = ("", "-", "–", "—", "n/a", "na", "?", "tbd", "none", "unknown", "varies")


@dataclass(frozen=True, slots=True, kw_only=True)
class Amount:
    """A figure or a range of them. An open end is infinite, or zero.

    `step` is the place of the last printed digit: 0.001 for `$0.526`, 1 for `185`, 1e9 for `7B`.
    """

    low: float
    high: float
    step: float
    unit: str  # lower case, "" where none is printed
    is_price: bool
    approximate: bool
    up_to: bool
    text: str
    end: int  # where the amount ends in the text it was read from

    @property
    def is_range(self) -> bool:
        return self.low != self.high

    def covers(self, figure: float, *, tolerance_fraction: float = 0.0) -> bool:
        """Whether `figure` lies in the range, widened by what rounding and `tolerance_fraction` allow."""
        slack = max(self.step / 2, tolerance_fraction * abs(figure)) * (1 + 1e-9)
        return self.low - slack <= figure <= self.high + slack

    def scaled(self, factor: float) -> Amount:
        """The same amount in another unit."""
        return Amount(
            low=self.low * factor, high=self.high * factor, step=self.step * factor, unit=self.unit,
            is_price=self.is_price, approximate=self.approximate, up_to=self.up_to, text=self.text, end=self.end,
        )  # fmt: skip


def parse_number(text: str) -> float:
    """A printed number; commas group thousands.

    >>> parse_number("1,152")
    1152.0
    """
    return float(text.replace(",", ""))


def is_blank(cell: str) -> bool:
    """Whether a cell says nothing: empty, a dash, `N/A`."""
    return cell.strip().casefold() in _UNKNOWN


def parse_amount(text: str) -> Amount | None:
    """The first amount of a text; None where it has none.

    >>> amount = parse_amount("$0.35-0.95/hr")
    >>> amount.low, amount.high, amount.step
    (0.35, 0.95, 0.01)
    >>> parse_amount("70B+").low
    70000000000.0
    """
    return next(find_amounts(text), None)


def find_amounts(text: str) -> Iterator[Amount]:
    """Every amount of a text, from left to right."""
    for match in _AMOUNT.finditer(text):
        yield _amount(match)


def parse_alternatives(cell: str) -> tuple[Amount, ...]:
    """The amounts of a cell that names several versions (`16/32GB`), a product (`8 x 80 GB`) or one amount.

    >>> [amount.low for amount in parse_alternatives("16/32GB")]
    [16.0, 32.0]
    """
    if (both := _ALTERNATIVES.search(cell)) is not None:
        parts = (parse_amount(f"{both[name]}{both['unit']}") for name in ("first", "second"))
        return tuple(part for part in parts if part is not None)
    if (product := _PRODUCT.search(cell)) is not None:
        each = parse_amount(f"{product['each']}{product['unit']}")
        return () if each is None else (each.scaled(int(product["count"])),)
    one = parse_amount(cell)
    return () if one is None else (one,)


def _amount(match: re.Match[str]) -> Amount:
    scale = _scale(match["scale"] or match["low_scale"])
    low = parse_number(match["low"]) * _scale(match["low_scale"] or match["scale"])
    high = low if match["high"] is None else parse_number(match["high"]) * scale
    before = " ".join((match["before"] or "").casefold().split())
    step = 10.0 ** -max(_decimals(match["low"]), _decimals(match["high"] or "")) * scale
    if match["plus"] or before in (">", ">=", "≥", "at least"):
        high = inf
    if before in ("<", "<=", "≤"):
        low = 0.0
    return Amount(
        low=min(low, high),
        high=max(low, high),
        step=step,
        unit=(match["unit"] or "").casefold(),
        is_price=match["currency"] is not None,
        approximate=before in ("~", "≈", "about") or before.startswith("approx"),
        up_to=before == "up to",
        text=match[0].strip(),
        end=match.end(),
    )


def _scale(letter: str | None) -> float:
    return _SCALES[letter.casefold()] if letter else 1.0


def _decimals(number: str) -> int:
    return len(number.partition(".")[2])
