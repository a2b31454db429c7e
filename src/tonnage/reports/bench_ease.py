"""Ease on the page of a bench: what each engine asks for before it runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tonnage.reports.blocks import Block, Column, Heading, Paragraph, Table
from tonnage.reports.plain import plain_number
from tonnage.reports.wording import UNKNOWN, short
from tonnage.side_by_side.ease import EngineEase


def ease_blocks(ease: Mapping[str, EngineEase]) -> Iterator[Block]:
    """A table of engines; nothing where none was looked at."""
    if not ease:
        return
    yield Heading(text="Ease")
    columns = (Column(title="engine"), Column(title="environment"), Column(title="set-up s", align="right"),
               Column(title="adapter lines", align="right"))  # fmt: skip
    yield Table(columns=columns, rows=tuple(
        (name, one.environment or "tonnage's", UNKNOWN if one.setup_s is None else short(one.setup_s),
         str(one.adapter_lines))
        for name, one in ease.items()
    ))  # fmt: skip
    yield Paragraph(tone="faint", text=(
        "Set-up is that of `tonnage bench setup` here: packages fetched and installed, and a trial. Lines are those on "
        "which a statement of the engine's adapter begins, with the modules that it shares with others."
    ))  # fmt: skip


def ease_document(ease: Mapping[str, EngineEase]) -> list[dict[str, Any]]:
    """The same for JSON."""
    return [
        {"engine": name, "environment": one.environment, "setup_s": plain_number(one.setup_s),
         "adapter_lines": one.adapter_lines}
        for name, one in ease.items()
    ]  # fmt: skip
