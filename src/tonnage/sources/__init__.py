"""Read providers' prices into dated snapshots. The one part of the library that uses the network."""

from tonnage.sources.answer_cache import ResponseCache, default_cache_folder
from tonnage.sources.aws_price_list import AwsPriceListSource
from tonnage.sources.aws_spot import AwsSpotSource
from tonnage.sources.aws_spot_advisor import AwsSpotAdvisorSource
from tonnage.sources.azure_retail import AzureRetailSource
from tonnage.sources.bedrock import BedrockSource
from tonnage.sources.databricks import DatabricksSource, parse_rates
from tonnage.sources.digitalocean import DigitalOceanSource
from tonnage.sources.fetching import FetchLimits, Watch, fetch_text
from tonnage.sources.gcp_billing import GcpBillingSource
from tonnage.sources.gpuhunt_source import GpuhuntSource, parse_catalog_items
from tonnage.sources.judging import judge_offers
from tonnage.sources.kinds import Circumstances, SourceKind
from tonnage.sources.managed_prices import load_managed_prices
from tonnage.sources.refreshing import Refreshed, ask_sources, merge_answers
from tonnage.sources.registry import KINDS, chosen_kinds, installed_kinds
from tonnage.sources.results import ManagedPriceRow, PriceSource, QuarantinedRow, SourceReport, SourceResult
from tonnage.sources.skypilot import SkyPilotSource, parse_skypilot_csv
from tonnage.sources.snapshots import dated_meta, gather, write_snapshot
from tonnage.sources.web import Web

__all__ = [
    "KINDS", "AwsPriceListSource", "AwsSpotAdvisorSource", "AwsSpotSource", "AzureRetailSource", "BedrockSource",
    "Circumstances", "DatabricksSource", "DigitalOceanSource", "FetchLimits", "GcpBillingSource", "GpuhuntSource",
    "ManagedPriceRow", "PriceSource", "QuarantinedRow", "Refreshed", "ResponseCache", "SkyPilotSource", "SourceKind",
    "SourceReport", "SourceResult", "Watch", "Web", "ask_sources", "chosen_kinds", "dated_meta", "default_cache_folder",
    "fetch_text", "gather", "installed_kinds", "judge_offers", "load_managed_prices", "merge_answers",
    "parse_catalog_items", "parse_rates", "parse_skypilot_csv", "write_snapshot",
]  # fmt: skip
