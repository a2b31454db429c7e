"""Durations (`24h`, `1h30m`, `500ms`) and instants (`2026-12-01T00:00Z`) as people write them."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime
from typing import Final

from tonnage.values import dataclass

SECONDS_PER_UNIT: Final = {
    "ms": 0.001,
    "s": 1.0,
    "min": 60.0,
    "m": 60.0,
    "h": 3600.0,
    "d": 86_400.0,
    "w": 604_800.0,
}
LONGEST_S: Final = 10 * 365 * 86_400.0  # ten years: beyond that a unit was mistaken
DURATION_EXPECTED: Final = "a duration with its unit: 500ms, 90s, 30m, 24h, 1h30m, 7d or 2w"
INSTANT_EXPECTED: Final = "an instant with its time zone, such as 2026-12-01T00:00Z, or a date (00:00 UTC)"

_PART: Final = re.compile(r"(\d{1,12}(?:\.\d{1,12})?)\s*(ms|s|min|m|h|d|w)", re.ASCII)
_DATE_LIKE: Final = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadline:
    """When the work must be done: so many seconds after the start, or at an instant. Exactly one is set."""

    after_s: float | None = None
    at: datetime | None = None

    def seconds_from(self, as_of: datetime) -> float:
        """Seconds from `as_of` until this deadline; negative when it has passed."""
        if self.at is not None:
            return (self.at - as_of).total_seconds()
        assert self.after_s is not None
        return self.after_s


def parse_duration_s(text: str) -> float:
    """Seconds of a duration such as `500ms`, `24h` or `1h30m`. ValueError says what was expected.

    >>> parse_duration_s("1h30m")
    5400.0
    >>> parse_duration_s("500ms")
    0.5
    """
    folded = text.strip().casefold()
    end, total_s = 0, 0.0
    for part in _PART.finditer(folded):
        if folded[end : part.start()].strip():
            break
        total_s += float(part[1]) * SECONDS_PER_UNIT[part[2]]
        end = part.end()
    if not folded or folded[end:].strip():
        raise ValueError(f"expected {DURATION_EXPECTED}")
    if total_s > LONGEST_S:
        raise ValueError("expected a duration of at most ten years")
    return total_s


def looks_like_a_date(text: str) -> bool:
    """Whether `text` starts as a calendar date does.

    >>> looks_like_a_date("2026-12-01T00:00Z"), looks_like_a_date("24h")
    (True, False)
    """
    return _DATE_LIKE.match(text.strip()) is not None


def parse_instant(text: str) -> datetime:
    """An instant with its time zone; a date alone is 00:00 UTC. ValueError says what was expected.

    >>> parse_instant("2026-12-01T00:00+02:00").isoformat()
    '2026-12-01T00:00:00+02:00'
    >>> parse_instant("2026-12-01").isoformat()
    '2026-12-01T00:00:00+00:00'
    """
    stripped = text.strip()
    try:
        if len(stripped) == len("2026-12-01"):
            day = date.fromisoformat(stripped)
            return datetime(day.year, day.month, day.day, tzinfo=UTC)
        instant = datetime.fromisoformat(stripped)
    except ValueError:
        raise ValueError(f"expected {INSTANT_EXPECTED}") from None
    if instant.tzinfo is None or instant.utcoffset() is None:
        raise ValueError(f"expected {INSTANT_EXPECTED}; this one names no time zone")
    return instant


def parse_deadline(text: str) -> Deadline:
    """A deadline: a duration from the start, or an instant.

    >>> parse_deadline("2d").after_s
    172800.0
    >>> parse_deadline("2026-12-01T00:00Z").at.year
    2026
    """
    if looks_like_a_date(text):
        return Deadline(at=parse_instant(text))
    try:
        return Deadline(after_s=parse_duration_s(text))
    except ValueError as error:
        raise ValueError(f"{error}; or {INSTANT_EXPECTED}") from None


def render_duration(seconds: float) -> str:
    """Seconds in the largest unit that reads well.

    >>> render_duration(5400), render_duration(0.5), render_duration(172800)
    ('1.5h', '500ms', '2d')
    """
    for unit in ("w", "d", "h", "m", "s", "ms"):
        size = SECONDS_PER_UNIT[unit]
        if seconds >= size:
            return f"{seconds / size:.4g}{unit}"
    return f"{seconds:g}s"
