"""Prices of managed platforms as frozen values: what a platform charges besides, or instead of, a machine."""

from __future__ import annotations

from decimal import Decimal
from typing import Final, Literal

from tonnage.catalog.hardware import Source
from tonnage.catalog.market import Offer, Purchase
from tonnage.values import dataclass

TokenKind = Literal["input", "output", "cache read", "cache write"]
# Ways to have tokens at a price of their own, as the first words of a price's conditions; without one it is on demand.
TOKEN_WAYS: Final = ("batch", "flex", "priority", "latency", "global", "cross-region", "reserved")


@dataclass(frozen=True, slots=True, kw_only=True)
class DbuRate:
    """Databricks units that one machine uses in an hour, without Photon."""

    cloud: str
    instance_type: str
    dbu_per_instance_hour: Decimal
    source: Source


@dataclass(frozen=True, slots=True, kw_only=True)
class DbuPrice:
    """What a Databricks unit costs on a cloud under a product (`Jobs Compute`, ...)."""

    cloud: str
    sku: str
    usd_per_dbu: Decimal
    conditions: str
    source: Source


@dataclass(frozen=True, slots=True, kw_only=True)
class MlInstancePrice:
    """A SageMaker `ml.` machine; `instance_type` is the EC2 type inside it."""

    instance_type: str
    region: str
    usd_per_instance_hour: Decimal
    conditions: str
    source: Source


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagementFee:
    """Vertex AI training: the price of a machine there over its price as a VM (1.2: a fifth on top)."""

    provider: str
    instance_type: str
    region: str
    price_ratio: Decimal
    source: Source


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenPrice:
    """A million tokens of one kind of one model on an API."""

    platform: Literal["bedrock", "databricks"]
    model: str  # as the platform names it
    kind: TokenKind
    usd_per_million_tokens: Decimal
    region: str  # "us regions", "global profile", "all", ...
    conditions: str
    source: Source

    @property
    def plain(self) -> bool:
        """On demand, at no other way's price (in batches, at low priority, ...)."""
        return self.conditions.partition(";")[0].strip() not in TOKEN_WAYS


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchTokenDiscount:
    """The fraction that a batch API takes off on-demand token prices."""

    platform: Literal["bedrock"]
    fraction: Decimal
    conditions: str
    source: Source


@dataclass(frozen=True, slots=True, kw_only=True)
class ProvisionedPrice:
    """An hour of one model unit of provisioned throughput; `commitment_months` 0: none."""

    model: str
    commitment_months: int
    usd_per_model_unit_hour: Decimal
    region: str
    source: Source


@dataclass(frozen=True, slots=True, kw_only=True)
class CustomisationPrice:
    """Fine-tuning a model on a platform, per million tokens processed (tokens x epochs)."""

    model: str
    usd_per_million_tokens: Decimal
    region: str
    source: Source


@dataclass(frozen=True, slots=True, kw_only=True)
class StoragePrice:
    """Keeping one customised model for a month."""

    what: str
    usd_per_model_month: Decimal
    region: str
    source: Source


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservedPrice:
    """A committed machine, paid for every hour of its term; `on_demand_then_usd`: what it was compared with."""

    provider: str
    instance_type: str
    region: str
    purchase: Purchase
    usd_per_instance_hour: Decimal
    on_demand_then_usd: Decimal | None
    conditions: str
    source: Source


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherPrice:
    """A row that is carried and not planned with (SQL warehouses, AutoML, ...)."""

    platform: str
    sku: str
    unit: str
    price: Decimal
    region: str
    source: Source


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagedPrices:
    """All managed prices of a catalog, by what they price."""

    dbu_rates: tuple[DbuRate, ...] = ()
    dbu_prices: tuple[DbuPrice, ...] = ()
    ml_instances: tuple[MlInstancePrice, ...] = ()
    management_fees: tuple[ManagementFee, ...] = ()
    tokens: tuple[TokenPrice, ...] = ()
    batch_discounts: tuple[BatchTokenDiscount, ...] = ()
    provisioned: tuple[ProvisionedPrice, ...] = ()
    customisation: tuple[CustomisationPrice, ...] = ()
    storage: tuple[StoragePrice, ...] = ()
    reserved: tuple[ReservedPrice, ...] = ()
    other: tuple[OtherPrice, ...] = ()

    @property
    def token_models(self) -> tuple[str, ...]:
        """Every model that has a token, provisioned or customisation price, in order of appearance."""
        named = [price.model for price in self.tokens]
        named += [price.model for price in self.provisioned] + [price.model for price in self.customisation]
        return tuple(dict.fromkeys(named))


@dataclass(frozen=True, slots=True, kw_only=True)
class Quarantined:
    """An offer that is on record and not believed, and why."""

    offer: Offer
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BillingRule:
    """How a provider rounds the time of a machine: up to `quantum_s`, and to at least `minimum_s`."""

    provider: str
    instance_pattern: str  # as `fnmatch`
    quantum_s: float
    minimum_s: float
    source: Source
