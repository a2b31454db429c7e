"""What work costs: deals and their prices, hours as they are billed, ledgers that sum, what interruptions add."""

from tonnage.pricing.deals import Deal, Fee, Gap, platform_deals
from tonnage.pricing.interruptions import Terms, young_interval_s
from tonnage.pricing.ledger import Ledger, LedgerLine

__all__ = [
    "Deal",
    "Fee",
    "Gap",
    "Ledger",
    "LedgerLine",
    "Terms",
    "platform_deals",
    "young_interval_s",
]
