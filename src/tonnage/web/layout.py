"""A report within the page: menu, sliders, links, and what can be done; or the report alone, to be put in place."""

from __future__ import annotations

import math
from functools import lru_cache
from http import HTTPStatus
from typing import TYPE_CHECKING

from tonnage.web.asked import Resource, Shown
from tonnage.web.resources import RESOURCES

if TYPE_CHECKING:
    from jinja2 import Environment

    from tonnage.web.access import WebCaller
    from tonnage.web.whatif import Slider


def render_layout(
    shown: Shown, resource: Resource, path: str, query: str, who: WebCaller, *, fragment: bool = False
) -> str:
    """The whole page; with `fragment` what changes of it alone."""
    from markupsafe import Markup

    body = shown.html()
    if fragment:
        return body
    named = shown.links_of_names()
    twin = ("/home" if path == "/" else path) + ".json" + (f"?{query}" if query else "")
    sliders = [(one.slider, one.value, *_track(one.slider, one.value)) for one in shown.sliders]
    return _templates().get_template("layout.html.jinja").render(
        title=shown.report.page().title, body=Markup(body),
        menu=[one for one in RESOURCES if one.menu], here=resource, shown=shown, who=who,
        links=[one for one in shown.links if one[1] not in named],
        twin=twin, sliders=sliders, unweighed=[one for one in sliders if one[0].linear and not one[1]],
    )  # fmt: skip


def render_login(fault: str, issuer: str | None) -> str:
    """`issuer`: by which people may sign in too."""
    return _templates().get_template("login.html.jinja").render(fault=fault, issuer=issuer)


def render_signed_in(name: str) -> str:
    """A page that leads home by itself."""
    return _templates().get_template("signed_in.html.jinja").render(name=name)


def render_problem(status: HTTPStatus, detail: str, hint: str) -> str:
    return _templates().get_template("problem.html.jinja").render(title=status.phrase, detail=detail, hint=hint)


def _track(slider: Slider, value: float | None) -> tuple[float, float, float]:
    """Ends and place of a slider: in decades a tenth and ten times what the file says, within its bounds; where it is
    linear its bounds."""
    if slider.linear:
        return slider.least, slider.most, slider.least if value is None else value
    middle = math.sqrt(slider.least * slider.most) if value is None else min(max(value, slider.least), slider.most)
    low, high = max(slider.least, middle / 10), min(slider.most, middle * 10)
    return round(math.log10(low), 4), round(math.log10(high), 4), round(math.log10(middle), 4)


@lru_cache(maxsize=1)
def _templates() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    return Environment(
        loader=PackageLoader("tonnage.web"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
