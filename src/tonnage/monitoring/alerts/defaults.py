"""The rules that a watch has without a file, as text of a file: what most teams write down first."""

from __future__ import annotations

from typing import Final

DEFAULT_RULES: Final = """\
rules:
  gpu-busy:
    summary: a GPU has been busy for 10 minutes
    when: {metric: tonnage_gpu_utilization_ratio, take: mean, over: 10m, above: 0.9, clear: 0.8}
    do: [{plan: run}]
  gpu-idle:
    summary: a GPU is paid for and does little
    when: {metric: tonnage_gpu_utilization_ratio, take: mean, over: 15m, below: 0.2, clear: 0.3}
    do: []
  gpu-memory:
    summary: the memory of a GPU is above 85 %, which is healthy where it does not grow
    when: {metric: tonnage_gpu_memory_used_ratio, take: min, over: 5m, above: 0.85, clear: 0.8}
    do: []
  gpu-memory-grows:
    summary: the memory of a GPU grows and will be full within 30 minutes
    when: {metric: tonnage_gpu_memory_used_ratio, take: ahead, over: 30m, above: 1.0, clear: 0.95}
    for: 5m
    do: [{batch: smaller}]
    unless: [gpu-memory-retries]
    tries: 2
  gpu-memory-retries:
    summary: the allocator of a run gave back what it kept, again and again, to find memory
    when: {metric: tonnage_run_allocation_retries_total, take: increase, over: 10m, above: 2}
    do: [{batch: smaller}]
    tries: 2
  slow-answers:
    summary: the 95th percentile of answers is over a second
    when: {metric: tonnage_encoder_request_seconds, take: p95, over: 5m, above: 1.0, clear: 0.8}
    do: []
  slow-service:
    summary: the 95th percentile of a service's answers is over what its workload promises
    when: {metric: tonnage_service_p95_to_promise_ratio, take: mean, over: 5m, above: 1.0, clear: 0.7}
    do: [{scale: replicas}]
    again_after: 15m
    most_per_day: 6
  slow-gateway:
    summary: the 95th percentile of the gateway's answers is over a second before the first byte
    when: {metric: tonnage_gateway_first_byte_seconds, take: p95, over: 5m, above: 1.0, clear: 0.8}
    do: []
  spend:
    summary: the runs of this home have cost over 1,000 USD in 24 hours
    when: {metric: tonnage_run_spend_usd_total, take: increase, over: 24h, across: sum, above: 1000}
    do: [{stop: run}]
  budget-limit:
    summary: a hard budget is at its limit
    when: {metric: tonnage_budget_spent_to_limit_ratio, labels: {at_limit: hard}, above: 0.9999}
    do: [{stop: budget}]
  budget-forecast:
    summary: a budget will be passed at the pace so far
    when: {metric: tonnage_budget_forecast_to_limit_ratio, above: 1.0, clear: 0.95}
    for: 10m
    do: []
  plan-winner:
    summary: prices moved a plan's winner; the new one saves so many US dollars
    when: {metric: tonnage_plan_winner_moved_usd, above: -1000000000}
    do: []
  spot-notice:
    summary: a cloud takes the machine of a run away
    when: {metric: tonnage_run_notices_total, take: increase, over: 10m, above: 0}
    do: []
  backup-failed:
    summary: the newest backup failed
    when: {metric: tonnage_backup_failed_ratio, above: 0.5}
    do: []
  backup-age:
    summary: the newest backup is older than 2 days
    when: {metric: tonnage_backup_age_seconds, above: 172800}
    do: []
  stuck:
    summary: a run has made no step for 15 minutes
    when: {metric: tonnage_run_step, take: age, over: 15m, above: 890}
    do: []
  checkpoint-age:
    summary: the newest checkpoint of a run is older than 2 hours
    when: {metric: tonnage_run_checkpoint_age_seconds, above: 7200}
    do: []
  slower-than-predicted:
    summary: a run is slower than the interval that was predicted for it
    when: {metric: tonnage_run_rate_to_predicted_low_ratio, take: mean, over: 10m, below: 1.0, clear: 1.02}
    do: [{plan: run}]
  over-budget:
    summary: a run will more likely than not cost more than its limit
    when: {metric: tonnage_run_forecast_to_limit_ratio, above: 1.0, clear: 0.95}
    for: 5m
    do: []
"""
