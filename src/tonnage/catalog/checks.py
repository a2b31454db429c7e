"""Look over a catalog for rows that a careful buyer would doubt: prices, ages, memory, ratios, duplicates."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from datetime import date
from typing import Literal

from tonnage.catalog.catalog import Catalog
from tonnage.catalog.expected_prices import ExpectedPrices
from tonnage.catalog.market import InstanceType, Offer
from tonnage.values import dataclass

Severity = Literal["error", "warning", "note"]

MEMORY_TOLERANCE = 0.03
GIB_PER_VCPU = (0.75, 32.0)
NAMED_ROWS = 5  # a group of old rows up to this size is listed row by row, a larger one as a whole


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogFinding:
    """One doubt: its subject and reason, the figure found, the figure expected, the source of the row."""

    severity: Severity
    subject: str
    message: str
    figure: str
    expected: str
    source: str


def check_catalog(catalog: Catalog, *, as_of: date, max_age_days: int = 180) -> tuple[CatalogFinding, ...]:
    """Every doubt about the instance types and offers of `catalog` on the day `as_of`, errors first.

    `error`: a row contradicts itself or another. `warning`: a price far from its like, or read more than
    `max_age_days` ago. `note`: no date, or a spot price that saves nothing.
    """
    found = [
        *_gpu_memory(catalog),
        *_duplicates(catalog.offers),
        *_dates(catalog, as_of, max_age_days),
        *_ratios(catalog.instance_types),
        *_prices(catalog),
        *_spot(catalog),
        *_set_aside(catalog),
        *_left_out(catalog),
    ]
    order = {"error": 0, "warning": 1, "note": 2}
    return tuple(sorted(found, key=lambda finding: (order[finding.severity], finding.subject, finding.message)))


def offer_subject(offer: Offer) -> str:
    """How findings and listings name an offer: provider, machine, region, purchase mode."""
    return f"{offer.provider} {offer.instance_type} {offer.region or 'every region'} {offer.purchase}"


def _gpu_memory(catalog: Catalog) -> Iterator[CatalogFinding]:
    memory = {device.name: device.memory_gib for device in catalog.accelerators}
    for instance in catalog.instance_types:
        each = memory.get(instance.accelerator) if instance.accelerator else None
        if each is None or instance.gpu_memory_gib is None:
            continue
        expected = each * instance.accelerator_count
        if abs(instance.gpu_memory_gib - expected) > MEMORY_TOLERANCE * expected:
            yield CatalogFinding(
                severity="error",
                subject=f"{instance.provider} {instance.name}",
                message=f"GPU memory disagrees with {instance.accelerator_count:g} x {instance.accelerator}",
                figure=f"{instance.gpu_memory_gib:g} GiB",
                expected=f"{expected:g} GiB",
                source=instance.source.text,
            )


def _duplicates(offers: Iterable[Offer]) -> Iterator[CatalogFinding]:
    groups: dict[tuple[str, str, str, str], list[Offer]] = defaultdict(list)
    for offer in offers:
        groups[offer.provider, offer.instance_type, offer.region, offer.purchase].append(offer)
    for group in groups.values():
        if len(group) > 1:
            yield CatalogFinding(
                severity="error",
                subject=offer_subject(group[0]),
                message="the same offer occurs in the snapshot several times",
                figure=", ".join(str(offer.usd_per_instance_hour) for offer in group) + " USD/h",
                expected="one row",
                source="; ".join(dict.fromkeys(offer.source.text for offer in group)),
            )


def _dates(catalog: Catalog, as_of: date, max_age_days: int) -> Iterator[CatalogFinding]:
    old: dict[tuple[str, date, str], list[Offer]] = defaultdict(list)
    undated: Counter[tuple[str, str]] = Counter()
    for offer in catalog.offers:
        if offer.read_on is None:
            undated[offer.provider, offer.source.text] += 1
        elif offer.read_on > as_of:
            yield _date_finding("error", offer_subject(offer), "read after the day it is looked at", offer, as_of, 0)
        elif (as_of - offer.read_on).days > max_age_days:
            old[offer.provider, offer.read_on, offer.source.text].append(offer)
    for (provider, _, _), group in old.items():
        if len(group) <= NAMED_ROWS:
            for offer in group:
                yield _date_finding("warning", offer_subject(offer), "stale price", offer, as_of, max_age_days)
        else:
            subject = f"{provider}, {len(group)} offers"
            yield _date_finding("warning", subject, "stale prices", group[0], as_of, max_age_days)
    for (provider, source), count in undated.items():
        yield CatalogFinding(
            severity="note",
            subject=f"{provider}, {count} offers",
            message="the source states no date for these prices",
            figure="no date",
            expected=f"read within {max_age_days} days",
            source=source,
        )


def _date_finding(
    severity: Severity, subject: str, message: str, offer: Offer, as_of: date, max_age_days: int
) -> CatalogFinding:
    assert offer.read_on is not None
    return CatalogFinding(
        severity=severity,
        subject=subject,
        message=message,
        figure=f"read {offer.read_on}, {(as_of - offer.read_on).days} days before {as_of}",
        expected=f"at most {max_age_days} days",
        source=offer.source.text,
    )


def _ratios(instances: Iterable[InstanceType]) -> Iterator[CatalogFinding]:
    low, high = GIB_PER_VCPU
    for instance in instances:
        if not instance.vcpus or not instance.memory_gib:
            continue
        ratio = instance.memory_gib / instance.vcpus
        if not low <= ratio <= high:
            yield CatalogFinding(
                severity="warning",
                subject=f"{instance.provider} {instance.name}",
                message=f"{instance.vcpus:g} vCPUs and {instance.memory_gib:g} GiB do not go together",
                figure=f"{ratio:.3g} GiB per vCPU",
                expected=f"{low:g} to {high:g}",
                source=instance.source.text,
            )


def _prices(catalog: Catalog) -> Iterator[CatalogFinding]:
    prices = ExpectedPrices(catalog)
    for offer in catalog.offers:
        doubt = prices.doubt(offer)
        if doubt is not None:
            yield CatalogFinding(
                severity="warning",
                subject=offer_subject(offer),
                message=doubt.describe(),
                figure=f"{offer.usd_per_instance_hour} USD/h",
                expected=f"about {doubt.expectation.usd_per_instance_hour:.4g} USD/h",
                source=offer.source.text,
            )


def _set_aside(catalog: Catalog) -> Iterator[CatalogFinding]:
    for one in catalog.quarantined:
        yield CatalogFinding(
            severity="warning",
            subject=offer_subject(one.offer),
            message="committed price set aside: it is not offered",
            figure=f"{one.offer.usd_per_instance_hour} USD/h, {one.why}",
            expected="a discount on the on-demand price of today",
            source=one.offer.source.text,
        )


def _left_out(catalog: Catalog) -> Iterator[CatalogFinding]:
    for text in catalog.left_out:
        where, _, why = text.partition(": ")
        yield CatalogFinding(
            severity="error", subject=where, message="this row cannot be used: it is left out", figure=why,
            expected="a row that can be read", source=catalog.name,
        )  # fmt: skip


def _spot(catalog: Catalog) -> Iterator[CatalogFinding]:
    on_demand = {
        (offer.provider, offer.instance_type, offer.region): offer
        for offer in catalog.offers
        if offer.purchase == "on_demand"
    }
    for offer in catalog.offers:
        plain = on_demand.get((offer.provider, offer.instance_type, offer.region))
        if offer.purchase != "spot" or plain is None:
            continue
        if offer.usd_per_instance_hour < plain.usd_per_instance_hour:
            continue
        above = offer.usd_per_instance_hour > plain.usd_per_instance_hour
        yield CatalogFinding(
            severity="error" if above else "note",
            subject=offer_subject(offer),
            message="spot above on-demand" if above else "spot listed at the on-demand price",
            figure=f"{offer.usd_per_instance_hour} USD/h",
            expected=f"below {plain.usd_per_instance_hour} USD/h",
            source=offer.source.text,
        )
