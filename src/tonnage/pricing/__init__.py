"""What work costs: ledgers that sum, and what interruptions add."""

from tonnage.pricing.interruptions import InterruptedRun, Terms, expected_run, young_interval_s
from tonnage.pricing.ledger import Ledger, LedgerLine

__all__ = ["InterruptedRun", "Ledger", "LedgerLine", "Terms", "expected_run", "young_interval_s"]
