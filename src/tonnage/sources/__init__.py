"""Read providers' prices into dated snapshots. The one part of the library that uses the network."""

from tonnage.sources.fetching import FetchLimits, fetch_text
from tonnage.sources.gpuhunt_source import GpuhuntSource, parse_catalog_items
from tonnage.sources.results import PriceSource, SourceReport, SourceResult
from tonnage.sources.skypilot import SkyPilotSource, parse_skypilot_csv
from tonnage.sources.snapshots import dated_meta, gather, write_snapshot

__all__ = [
    "FetchLimits",
    "GpuhuntSource",
    "PriceSource",
    "SkyPilotSource",
    "SourceReport",
    "SourceResult",
    "dated_meta",
    "fetch_text",
    "gather",
    "parse_catalog_items",
    "parse_skypilot_csv",
    "write_snapshot",
]
