"""Pages of the catalog: searched by a form, its snapshots, and what a machine cost in each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tonnage.web.asked import AskedField, PageRequest, Shown

MOST_ROWS: Final = 1000
HISTORY: Final = ("machine", "provider", "region", "purchase")
KINDS: Final = ("gpus", "instances", "offers", "snapshots", "history")


def catalog(what: str) -> Callable[[PageRequest], Shown]:
    """The page of accelerators, machines or offers."""

    def answer(asked: PageRequest) -> Shown:
        from tonnage.api.catalogs import load_catalog
        from tonnage.catalog import filter_accelerators, filter_instance_types, filter_offers, parse_gpu_filter
        from tonnage.reports.catalog_lists import gpus_report, instances_report, offers_report

        asked.refuse_others("gpu", "provider")
        known = load_catalog(settings=asked.settings)
        text, provider = asked.query.get("gpu"), asked.query.get("provider")
        gpu = None if not text else parse_gpu_filter(text)
        providers = (provider,) if provider else ()
        fields = [AskedField("gpu", "GPU, as H100:8 or 24GB..80GB", text or "")]
        if what == "gpus":
            report = gpus_report(known, filter_accelerators(known, gpu=gpu), top=MOST_ROWS)
        else:
            fields.append(AskedField("provider", "Provider", provider or ""))
            if what == "instances":
                found = filter_instance_types(known, gpu=gpu, providers=providers)
                report = instances_report(known, found, top=MOST_ROWS)
            else:
                report = offers_report(known, filter_offers(known, gpu=gpu, providers=providers), top=MOST_ROWS)
        return Shown(report=report, fields=tuple(fields), links=_others(what))

    return answer


def snapshots(asked: PageRequest) -> Shown:
    """The snapshots that there are."""
    from tonnage import api

    asked.refuse_others()
    return Shown(report=api.list_snapshots(settings=asked.settings).report(), links=_others("snapshots"))


def history(asked: PageRequest) -> Shown:
    """What a machine cost in each snapshot; without `machine` the form alone."""
    from tonnage import api
    from tonnage.reports.price_history import history_report

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
