"""A result -> text: table, JSON, CSV, Markdown, HTML. Nothing here computes; rounding happens here alone.

Public: the `render_` functions of each result, `Format` and `Look`. Names load on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tonnage.lazy import lazy_names

if TYPE_CHECKING:
    from tonnage.reports.explain import render_explain
    from tonnage.reports.plan import render_plan
    from tonnage.reports.rendering import FORMATS, Format, Look, Report, render_report
    from tonnage.reports.size import render_size

__all__ = ["FORMATS", "Format", "Look", "Report", "render_explain", "render_plan", "render_report", "render_size"]
__getattr__ = lazy_names(__name__)
