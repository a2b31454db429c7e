"""What starting, saving and interruptions take under one workload."""

from __future__ import annotations

from tonnage.pricing.interruptions import Terms
from tonnage.workload.jobs import Buy


def terms_of(buy: Buy) -> Terms:
    """The terms of starting and interrupting: what the workload states, else the assumptions of pricing."""
    default = Terms()
    rate = buy.interruptions_per_hour
    return Terms(
        startup_s=default.startup_s if buy.startup_s is None else buy.startup_s,
        checkpoint_s=default.checkpoint_s,
        interruptions_per_hour=default.interruptions_per_hour if rate is None else rate,
        interruptions_low_per_hour=default.interruptions_low_per_hour if rate is None else rate,
        interruptions_high_per_hour=default.interruptions_high_per_hour if rate is None else rate,
        checkpoint_interval_s=buy.checkpoint_interval_s,
    )
