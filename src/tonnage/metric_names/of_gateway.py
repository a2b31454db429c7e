"""Metrics of the gateway."""

from __future__ import annotations

from typing import Final

from tonnage.metric_names.kinds import Metric, MetricKind


def _of(name: str, help: str, kind: MetricKind = "counter", *labels: str) -> Metric:
    return Metric(name=f"tonnage_gateway_{name}", kind=kind, help=help, labels=labels)


GATEWAY_METRICS: Final = (
    _of(
        "requests_total",
        "Requests answered, by route, deployment and status.",
        "counter",
        "route",
        "deployment",
        "status",
    ),
    _of("tokens_total", "Tokens, by route, deployment and kind.", "counter", "route", "deployment", "kind"),
    _of("usd_total", "Dollars settled, by route and deployment.", "counter", "route", "deployment"),
    _of("key_requests_total", "Requests that were let in, by key and team.", "counter", "key", "team"),
    _of("key_tokens_total", "Tokens, by key, team and kind.", "counter", "key", "team", "kind"),
    _of("key_usd_total", "Dollars settled, by key and team.", "counter", "key", "team"),
    _of("refused_total", "Requests refused by an allowance.", "counter", "limit"),
    _of("retries_total", "Attempts after the first, by deployment that failed.", "counter", "deployment"),
    _of("faults_total", "Attempts that failed, by deployment and kind.", "counter", "deployment", "kind"),
    _of("cache_total", "Requests of routes with a cache, by what they met.", "counter", "route", "met"),
    _of(
        "not_compared_total",
        "Questions without an embedding, for which no alike one was looked for.",
        "counter",
        "route",
    ),
    _of("shared_cache_total", "Looks into Redis and answers kept there, by what came of it.", "counter", "met"),
    _of("saved_usd_total", "Dollars that answers from the cache would have cost.", "counter", "route"),
    _of("over_hold_total", "Attempts that cost more than was held.", "counter", "deployment"),
    _of("reloads_total", "Changed files that workers were sent, followed or refused.", "counter", "result"),
    _of("log_total", "Requests for the request log: written, left out of the sample, or lost.", "counter", "result"),
    _of("idempotency_total", "Requests with an idempotency key, by what it met.", "counter", "met"),
    _of("waiting_total", "Requests that had to wait at a limit, by what ended it.", "counter", "limit", "met"),
    _of(
        "hedges_total", "Requests for which a second deployment was asked, by who answered.", "counter", "route", "won"
    ),
    _of("guardrails_total", "Checks of guardrails, by rule, side and what they met.", "counter", "rule", "on", "met"),
    _of("spans_total", "OpenTelemetry spans, sent or lost.", "counter", "result"),
    _of(
        "canary_total",
        "Attempts of routes with a canary, by side and what they met.",
        "counter",
        "route",
        "side",
        "met",
    ),
    _of(
        "budget_expected_share",
        "Share of a budget that is spent at the end of its window, at the present rate.",
        "gauge",
        "limit",
    ),
    _of("budget_reached_in_seconds", "Seconds until a budget is reached at the present rate.", "gauge", "limit"),
    _of("budget_warns", "Whether a budget is expected to be reached in its window (1) or not (0).", "gauge", "limit"),
    _of("shadow_total", "Requests asked of a shadow too, by how the answers compare.", "counter", "route", "met"),
    _of(
        "classified_total",
        "Requests of routes with rules on texts, by what said so and what it said.",
        "counter",
        "route",
        "by",
        "met",
    ),
    _of("classifying_seconds", "What a classifier added to a request, by classifier.", "histogram", "classifier"),
    _of("gone_total", "Clients that left before their answer was whole.", "counter"),
    _of("added_seconds", "Time in the gateway before the request was sent on.", "histogram"),
    _of(
        "first_byte_seconds",
        "From a request to the first byte of its answer, by deployment.",
        "histogram",
        "route",
        "deployment",
    ),
    _of("waiting_seconds", "Time in the line of a limit.", "histogram", "limit"),
    _of(
        "latency_seconds", "From a request to the end of its answer, by deployment.", "histogram", "route", "deployment"
    ),
    _of("under_way", "Requests at a deployment.", "gauge", "deployment"),
    _of("open_holds", "Amounts held for requests under way.", "gauge"),
    _of("waiting", "Requests in the lines of limits.", "gauge"),
    _of("uncertain_holds", "Amounts held for requests of which it is not known what they cost.", "gauge"),
)
