"""What work costs: deals and their prices, hours as they are billed, ledgers that sum, what interruptions add."""

from typing import TYPE_CHECKING

from tonnage.lazy import lazy_names

if TYPE_CHECKING:
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
__getattr__ = lazy_names(__name__)
