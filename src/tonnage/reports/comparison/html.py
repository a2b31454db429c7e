"""A comparison as one HTML page that needs nothing else: no script, nothing fetched, light and dark, printable."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from tonnage.comparison.comparing import Comparison
from tonnage.reports.comparison.content import build_sections, subtitle
from tonnage.reports.comparison.plots import draw_svg
from tonnage.reports.comparison.sections import Section
from tonnage.reports.html import make_environment

if TYPE_CHECKING:
    from jinja2 import Template

_SCORE: Final = re.compile(r" — (?:computed, |assumed, )?([1-5](?:\.\d)?)/5(?: \[[^\]]*\])?$")


def comparison_html(comparison: Comparison) -> str:
    """The whole report, every text escaped."""
    return sections_html(comparison, build_sections(comparison))


def sections_html(comparison: Comparison, sections: tuple[Section, ...], *, contents: bool = True) -> str:
    """Some sections of it as a page, with a table of contents or without; the first is the summary."""
    return _template().render(
        title=comparison.request.title, subtitle=subtitle(comparison), sections=sections, contents=contents
    )


def score_class(cell: str) -> str:
    """The class of a cell that ends with a score, for its colour.

    >>> score_class("Clusters scale between limits — 4/5 [1]"), score_class("computed — 4.6/5"), score_class("4 of 5")
    (' s4', ' s5', '')
    """
    found = _SCORE.search(cell)
    return f" s{round(float(found[1]))}" if found else ""


@lru_cache(maxsize=1)
def _template() -> Template:
    from markupsafe import Markup

    environment = make_environment()
    environment.filters["drawing"] = lambda chart: Markup(draw_svg(chart))  # it escapes its own text
    environment.filters["score"] = score_class
    return environment.get_template("comparison.html.jinja")
