"""Ways to buy one machine: an offer as it is, or through a platform that adds a fee; and prices that are missing."""

from __future__ import annotations

from collections.abc import Container, Sequence
from datetime import date
from decimal import Decimal
from typing import Final, Literal

from tonnage.catalog.catalog import Catalog
from tonnage.catalog.hardware import Source
from tonnage.catalog.managed import DbuPrice, DbuRate, ManagementFee, MlInstancePrice
from tonnage.catalog.market import Offer, Platform
from tonnage.pricing.fee_estimates import (
    CENT,
    Estimate,
    EstimateSource,
    ratio_estimate,
    serving_estimate,
    vertex_estimate,
)
from tonnage.pricing.price_dates import PricesApart, prices_apart
from tonnage.values import dataclass
from tonnage.workload.jobs import BuyTerms

DATABRICKS_CLOUDS: Final = ("aws", "azure", "gcp")
TRAINING: Final = ("train", "tabular")
PlatformPrice = Literal["dbu", "serving dbu", "ml instance", "managed spot", "vertex"]  # of a machine on a platform


@dataclass(frozen=True, slots=True, kw_only=True)
class OddPremium:
    """A platform's price over the plain machine's, far from the usual ratio: one of the two may be older than a cut."""

    ratio: float
    usual_ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Fee:
    """What a platform adds: `quantity_per_hour` of `unit` for each hour of a machine."""

    what: str
    sku: str  # what a discount may name
    quantity_per_hour: Decimal
    unit: str
    usd_per_unit: Decimal
    billed_by: str
    source: str | EstimateSource
    read_on: date | None
    doubt: OddPremium | None = None
    estimate: Estimate | None = None  # None: the fee was read

    @property
    def usd_per_instance_hour(self) -> Decimal:
        return self.quantity_per_hour * self.usd_per_unit


@dataclass(frozen=True, slots=True, kw_only=True)
class Deal:
    """One way to buy one machine. `fee` None: the machine alone."""

    offer: Offer
    platform: Platform = "vm"
    fee: Fee | None = None

    @property
    def group(self) -> tuple[str, str, str, str]:
        """What a plan keeps the best of: provider, instance type, purchase, platform."""
        offer = self.offer
        return (offer.provider, offer.instance_type, offer.purchase, self.platform)

    @property
    def read_on(self) -> date | None:
        """The older of the machine's price and the fee's; None where one of them carries no date."""
        return self.offer.read_on if self.fee is None else _older(self.offer.read_on, self.fee.read_on)

    @property
    def machine_billers(self) -> tuple[str, ...]:
        """Who may grant a discount on the machine itself, the nearest first."""
        if self.platform in ("sagemaker", "vertex"):
            return (self.platform, self.offer.provider)
        return (self.offer.provider,)

    @property
    def machine_sku(self) -> str:
        return f"ml.{self.offer.instance_type}" if self.platform == "sagemaker" else self.offer.instance_type

    @property
    def fee_billers(self) -> tuple[str, ...]:
        return ("databricks",) if self.platform == "databricks" else self.machine_billers


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceGap:
    """A machine that a platform may well sell and whose price is not known there."""

    offer: Offer
    platform: Platform
    of: PlatformPrice
    name: str  # of the machine
    sku: str = ""  # of a Databricks unit
    apart: PricesApart | None = None  # a price is held, and cannot be set against the machine's


def platform_deals(
    offers: Sequence[Offer], catalog: Catalog, platforms: Sequence[Platform], *, kind: str, buy: BuyTerms,
    asked_for: Container[Platform] = (),
) -> tuple[list[Deal], list[PriceGap]]:  # fmt: skip
    """Deals of `offers` on each of `platforms`, and a gap for each (machine, purchase) whose price there is missing.

    `kind`: of the work. A platform of `asked_for` has its missing fees estimated where their parts are known.
    """
    tables = _Tables(catalog, buy)
    found: list[Deal] = [Deal(offer=offer) for offer in offers] if "vm" in platforms else []
    groups: dict[tuple[str, str, str], list[Offer]] = {}
    for offer in offers:
        groups.setdefault((offer.provider, offer.instance_type, offer.purchase), []).append(offer)
    gaps: list[PriceGap] = []
    for group in groups.values():
        for platform in platforms:
            asked = platform in asked_for
            needed = tables.needed(platform, group[0], kind, asked=asked)
            if needed is None:
                continue
            deals = [deal for deal in tables.deals(platform, group, kind) if deal.fee is not None]
            if not deals and asked:
                deals = [deal for deal in tables.estimated(platform, group, kind) if deal.fee is not None]
            found += deals
            if not deals:
                gaps.append(tables.gap(group, platform, needed))
    return found, gaps


class _Tables:
    """Managed prices by what they are looked up with."""

    def __init__(self, catalog: Catalog, buy: BuyTerms) -> None:
        managed = catalog.managed
        self.rates: dict[tuple[str, str], DbuRate] = {(one.cloud, one.instance_type): one for one in managed.dbu_rates}
        self.units: dict[str, DbuPrice] = {one.cloud: one for one in managed.dbu_prices if one.sku == buy.dbu_sku}
        self.ml: dict[tuple[str, str], MlInstancePrice] = {
            (one.instance_type, one.region): one for one in managed.ml_instances
        }
        self.vertex: dict[tuple[str, str], ManagementFee] = {
            (one.instance_type, one.region): one for one in managed.management_fees
        }
        self.sku = buy.dbu_sku
        self.dbu_prices = managed.dbu_prices
        self.premiums = _premiums(catalog)
        self.usual_premium = self.premiums[len(self.premiums) // 2][0] if self.premiums else None

    def needed(self, platform: Platform, offer: Offer, kind: str, *, asked: bool = False) -> PlatformPrice | None:
        """The price that a machine takes on a platform; None where the platform does not sell this kind of work, or
        sells it at no price of its own (`asked`: unless it is asked for by name)."""
        on_demand = offer.purchase == "on_demand"
        if platform == "databricks" and offer.provider in DATABRICKS_CLOUDS:
            if kind != "serve":
                return "dbu"
            if asked and on_demand:
                return "serving dbu"
        if platform == "sagemaker" and offer.provider == "aws":
            if on_demand:
                return "ml instance"
            if asked and offer.purchase == "spot" and kind in TRAINING:
                return "managed spot"
        if platform == "vertex" and offer.provider == "gcp" and on_demand and (kind in TRAINING or asked):
            return "vertex"
        return None

    def gap(self, offers: Sequence[Offer], platform: Platform, needed: PlatformPrice) -> PriceGap:
        """The price `needed` is not known of these offers' machine, or was read on another side of a price cut."""
        offer = offers[0]
        pairs = [(self.ml.get((one.instance_type, one.region)), one) for one in offers if needed == "ml instance"]
        apart = [_apart(price, one) for price, one in pairs if price is not None]
        return PriceGap(
            offer=offer,
            platform=platform,
            of=needed,
            name=offer.instance_type,
            sku=self.sku if needed == "dbu" else "",
            apart=next((one for one in apart if one is not None), None),
        )

    def deals(self, platform: Platform, offers: Sequence[Offer], kind: str) -> list[Deal]:
        """One machine's offers with what the platform adds; a fee of None where its price is not known."""
        if platform == "databricks":
            fee = None if kind == "serve" else self._databricks(offers[0])  # the same in every region
            return [] if fee is None else [Deal(offer=offer, platform=platform, fee=fee) for offer in offers]
        if platform == "sagemaker":
            return [
                Deal(offer=offer, platform=platform, fee=self._sagemaker(offer))
                for offer in offers
                if offer.purchase == "on_demand"
            ]
        if kind not in TRAINING:
            return []
        return [Deal(offer=offer, platform=platform, fee=self._vertex(offer)) for offer in offers]

    def estimated(self, platform: Platform, offers: Sequence[Offer], kind: str) -> list[Deal]:
        """The same where no price was read, from its parts; a fee of None where these are not known."""
        return [Deal(offer=offer, platform=platform, fee=self._estimated(platform, offer, kind)) for offer in offers]

    def _estimated(self, platform: Platform, offer: Offer, kind: str) -> Fee | None:
        found, what, biller = None, "", offer.provider
        if platform == "sagemaker":
            found, what = ratio_estimate(offer, self.premiums), "SageMaker premium, estimated"
        elif platform == "vertex" and self.vertex:
            one = next(iter(self.vertex.values()))
            found, what = vertex_estimate(offer, one.price_ratio, one.source), "Vertex AI fee, estimated"
        elif platform == "databricks" and kind == "serve":
            units = {one.sku: one for one in self.dbu_prices if one.cloud == offer.provider}
            found = serving_estimate(offer, self.rates.get((offer.provider, offer.instance_type)), units)
            what, biller = "Databricks Model Serving, estimated", "databricks"
        if found is None:
            return None
        return Fee(
            what=what,
            sku=offer.instance_type,
            quantity_per_hour=Decimal(1),
            unit="instance-hour",
            usd_per_unit=Decimal(repr(found.usd_per_instance_hour)).quantize(CENT),
            billed_by=biller,
            source=found.source,
            read_on=found.read_on,
            estimate=found,
        )

    def _databricks(self, offer: Offer) -> Fee | None:
        rate, unit = self.rates.get((offer.provider, offer.instance_type)), self.units.get(offer.provider)
        if rate is None or unit is None:
            return None
        return Fee(
            what=f"Databricks units, {self.sku}",
            sku=self.sku,
            quantity_per_hour=rate.dbu_per_instance_hour,
            unit="DBU",
            usd_per_unit=unit.usd_per_dbu,
            billed_by="databricks",
            source=f"{unit.source.text}; DBU an hour: {rate.source.text}",
            read_on=_older(unit.source.read_on, rate.source.read_on),
        )

    def _sagemaker(self, offer: Offer) -> Fee | None:
        price = self.ml.get((offer.instance_type, offer.region))
        if price is None or price.usd_per_instance_hour < offer.usd_per_instance_hour or _apart(price, offer):
            return None
        ratio = float(price.usd_per_instance_hour / offer.usd_per_instance_hour)
        usual = self.usual_premium
        doubt = None
        if usual is not None and ratio / usual > ODD_PREMIUM:
            doubt = OddPremium(ratio=ratio, usual_ratio=usual)
        return Fee(
            what="SageMaker premium over the plain machine",
            sku=f"ml.{offer.instance_type}",
            quantity_per_hour=Decimal(1),
            unit="instance-hour",
            usd_per_unit=price.usd_per_instance_hour - offer.usd_per_instance_hour,
            billed_by="aws",
            source=price.source.text,
            read_on=price.source.read_on,
            doubt=doubt,
        )

    def _vertex(self, offer: Offer) -> Fee | None:
        fee = self.vertex.get((offer.instance_type, offer.region))
        if fee is None or fee.price_ratio <= 1:
            return None
        return Fee(
            what="Vertex AI management fee",
            sku=offer.instance_type,
            quantity_per_hour=Decimal(1),
            unit="instance-hour",
            usd_per_unit=offer.usd_per_instance_hour * (fee.price_ratio - 1),
            billed_by="gcp",
            source=fee.source.text,
            read_on=fee.source.read_on,
        )


ODD_PREMIUM: Final = 1.2  # a price this much above the usual ratio of ml. to plain machines is questioned


def _premiums(catalog: Catalog) -> list[tuple[float, Source]]:
    """ml. price over plain on-demand price in the same region, smallest first, each with the ml. price's source.

    Pairs whose days a price cut parts say nothing of a premium and are left out."""
    ratios = [
        (float(price.usd_per_instance_hour / offer.usd_per_instance_hour), price.source)
        for price in catalog.managed.ml_instances
        for offer in catalog.offers_named("aws", price.instance_type)
        if (offer.region, offer.purchase) == (price.region, "on_demand") and not _apart(price, offer)
    ]
    return sorted(ratios, key=lambda one: one[0])


def _apart(price: MlInstancePrice, offer: Offer) -> PricesApart | None:
    return prices_apart("aws", price.instance_type, price.source.read_on, offer.read_on)


def _older(first: date | None, second: date | None) -> date | None:
    """The earlier date; None where one of the two is not known."""
    return None if first is None or second is None else min(first, second)
