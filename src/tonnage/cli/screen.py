"""Reports that follow one another on a terminal, each in the place of the one before."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tonnage.api.answers import Answer


def shown_on_a_screen(answers: Iterable[Answer[Any]]) -> None:
    """Until Ctrl-C; the terminal is as it was before then."""
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    from tonnage.reports.rendering import Look, render_report

    console = Console()
    color = not console.no_color and console.color_system is not None
    with suppress(KeyboardInterrupt), Live(console=console, screen=True, auto_refresh=False) as live:
        for one in answers:
            text = render_report(one.report(), "table", Look(width=console.width, color=color))
            live.update(Text.from_ansi(text), refresh=True)
