"""The page says what the translation does."""

from __future__ import annotations

from pathlib import Path

from tonnage.gateway.dialects.conformance import CHAT, outcome, page

PAGE = Path(__file__).parents[3] / "docs" / "gateway-dialects.md"


def test_the_page_is_fresh() -> None:
    """`python -m tonnage.gateway.dialects.conformance > docs/gateway-dialects.md` writes it anew."""
    assert PAGE.read_text("utf-8") == page()


def test_outcomes_are_read_off_the_translation() -> None:
    """A field that is passed, one that is refused, one that is dropped."""
    told = {field: outcome("chat", "anthropic", CHAT[field]) for field in ("`stop`", "`n` above 1", "`seed`")}
    assert told == {"`stop`": "`stop_sequences[]`", "`n` above 1": "refused", "`seed`": "dropped"}
