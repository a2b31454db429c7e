"""Words for what a comparison found: why work is split or not, what a footprint lacks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from tonnage.comparison.energy import MissingFootprint
from tonnage.comparison.splitting import Split
from tonnage.reports.comparison.figures import counted
from tonnage.reports.wording import render_money

LACKS: Final = {
    "token power": "power of a token API: its vendor publishes none",
    "processor power": "power of machines without an accelerator: the catalog has none",
    "power limit": "power limit of {}: the catalog has none",
    "load": "the load of the service is not known: state carbon.power_fraction",
    "PUE": "PUE of {}: state carbon.pue",
    "grid": "grid intensity of {}: state carbon.grid_g_per_kwh",
    "work": "not all of the work is done there",
}


def missing_words(missing: Iterable[MissingFootprint]) -> str:
    """One clause each; empty where nothing is missing."""
    return "; ".join(LACKS[one.of].format(one.name) for one in missing)


def split_words(split: Split, titles: Mapping[str, str]) -> str:
    """One clause; `titles`: of the alternatives."""
    if split.ground == "no place":
        met = f" that is known to meet {split.rules}" if split.rules else ""
        return f"some work can be done by none of them{met}"
    over = f"over {counted(split.weeks, 'week')}"
    with_ = _with_words(split, titles)
    single = "" if split.least in (None, split.single) else f" than {titles[split.least]} alone, the cheapest,"
    if split.ground == "one place":
        return "there is one place for all the work: no split"
    if split.ground == "saves nothing":
        return f"no split costs less {over} than all the work in one place, {with_}"
    if split.ground == "needed":
        return "no single one may do all the work: it must be split"
    assert split.saves_usd is not None  # of both grounds that are left
    saved = f"{render_money(split.saves_usd)}{' less' + single if single else ''} {over}, {with_}"
    verb = "costs" if single else "saves"
    if split.ground == "saves too little":
        return f"the cheapest split {verb} {saved}: too little for a second platform"
    return f"{verb} {saved}"


def _with_words(split: Split, titles: Mapping[str, str]) -> str:
    if not split.people_counted:
        return "people and moving not counted"
    unknown = ", ".join(titles[name] for name in split.without_hours_of)
    return f"moving and people included, but not those of {unknown}" if unknown else "moving and people included"
