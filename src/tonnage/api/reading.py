"""Texts of the command line as values of options: durations and lists. Each InputError names the flag."""

from __future__ import annotations

from collections.abc import Sequence

from tonnage.errors import InputError


def read_seconds(flag: str, text: str) -> float:
    """Seconds of a duration such as `90s` or `5m`; `0` is none.

    >>> read_seconds("--warm-up", "5m")
    300.0
    """
    from tonnage.workload.durations import parse_duration_s

    if text.strip() in ("0", "0s"):
        return 0.0
    try:
        return parse_duration_s(text)
    except ValueError as error:
        raise InputError(f"{flag}: found '{text}', {error}") from None


def read_day(flag: str, text: str) -> tuple[float, ...]:
    """Numbers with commas between.

    >>> read_day("--hourly", "1, 2.5")
    (1.0, 2.5)
    """
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"{flag}: found '{text}', expected 24 numbers", hint="with commas between") from None


def read_pairs(flag: str, texts: Sequence[str], *, alone: bool = False) -> dict[str, str]:
    """`NAME=OTHER` texts as a mapping; `alone`: a name without another stands for itself.

    >>> read_pairs("--keep", ["id", "text=body"], alone=True)
    {'id': 'id', 'text': 'body'}
    """
    found = {}
    for text in texts:
        name, sign, other = text.partition("=")
        if not name or (sign and not other) or (not sign and not alone):
            raise InputError(f"{flag} {text}: two names with = between are expected", hint=f"{flag} text=body")
        found[name] = other or name
    return found


def read_quantum(flag: str, text: str) -> float:
    """Seconds of a duration above zero.

    >>> read_quantum("--billing-quantum", "1h")
    3600.0
    """
    from tonnage.workload.durations import parse_duration_s

    try:
        seconds = parse_duration_s(text)
    except ValueError as error:
        raise InputError(f"{flag} {text}: {error}", hint="such as 1s, 60s or 1h") from error
    if seconds <= 0:
        raise InputError(f"{flag} {text}: expected more than nothing", hint="such as 1s, 60s or 1h")
    return seconds


def read_range(flag: str, text: str) -> tuple[int, int]:
    """Two numbers with two dots between, or one for both ends.

    >>> read_range("--replicas", "1..8"), read_range("--replicas", "3")
    ((1, 8), (3, 3))
    """
    low, dots, high = text.partition("..")
    try:
        return int(low), int(high if dots else low)
    except ValueError:
        raise InputError(f"{flag}: found '{text}'", hint=f"write it as {flag} 1..8") from None


def read_parted(flag: str, texts: list[str], *, expected: str, example: str) -> tuple[tuple[str, str], ...]:
    """`TEXT=NAME` each, parted at the last `=`; InputError names the flag."""
    found = []
    for one in texts:
        text, mark, name = one.rpartition("=")
        if not mark or not text or not name:
            raise InputError(f"{flag}: found '{one}', expected {expected}", hint=f"{flag} {example}")
        found.append((text, name))
    return tuple(found)
