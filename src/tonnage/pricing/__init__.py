"""What work costs: deals and their prices, hours as they are billed, ledgers that sum, what interruptions add."""

from tonnage.pricing.deals import Deal, Fee, PriceGap, platform_deals
from tonnage.pricing.interruptions import Terms, young_interval_s
from tonnage.pricing.ledger import Ledger, LedgerLine

__all__ = [
    "Deal",
    "Fee",
    "Ledger",
    "LedgerLine",
    "PriceGap",
    "Terms",
    "platform_deals",
    "young_interval_s",
]
