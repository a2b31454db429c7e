"""Metrics of a home: budgets, backups, the audit, and of the watch itself."""

from __future__ import annotations

from typing import Final

from tonnage.metric_names.kinds import Metric

HOME_METRICS: Final = tuple(
    Metric(name=f"tonnage_{name}", kind="gauge", help=help, labels=labels)
    for name, help, labels in (
        ("budget_spent_to_limit_ratio", "What is spent of a budget over its limit", ("budget", "at_limit")),
        ("budget_forecast_to_limit_ratio", "What a budget's period comes to at the pace so far, over its limit",
         ("budget", "at_limit")),
        ("plan_winner_moved_usd", "What a plan's new winner saves against the one before the prices changed, for a day",
         ("plan", "before", "winner")),
        ("backup_age_seconds", "Since the newest backup that was verified", ()),
        ("backup_failed_ratio", "1 where the newest backup failed", ()),
        ("watch_target_up_ratio", "1 where a page answers", ("target",)),
        ("watch_alert_state", "1 for an alert that is pending or firing", ("rule", "state", "series")),
    )
)  # fmt: skip
