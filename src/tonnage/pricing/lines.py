"""The ledger of one run on machines: hours by what they are spent on, the platform's fee, what comes besides."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

from tonnage.catalog.services import ServicePrices
from tonnage.pricing.deals import Deal
from tonnage.pricing.extras import OWN, Extras, exact
from tonnage.pricing.ledger import Ledger, LedgerLine, Part, hours
from tonnage.pricing.rates import after_discount, fee_percent, machine_percent
from tonnage.units import SECONDS_PER_HOUR
from tonnage.values import dataclass
from tonnage.workload.jobs import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineHours:
    """Hours of one machine: of the run by what they are spent on, as billed, and what a commitment adds."""

    spent: tuple[tuple[str, Part, float], ...]
    billed_h: float
    unused_h: float
    wall_h: float


def machine_ledger(deal: Deal, count: int, used: MachineHours, workload: Workload, services: ServicePrices) -> Ledger:
    """All lines of `count` machines bought as `deal`."""
    extras = Extras(workload=workload, services=services)
    lines = [
        *_machine_lines(deal, count, used, workload),
        *_fee_lines(deal, count, used, workload),
        *extras.lines(deal, machine_hours=used.billed_h * count, wall_hours=used.wall_h),
    ]
    return Ledger(lines=(*lines, *credit_lines(lines, workload)))


def _machine_lines(deal: Deal, count: int, used: MachineHours, workload: Workload) -> list[LedgerLine]:
    percent = machine_percent(deal, workload.buy)
    price = after_discount(deal.offer.usd_per_instance_hour, percent)
    bought = f"{deal.offer.instance_type} {deal.offer.purchase.replace('_', '-')}"
    rounding = used.billed_h - sum(time for _, _, time in used.spent)
    named: list[tuple[str, Part, float]] = [
        *used.spent,
        ("rounded up to what is billed", "unused hours", rounding),
        ("committed and not used", "unused hours", used.unused_h),
    ]
    return [
        LedgerLine(
            what=f"{what}, {bought}",
            part=part,
            quantity=hours(time * count),
            unit="instance-hour",
            usd_per_unit=price,
            source=deal.offer.source.text,
            read_on=deal.offer.read_on,
            discount_percent=exact(percent),
            billed_by=deal.offer.provider,
        )
        for what, part, time in named
        if time * SECONDS_PER_HOUR > 1e-3
    ]


def _fee_lines(deal: Deal, count: int, used: MachineHours, workload: Workload) -> list[LedgerLine]:
    fee = deal.fee
    if fee is None:
        return []
    percent = fee_percent(deal, workload.buy)
    return [
        LedgerLine(
            what=f"{fee.what}, {deal.offer.instance_type}",
            part="platform fee",
            quantity=hours(used.billed_h * count * float(fee.quantity_per_hour)),
            unit=fee.unit,
            usd_per_unit=after_discount(fee.usd_per_unit, percent),
            source=fee.source,
            read_on=fee.read_on,
            discount_percent=exact(percent),
            billed_by=fee.billed_by,
        )
    ]


def credit_lines(lines: Sequence[LedgerLine], workload: Workload) -> list[LedgerLine]:
    """What spend that is committed anyway takes off again, by who bills: never more than that bill."""
    out = []
    for biller, committed in workload.buy.committed_usd:
        bill = sum((line.usd for line in lines if line.billed_by == biller), start=Decimal(0))
        if bill > 0:
            out.append(
                LedgerLine(
                    what=f"covered by the committed spend with {biller}",
                    part="credit",
                    quantity=Decimal(1),
                    unit="USD",
                    usd_per_unit=-min(bill, exact(committed)),
                    source=OWN,
                    read_on=None,
                    billed_by=biller,
                )
            )
    return out
