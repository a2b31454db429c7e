"""Pages of the catalog: searched by a form, its snapshots, and what a machine cost in each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tonnage import api
from tonnage.api.catalog_lists import catalog_list
from tonnage.reports.price_history import history_report
from tonnage.web.asked import AskedField, PageRequest, Shown

HISTORY: Final = ("machine", "provider", "region", "purchase")
KINDS: Final = ("gpus", "instances", "offers", "snapshots", "history")


def catalog(what: str) -> Callable[[PageRequest], Shown]:
    """The page of accelerators, machines or offers."""

    def answer(asked: PageRequest) -> Shown:
        asked.refuse_others("gpu", "provider")
        gpu, provider = asked.query.get("gpu"), asked.query.get("provider")
        fields = [AskedField("gpu", "GPU, as H100:8 or 24GB..80GB", gpu or "")]
        if what != "gpus":
            fields.append(AskedField("provider", "Provider", provider or ""))
        report = catalog_list(what, gpu=gpu or None, provider=provider or None, settings=asked.settings)
        return Shown(report=report, fields=tuple(fields), links=_others(what))

    return answer


def snapshots(asked: PageRequest) -> Shown:
    """The snapshots that there are."""
    asked.refuse_others()
    return Shown(report=api.list_snapshots(settings=asked.settings).report(), links=_others("snapshots"))


def history(asked: PageRequest) -> Shown:
    """What a machine cost in each snapshot; without `machine` the form alone."""
    asked.refuse_others(*HISTORY)
    machine, *narrowed = (asked.query.get(name, "").strip() for name in HISTORY)
    fields = tuple(
        AskedField(name, label, asked.query.get(name, ""))
        for name, label in zip(HISTORY, ("Machine", "Provider", "Region", "Bought as"), strict=True)
    )
    if not machine:
        return Shown(report=history_report("", ()), fields=fields, links=_others("history"))
    providers, regions, purchases = ((one,) if one else () for one in narrowed)
    answer = api.price_history(
        machine, providers=providers, regions=regions, purchases=purchases, settings=asked.settings
    )
    return Shown(report=answer.report(), fields=fields, links=_others("history"))


def _others(this: str) -> tuple[tuple[str, str], ...]:
    return tuple((f"/catalog/{one}", one) for one in KINDS if one != this)
