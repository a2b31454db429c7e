"""Lists of the catalog for readers that have no flags: the page and agents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tonnage.errors import InputError, did_you_mean, nearest

if TYPE_CHECKING:
    from tonnage.reports.rendering import Report
    from tonnage.settings import Settings

LISTS: Final = ("gpus", "instances", "offers")
MOST_ROWS: Final = 1000  # on a page


def catalog_list(what: str, *, gpu: str | None, provider: str | None, settings: Settings) -> Report:
    """Accelerators, machines or offers, those of a GPU filter and a provider alone.

    Raises InputError for a list that is none and what is no filter, UnknownName for a GPU or provider that is none.
    """
    from tonnage.api.catalogs import load_catalog
    from tonnage.catalog import filter_accelerators, filter_instance_types, filter_offers, parse_gpu_filter
    from tonnage.reports.catalog_lists import gpus_report, instances_report, offers_report

    if what not in LISTS:
        raise InputError(f"no list '{what[:40]}'", hint=did_you_mean(nearest(what, LISTS), ", ".join(LISTS)))
    known = load_catalog(settings=settings)
    wanted = None if gpu is None else parse_gpu_filter(gpu)
    providers = () if provider is None else (provider,)
    if what == "gpus":
        return gpus_report(known, filter_accelerators(known, gpu=wanted), top=MOST_ROWS)
    if what == "instances":
        found = filter_instance_types(known, gpu=wanted, providers=providers)
        return instances_report(known, found, top=MOST_ROWS)
    return offers_report(known, filter_offers(known, gpu=wanted, providers=providers), top=MOST_ROWS)
