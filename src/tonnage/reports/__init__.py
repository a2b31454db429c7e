"""A result -> text: table, JSON, CSV, Markdown, HTML. Nothing here computes; rounding happens here alone.

Public: the `render_` functions of each result, `Format` and `Look`. Names load on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tonnage.reports.explain import render_explain
    from tonnage.reports.plan import render_plan
    from tonnage.reports.rendering import FORMATS, Format, Look, Report, render_report
    from tonnage.reports.size import render_size

_HOME: Final = {
    "FORMATS": "rendering",
    "Format": "rendering",
    "Look": "rendering",
    "Report": "rendering",
    "render_explain": "explain",
    "render_plan": "plan",
    "render_report": "rendering",
    "render_size": "size",
}

__all__ = [
    "FORMATS",
    "Format",
    "Look",
    "Report",
    "render_explain",
    "render_plan",
    "render_report",
    "render_size",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
