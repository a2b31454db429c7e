"""`tonnage catalog show NAME`: everything known about one machine or device, with sources and prices."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import Any, Final

from tonnage.catalog import Accelerator, Cpu, Description, InstanceType, Link, Offer
from tonnage.reports.blocks import Block, Bullets, Column, Heading, Page, Pairs, Table
from tonnage.reports.plain import plain_day, plain_price
from tonnage.reports.rendering import Report
from tonnage.reports.wording import render_date, render_price, render_purchase, short

OFFER_COLUMNS: Final = (
    "provider", "instance_type", "region", "purchase", "usd_per_instance_hour", "read_on", "source", "notes",
)  # fmt: skip
_UNITS: Final = {
    "_gib": "GiB", "_gb_per_s": "GB/s", "_gbit_per_s": "Gbit/s", "_tflops": "TFLOPS", "_tops": "TOPS",
    "_gb": "GB", "_us": "µs", "_w": "W",
}  # fmt: skip


def show_report(found: Description) -> Report:
    """The report of a description. CSV has its prices."""
    return Report(
        page=lambda: _page(found),
        document=found.as_dict,
        columns=OFFER_COLUMNS,
        rows=lambda: [_offer_row(offer) for offer in found.offers],
    )


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
    """Every figure with its unit; what is unknown is said to be."""
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
    columns = (
        *((Column(title="provider"), Column(title="instance type", wraps=True)) if several else ()),
        Column(title="region"),
        Column(title="bought"),
        Column(title="an hour", align="right"),
        Column(title="read", folds=1, fold_text="read {}"),
        Column(title="source", folds=2, wraps=True),
        Column(title="notes", folds=3, wraps=True),
    )
    rows = tuple(
        (*((offer.provider, offer.instance_type) if several else ()), offer.region or "any",
         render_purchase(offer.purchase), render_price(float(offer.usd_per_instance_hour)),
         render_date(offer.read_on), offer.source.text, offer.notes)
        for offer in sorted(found.offers, key=lambda one: (one.usd_per_instance_hour, one.provider, one.region))
    )  # fmt: skip
    yield Table(columns=columns, rows=rows)


def _sources(found: Description) -> Iterator[str]:
    for source in found.sources:
        when = f", read {source.read_on}" if source.read_on else ", no date"
        yield f"{source.text}{when}"


def _offer_row(offer: Offer) -> list[Any]:
    return [
        offer.provider,
        offer.instance_type,
        offer.region,
        offer.purchase,
        plain_price(offer.usd_per_instance_hour),
        plain_day(offer.read_on),
        offer.source.text,
        offer.notes,
    ]
