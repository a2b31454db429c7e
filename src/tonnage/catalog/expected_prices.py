"""What a price should be, going by its like: other regions, the provider's other machines, the market."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from statistics import median
from typing import Literal

from tonnage.catalog.catalog import Catalog
from tonnage.catalog.market import InstanceType, Offer
from tonnage.values import dataclass

FALLBACK_USD_PER_VCPU_HOUR = 0.045  # median of general-purpose list prices; used where a snapshot has no CPU machines
FALLBACK_SPOT_FRACTION = 0.4


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """A price to compare with, and the rows it comes from."""

    usd_per_instance_hour: float
    factor: float  # a price this many times higher or lower is questionable
    like: Literal["regions", "provider", "market", "on demand"]  # the machine's other regions, the provider's machines,
    # rivals', or the machine's own on-demand price at the usual share that spot costs of it
    rows: int  # offers; of the market, providers
    provider: str
    device: str

    @property
    def basis(self) -> str:
        """The rows it comes from, by name."""
        if self.like == "regions":
            return f"{self.rows} other region(s)"
        if self.like == "provider":
            return f"{self.provider}'s {self.rows} other {self.device} offer(s)"
        if self.like == "on demand":
            return "its on-demand price and the usual discount of spot"
        return f"{self.rows} other providers' {self.device} offers"


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceDoubt:
    """A price far from an expectation. `ratio`: the price over what is expected."""

    ratio: float
    expectation: Expectation

    def describe(self) -> str:
        """By how much, and what it is set against."""
        times = f"{self.ratio:.1f}" if self.ratio > 1 else f"{self.ratio:.2f}"
        return f"{times} times what {self.expectation.basis} suggest"


MARKET_FACTORS = {
    "on_demand": 3.0,
    "spot": 5.0,
    "reserved_1y": 3.0,
    "reserved_3y": 3.0,
}  # spot is worth less here
LIKE_FACTOR = 3.0


class ExpectedPrices:
    """Medians over comparable offers, each without the offer it judges; the market counts providers once.

    A machine with devices is taken as `devices x a + vCPUs x b` (USD/h): `b` is what CPU machines cost per
    vCPU, `a` the median of what is left per device. That way a large host with one small GPU is no surprise.
    """

    def __init__(self, catalog: Catalog) -> None:
        self._machines = {instance.key: instance for instance in catalog.instance_types}
        self._on_demand = {
            (offer.provider, offer.instance_type, offer.region): float(offer.usd_per_instance_hour)
            for offer in catalog.offers
            if offer.purchase == "on_demand"
        }
        self._spot_shares = _spot_shares(catalog, self._on_demand)
        self._spot_share = median(self._spot_shares) if self._spot_shares else FALLBACK_SPOT_FRACTION
        self._usd_per_vcpu = _usd_per_vcpu(catalog, self._machines, self._spot_share)
        self._same_machine: dict[tuple[str, ...], list[tuple[int, float]]] = defaultdict(list)
        self._same_provider: dict[tuple[str, ...], list[tuple[int, float]]] = defaultdict(list)
        market: dict[tuple[str, ...], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        for offer in catalog.offers:
            machine = self._machine(offer)
            each = self._unit_price(offer, machine)
            self._same_machine[_machine_key(offer)].append((id(offer), float(offer.usd_per_instance_hour)))
            if each is not None:
                kind = _kind_key(offer, machine)
                self._same_provider[offer.provider, *kind].append((id(offer), each))
                market[kind][offer.provider].append(each)
        self._market = {
            kind: {seller: median(prices) for seller, prices in sellers.items()} for kind, sellers in market.items()
        }
        self._doubts: dict[int, tuple[Offer, PriceDoubt | None]] = {}  # by id, of offers that live as long

    def expectations(self, offer: Offer) -> Iterator[Expectation]:
        """The expectations that other rows support, the most specific first; none for a one-off machine."""
        machine = self._machine(offer)
        kind, device = _kind_key(offer, machine), machine.accelerator or "CPU"
        others = _without(self._same_machine[_machine_key(offer)], offer)
        if others:
            yield Expectation(
                usd_per_instance_hour=median(others),
                factor=LIKE_FACTOR,
                like="regions",
                rows=len(others),
                provider=offer.provider,
                device=device,
            )
        units = _without(self._same_provider[offer.provider, *kind], offer)
        if units:
            yield Expectation(
                usd_per_instance_hour=self._from_unit_price(median(units), offer, machine),
                factor=LIKE_FACTOR,
                like="provider",
                rows=len(units),
                provider=offer.provider,
                device=device,
            )
        own = self._on_demand.get((offer.provider, offer.instance_type, offer.region))
        if offer.purchase == "spot" and own is not None:
            yield Expectation(
                usd_per_instance_hour=own * self._spot_share,
                factor=LIKE_FACTOR,
                like="on demand",
                rows=len(self._spot_shares),
                provider=offer.provider,
                device=device,
            )
        rivals = [price for seller, price in self._market.get(kind, {}).items() if seller != offer.provider]
        if len(rivals) >= 2:
            yield Expectation(
                usd_per_instance_hour=self._from_unit_price(median(rivals), offer, machine),
                factor=MARKET_FACTORS[offer.purchase],
                like="market",
                rows=len(rivals),
                provider=offer.provider,
                device=device,
            )

    def doubt(self, offer: Offer) -> PriceDoubt | None:
        """The first expectation that the offer's price breaks, and by how much; None when it breaks none."""
        if id(offer) not in self._doubts:
            self._doubts[id(offer)] = (offer, self._doubt(offer))
        return self._doubts[id(offer)][1]

    def _doubt(self, offer: Offer) -> PriceDoubt | None:
        for expectation in () if offer.supposed else self.expectations(offer):
            factor = float(offer.usd_per_instance_hour) / expectation.usd_per_instance_hour
            if not 1 / expectation.factor <= factor <= expectation.factor:
                return PriceDoubt(ratio=factor, expectation=expectation)
        return None

    def _machine(self, offer: Offer) -> InstanceType:
        return self._machines[offer.provider, offer.instance_type]

    def _unit_price(self, offer: Offer, machine: InstanceType) -> float | None:
        """USD per device-hour after the vCPUs (per vCPU-hour for a CPU machine); None: no unit."""
        price = float(offer.usd_per_instance_hour)
        if machine.accelerator is None:
            return price / machine.vcpus if machine.vcpus else None
        host = (machine.vcpus or 0.0) * self._usd_per_vcpu[offer.purchase]
        return max(price - host, 0.25 * price) / machine.accelerator_count

    def _from_unit_price(self, unit: float, offer: Offer, machine: InstanceType) -> float:
        if machine.accelerator is None:
            return unit * (machine.vcpus or 0.0)
        return unit * machine.accelerator_count + (machine.vcpus or 0.0) * self._usd_per_vcpu[offer.purchase]


def _machine_key(offer: Offer) -> tuple[str, ...]:
    return (offer.provider, offer.instance_type, offer.purchase)


def _kind_key(offer: Offer, machine: InstanceType) -> tuple[str, ...]:
    size = "slice" if 0 < machine.accelerator_count < 1 else "whole"
    return (machine.accelerator or "", size, offer.purchase)


def _without(group: list[tuple[int, float]], offer: Offer) -> list[float]:
    return [figure for owner, figure in group if owner != id(offer)]


def _spot_shares(catalog: Catalog, on_demand: dict[tuple[str, str, str], float]) -> list[float]:
    """What each spot price is of the on-demand price of the same machine in the same region."""
    found = []
    for offer in catalog.offers:
        base = on_demand.get((offer.provider, offer.instance_type, offer.region))
        if offer.purchase == "spot" and base:
            found.append(float(offer.usd_per_instance_hour) / base)
    return found


def _usd_per_vcpu(
    catalog: Catalog, machines: dict[tuple[str, str], InstanceType], spot_share: float
) -> dict[str, float]:
    """USD per vCPU-hour of CPU machines, by purchase mode; spot as the usual fraction of on-demand."""
    plain: list[float] = []
    for offer in catalog.offers:
        machine = machines[offer.provider, offer.instance_type]
        if offer.purchase == "on_demand" and machine.accelerator is None and machine.vcpus:
            plain.append(float(offer.usd_per_instance_hour) / machine.vcpus)
    vcpu = median(plain) if plain else FALLBACK_USD_PER_VCPU_HOUR
    return {"on_demand": vcpu, "spot": vcpu * spot_share, "reserved_1y": vcpu, "reserved_3y": vcpu}
