"""Durations and instants: what people write, and what is refused."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tonnage.workload.durations import (
    SECONDS_PER_UNIT,
    parse_deadline,
    parse_duration_s,
    parse_instant,
    render_duration,
)

GOOD = [
    ("500ms", 0.5),
    ("90s", 90),
    ("30m", 1800),
    ("30 min", 1800),
    ("24h", 86_400),
    ("1h30m", 5400),
    ("1h 30m", 5400),
    ("1.5h", 5400),
    ("7d", 604_800),
    ("2W", 1_209_600),
    (" 0s ", 0),
]
BAD = ["", "24", "h", "24 hours", "-3h", "1h30", "3h!", "1e3s", "P1D", "٣h", "1h,30m", "600w", "9" * 40 + "h"]


@pytest.mark.parametrize(("text", "seconds"), GOOD)
def test_durations_as_people_write_them(text: str, seconds: float) -> None:
    """A number with a unit, or several, is that many seconds."""
    assert parse_duration_s(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", BAD)
def test_anything_else_is_refused(text: str) -> None:
    """No unit, no number, a sign or more than ten years is a ValueError that says what was expected."""
    with pytest.raises(ValueError, match="expected a duration"):
        parse_duration_s(text)


@given(st.integers(1, 1000), st.sampled_from(sorted(SECONDS_PER_UNIT)))
def test_every_unit_reads_back(amount: int, unit: str) -> None:
    """What `render_duration` writes reads back to the same seconds, to its four digits."""
    seconds = amount * SECONDS_PER_UNIT[unit]
    assume(seconds <= 3e8)
    assert parse_duration_s(render_duration(seconds)) == pytest.approx(seconds, rel=1e-3)


@given(st.text(max_size=30))
def test_no_text_brings_another_exception(text: str) -> None:
    """Any text is a deadline or a ValueError."""
    try:
        deadline = parse_deadline(text)
    except ValueError as error:
        assert str(error).startswith("expected ")  # noqa: PT017
    else:
        assert (deadline.after_s is None) != (deadline.at is None)


def test_instants_carry_their_zone() -> None:
    """Z, an offset and a date alone are instants; a time without a zone is refused."""
    assert parse_instant("2026-12-01T00:00Z") == datetime(2026, 12, 1, tzinfo=UTC)
    assert parse_instant("2026-12-01T02:00+02:00") == datetime(2026, 12, 1, tzinfo=UTC)
    assert parse_instant("2026-12-01") == datetime(2026, 12, 1, tzinfo=UTC)
    with pytest.raises(ValueError, match="names no time zone"):
        parse_instant("2026-12-01T00:00")
    with pytest.raises(ValueError, match="expected an instant"):
        parse_instant("2026-13-01")


def test_a_deadline_counts_from_the_clock_given() -> None:
    """A duration does not depend on the clock, an instant does, and may lie behind it."""
    noon = datetime(2026, 11, 20, 12, tzinfo=UTC)
    assert parse_deadline("2d").seconds_from(noon) == 172_800
    assert parse_deadline("2026-11-20T13:00Z").seconds_from(noon) == 3600
    assert parse_deadline("2026-11-20").seconds_from(noon) == -43_200
