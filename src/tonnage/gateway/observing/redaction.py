"""Secrets and personal data taken out of a text, each replaced by its kind.

Patterns know shapes, not meanings: what has no shape of its own (names, addresses of houses) stays.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

_ESCAPED: Final = re.compile(r"\\u00([2-7][0-9a-fA-F])")
_SHAPES: Final[tuple[tuple[str, str], ...]] = (
    ("private key", r"-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----.*?(?:-----END [A-Z ]{0,30}PRIVATE KEY-----|\Z)"),
    ("data", r"data:[a-zA-Z0-9.+/-]{1,100};base64,[A-Za-z0-9+/=_-]*"),
    ("token", r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*)?"),
    ("key", r"\b(?:[spr]k|tn|hf|gh[pousr]|glpat|github_pat|dapi|npm|pypi|xox[abeprs])[-_][A-Za-z0-9_-]{16,}"),
    ("key", r"\bdapi[0-9a-f]{32}\b"),
    ("key", r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"),
    ("key", r"\bAIza[A-Za-z0-9_-]{30,}"),
    ("key", r"\bya29\.[A-Za-z0-9_-]{20,}"),
    ("e-mail", r"(?<![A-Za-z0-9._%+-])[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63}){1,8}"),
    ("phone", r"(?<![\w+])\+\d{1,3}(?:[ .()/-]{0,2}\d){7,12}(?!\d)"),
    ("social security number", r"(?<![\d-])\d{3}-\d{2}-\d{4}(?![\d-])"),
)  # fmt: skip
_NAMED: Final = re.compile(
    r"""(?i)\b(api[_-]?key|access[_-]?key|secret(?:[_-]\w{1,20})?|passw(?:or)?d|passphrase|auth[_-]?token|token"""
    r"""|authorization|bearer)(\\?["']?\s{0,3}(?:[:=]|\bis\b)?\s{0,3}\\?["']?)"""
    r"""(?=[^\s"',;\\{}\[\]]{0,200}[0-9])([^\s"',;\\{}\[\]]{8,})"""
)
_CARD: Final = re.compile(r"(?<![\w.])\d(?:[ -]?\d){12,18}(?!\w|\.\d)")
_IBAN: Final = re.compile(r"\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?\b")
_COMPILED: Final = tuple((re.compile(shape, re.DOTALL), kind) for kind, shape in _SHAPES)
KINDS: Final = frozenset((*(kind for kind, _ in _SHAPES), "secret", "account", "card"))
SECRET_OF_NAME: Final = 3  # the group of `_NAMED` that is the secret


def redacted(text: str) -> str:
    """The text without what looks like a key, a token, an e-mail address, a telephone, card or account number.

    Letters of ASCII that JSON wrote in escapes are read first, so that they cannot hide one.
    """
    text = without_escapes(text)
    pieces, at = [], 0
    for begin, end, kind in found_shapes(text):
        if begin >= at:
            pieces += [text[at:begin], f"[{kind}]"]
        at = max(at, end)
    return "".join([*pieces, text[at:]])


def found_shapes(text: str, kinds: Collection[str] = KINDS) -> list[tuple[int, int, str]]:
    """(begin, end, kind) of all that has such a shape, in their order; some may overlap. `kinds`: those looked for."""
    found = [(*one.span(), kind) for shape, kind in _COMPILED if kind in kinds for one in shape.finditer(text)]
    if "secret" in kinds:
        found += [(*one.span(SECRET_OF_NAME), "secret") for one in _NAMED.finditer(text)]
    if "account" in kinds:
        found += [(*one.span(), "account") for one in _IBAN.finditer(text) if _is_iban(one[0])]
    if "card" in kinds:
        found += [(*one.span(), "card") for one in _CARD.finditer(text) if _is_card(one[0])]
    return sorted(found, key=lambda one: (one[0], -one[1]))


def without_escapes(text: str) -> str:
    """Letters of ASCII that JSON wrote in escapes, as themselves."""
    return _ESCAPED.sub(_unescaped, text) if "\\u00" in text else text


def _unescaped(found: re.Match[str]) -> str:
    letter = chr(int(found[1], 16))
    return found[0] if letter in '"\\' else letter


def _is_card(text: str) -> bool:
    """Luhn's sum. Source: ISO/IEC 7812-1, annex B."""
    digits = [int(one) for one in text if one.isdigit()]
    doubled = (one * 2 - 9 * (one > 4) for one in digits[-2::-2])
    return len(set(digits)) > 1 and (sum(digits[-1::-2]) + sum(doubled)) % 10 == 0


def _is_iban(text: str) -> bool:
    """The remainder by 97. Source: ISO 13616-1."""
    plain = text.replace(" ", "")
    moved = plain[4:] + plain[:4]
    return int("".join(str(int(one, 36)) for one in moved)) % 97 == 1
