"""A page as HTML: a fragment for notebooks, or a whole page that needs nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING

from tonnage.reports.blocks import Page, Table
from tonnage.reports.visible import visible_page

if TYPE_CHECKING:
    from jinja2 import Environment, Template


def render_html(page: Page, *, fragment: bool = False, links: Mapping[str, str] = MappingProxyType({})) -> str:
    """The page as HTML, all text escaped, styles inside, no script and nothing fetched. `links`: of names in the first
    column of a table, to where each leads."""
    return _template().render(page=visible_page(page), fragment=fragment, links=links)


def listed_names(page: Page) -> frozenset[str]:
    """What the first columns of a page's tables name."""
    tables = (block for block in page.blocks if isinstance(block, Table))
    return frozenset(row[0] for table in tables for row in table.rows if row)


def make_environment() -> Environment:
    """The templates of this package: all text escaped, what is not given an error, `kind` names a block's class."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("tonnage.reports"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.globals["kind"] = lambda block: type(block).__name__
    return environment


@lru_cache(maxsize=1)
def _template() -> Template:
    from markupsafe import Markup

    from tonnage.reports.line_chart import render_svg

    environment = make_environment()
    environment.globals["svg"] = lambda chart: Markup(render_svg(chart))
    return environment.get_template("page.html.jinja")
