"""`tonnage catalog show NAME`: everything known about one machine or device, with sources and prices."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import Any, Final

from tonnage.catalog import Accelerator, Cpu, Description, InstanceType, Link, Offer
from tonnage.reports.blocks import Block, Bullets, Heading, Page, Pairs
from tonnage.reports.listing import Field, field_table, fields_report
from tonnage.reports.plain import plain_price
from tonnage.reports.rendering import Report
from tonnage.reports.wording import render_date, render_price, render_purchase, short

_UNITS: Final = {
    "_gib": "GiB", "_gb_per_s": "GB/s", "_gbit_per_s": "Gbit/s", "_tflops": "TFLOPS", "_tops": "TOPS",
    "_gb": "GB", "_us": "µs", "_w": "W",
}  # fmt: skip


def show_report(found: Description) -> Report:
    """The report of a description. CSV has its prices."""
    return fields_report(lambda: _page(found), found.as_dict, _OFFER, found.offers)


def _page(found: Description) -> Page:
    blocks: list[Block] = []
    if found.instance is not None:
        blocks += [Heading(text="Machine"), Pairs(rows=tuple(_pairs(found.instance)))]
    for title, part in (
        ("Accelerator", found.accelerator),
        ("Processor", found.cpu),
        ("Link between its devices", found.scale_up),
        ("Link between machines", found.scale_out),
    ):
        if part is not None:
            blocks += [Heading(text=title), Pairs(rows=tuple(_pairs(part)))]
    blocks += _price_blocks(found)
    blocks += [Heading(text="Sources"), Bullets(items=tuple(_sources(found)))]
    return Page(title=_title(found), blocks=tuple(blocks))


def _title(found: Description) -> str:
    if found.instance is not None:
        return f"{found.instance.name} of {found.instance.provider}, catalog of {found.catalog_name}"
    name = found.accelerator.name if found.accelerator else ""
    return f"{name}, in {len(found.machines)} instance types, catalog of {found.catalog_name}"


def _pairs(part: InstanceType | Accelerator | Cpu | Link) -> Iterator[tuple[str, str]]:
    """Every figure with its unit; what is unknown is shown as unknown."""
    for field in fields(part):
        value = getattr(part, field.name)
        if field.name == "source" or value == "" or value == ():
            continue
        yield _label(field.name, value)


def _label(name: str, value: Any) -> tuple[str, str]:
    for suffix, unit in _UNITS.items():
        if name.endswith(suffix):
            text = "not published" if value is None else f"{short(value, 5)} {unit}"
            return name.removesuffix(suffix).replace("_", " "), text
    label = name.replace("_", " ")
    if value is None:
        return label, "not published" if name != "accelerator" else "none"
    if isinstance(value, tuple):
        return label, ", ".join(str(part) for part in value)
    return label, short(value, 5) if isinstance(value, int | float) else str(value)


def _price_blocks(found: Description) -> Iterator[Block]:
    yield Heading(text=f"Prices ({len(found.offers)})")
    if not found.offers:
        yield Bullets(items=("no price is in the catalog",))
        return
    several = found.instance is None
    order = sorted(found.offers, key=lambda one: (one.usd_per_instance_hour, one.provider, one.region))
    yield field_table(_OFFER if several else _OFFER[2:], order)


def _sources(found: Description) -> Iterator[str]:
    for source in found.sources:
        when = f", read {source.read_on}" if source.read_on else ", no date"
        yield f"{source.text}{when}"


_OFFER: Final[tuple[Field[Offer], ...]] = (
    Field("provider", lambda offer: offer.provider, title="provider"),
    Field("instance_type", lambda offer: offer.instance_type, title="instance type", wraps=True),
    Field("region", lambda offer: offer.region, title="region", show=lambda region: region or "any"),
    Field("purchase", lambda offer: offer.purchase, title="bought", show=render_purchase),
    Field("usd_per_instance_hour", lambda offer: float(offer.usd_per_instance_hour), json=plain_price,
          title="an hour", show=render_price, right=True),
    Field("read_on", lambda offer: offer.read_on, title="read", show=render_date, folds=1, fold_text="read {}"),
    Field("source", lambda offer: offer.source.text, title="source", show=str, folds=2, wraps=True),
    Field("notes", lambda offer: offer.notes, title="notes", show=str, folds=3, wraps=True),
)  # fmt: skip
