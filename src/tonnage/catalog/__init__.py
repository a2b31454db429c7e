"""What exists and where it is sold: devices, machines, offers, links, processors, each with its source."""

from tonnage.catalog.aliases import Alias, devices_called, load_aliases
from tonnage.catalog.catalog import Catalog, MistakenName, Provider, Region
from tonnage.catalog.checks import CatalogFinding, check_catalog
from tonnage.catalog.description import Description, describe
from tonnage.catalog.grammar import GpuFilter, parse_gpu_filter
from tonnage.catalog.hardware import Accelerator, Cpu, Link, Precision, Source
from tonnage.catalog.loading import SnapshotMeta, load_catalog
from tonnage.catalog.managed import BillingRule, ManagedPrices, Quarantined
from tonnage.catalog.market import InstanceType, Offer, Platform, Purchase
from tonnage.catalog.query import filter_accelerators, filter_instance_types, filter_offers, usd_per_gpu_hour

__all__ = [
    "Accelerator", "Alias", "BillingRule", "Catalog", "CatalogFinding", "Cpu", "Description", "GpuFilter",
    "InstanceType", "Link", "ManagedPrices", "MistakenName", "Offer", "Platform", "Precision", "Provider", "Purchase",
    "Quarantined", "Region", "SnapshotMeta", "Source", "check_catalog", "describe", "devices_called",
    "filter_accelerators", "filter_instance_types", "filter_offers", "load_aliases", "load_catalog",
    "parse_gpu_filter", "usd_per_gpu_hour",
]  # fmt: skip
