"""Control characters of names never reach a terminal, a Markdown file or a page."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tonnage.planning.plan import Plan
from tonnage.reports import render_plan

NAME = "nice\x1b[31m\x07\u202ename"


@pytest.mark.parametrize("form", ["table", "md", "html"])
def test_control_characters_are_shown_as_escapes(plan: Plan, form: str) -> None:
    """A workload named with an escape sequence and a mark of direction shows both as text."""
    text = render_plan(replace(plan, name=NAME), form)  # type: ignore[arg-type]
    assert not {"\x1b", "\x07", "\u202e"} & set(text)
    assert "x1b" in text
    assert "u202e" in text
