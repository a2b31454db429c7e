"""Speed of one GPU beside a processor that was measured, and what a cheaper processor must reach."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tonnage.catalog import Catalog, Offer
from tonnage.catalog.market import InstanceType
from tonnage.claimed_gains.gain import Gain, Lack, PromisedGain, Side, SpeedNeeded, times
from tonnage.planning.sizes import SizeReport, SizeRow
from tonnage.sizing.estimates import Figure
from tonnage.values import dataclass

RATES: Final = ("samples_per_s", "items_per_s", "requests_per_s", "row_passes_per_s")
ALIKE: Final = 0.01  # memory per vCPU of two machines of one kind, relative


@dataclass(frozen=True, slots=True, kw_only=True)
class UnmeasuredProcessor:
    """Why there is no measured processor, and the words of what refused it."""

    lack: Lack
    said: str


def gpu_gain(target: PromisedGain, size: SizeReport, processor: Side | UnmeasuredProcessor) -> Gain:
    """How many times as fast one GPU of `size` does this work as `processor`, or why there is none."""
    found = [(rate, row) for row in size.rows if (rate := rate_of_one(row)) is not None]
    if not found:
        return Gain(target=target, lack="device does not hold it")
    rate, row = max(found, key=lambda one: (one[0].value, one[1].gpu or ""))
    after = Side(name=f"1 x {row.gpu}", per_s=rate)
    if isinstance(processor, UnmeasuredProcessor):
        return Gain(target=target, lack=processor.lack, said=processor.said, after=after)
    assert processor.per_s is not None
    return Gain(target=target, figure=times(processor.per_s, rate), before=processor, after=after)


def rate_of_one(row: SizeRow) -> Figure | None:
    """Work a second on one GPU: of a service what one machine carries; None where the row is of more GPUs."""
    if row.gpu_count != 1:
        return None
    if row.run.fleet is not None and len(row.run.fleet.pools) == 1:
        return row.run.fleet.pools[0].scaled(float(row.run.fleet.per_machine))
    if row.nodes != 1:
        return None
    return next((figure for name, figure in row.run.rates if name in RATES), None)


def arm_gain(target: PromisedGain, catalog: Catalog) -> Gain:
    """Arm beside x86 processors. No measured row is of either, so that the gain is unknown; what the catalog knows is
    how much cheaper an Arm machine of as many vCPUs and as much memory is, and so which speed it must reach."""
    shares = list(_price_shares(catalog))
    if not shares:
        return Gain(target=target, lack="no rows on these processors")
    shares.sort(key=lambda one: one[0])
    share, arm, other = shares[(len(shares) - 1) // 2]
    needed = SpeedNeeded(price=share, speed=share / (1.0 - target.least), pairs=len(shares))
    return Gain(
        target=target, lack="no rows on these processors", before=Side(name=other), after=Side(name=arm),
        evidence=needed,
    )  # fmt: skip


def _price_shares(catalog: Catalog) -> Iterable[tuple[float, str, str]]:
    """(Arm price over x86 price, the Arm machine, the x86 machine) for machines without a GPU of one provider and
    region, as many vCPUs and as much memory, on demand."""
    known = {one.key: one for one in catalog.instance_types if one.accelerator is None}
    kinds: dict[tuple[str, str, float, float], dict[str, list[tuple[Offer, InstanceType]]]] = {}
    for offer in catalog.offers:
        machine = known.get((offer.provider, offer.instance_type))
        if machine is None or offer.purchase != "on_demand" or machine.vcpus is None or machine.memory_gib is None:
            continue
        key = (offer.provider, offer.region, machine.vcpus, round(machine.memory_gib))
        kinds.setdefault(key, {}).setdefault(machine.cpu_arch or "", []).append((offer, machine))
    for sides in kinds.values():
        for arm, machine in sides.get("arm64", ()):
            for other, beside in sides.get("x86_64", ()):
                share = float(arm.usd_per_instance_hour) / float(other.usd_per_instance_hour)
                yield share, machine.name, beside.name
