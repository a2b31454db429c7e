"""What starting takes under one workload."""

from __future__ import annotations

from tonnage.pricing.interruptions import Terms
from tonnage.workload.jobs import BuyTerms


def terms_of(buy: BuyTerms) -> Terms:
    """What the workload states, else the assumption of pricing."""
    return Terms() if buy.startup_s is None else Terms(startup_s=buy.startup_s)
