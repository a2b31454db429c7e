"""Files for a Prometheus and a Grafana that a team already has: scrape settings, alerting rules, a dashboard.

PromQL: https://prometheus.io/docs/prometheus/latest/querying/functions/. What a rule does, its hysteresis, its quiet
hours and its limits have no words there: each rule's annotations say so.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

import yaml

from tonnage.monitoring.alerts.rules import AlertRule, Condition, WatchRules, duration_words

QUANTILES: Final = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
_OVER_TIME: Final = {"mean": "avg_over_time", "max": "max_over_time", "min": "min_over_time", "rate": "rate",
                     "increase": "increase"}  # fmt: skip
_ACROSS: Final = {"sum": "sum", "max": "max", "mean": "avg"}


def export_files(rules: WatchRules, *, watch_address: str) -> dict[str, str]:
    """Name -> text of `prometheus.yml`, `rules.yml` and `grafana-dashboard.json`.

    `watch_address`: host and port at which `tonnage watch --port` shows what it sees.
    """
    return {
        "prometheus.yml": _yaml(_scrapes(rules, watch_address)),
        "rules.yml": _yaml({"groups": [{"name": "tonnage", "rules": [_alert(one) for one in rules.rules]}]}),
        "grafana-dashboard.json": json.dumps(_dashboard(rules), indent=2) + "\n",
    }


def promql(condition: Condition) -> str:
    """The condition as an expression that has a value where it holds.

    >>> promql(Condition(metric="x", take="mean", over_s=300.0, direction="above", limit=0.9, clear_at=0.9))
    'avg_over_time(x[300s]) > 0.9'
    """
    compared = ">" if condition.direction == "above" else "<"
    if condition.take == "age":
        over, selector = max(int(condition.limit), 1), _selector(condition)
        if condition.direction == "below":
            return f"changes({selector}[{over}s]) > 0"
        return f"changes({selector}[{over}s]) == 0 and {selector} offset {over}s"  # a new series is not an old one
    return f"{value_of(condition)} {compared} {condition.limit:g}"


def value_of(condition: Condition) -> str:
    """The figure that a condition reads."""
    selector, over = _selector(condition), f"[{int(condition.over_s)}s]"
    if condition.is_quantile:
        rate = f"rate({selector}{over})"
        if condition.across != "each":
            rate = f"sum by (le) ({rate})"
        return f"histogram_quantile({QUANTILES[condition.take]:g}, {rate})"
    if condition.take == "age":
        return f"changes({selector}{over})"
    if condition.take == "ahead":  # a line of least squares: it follows a step, which the watch's median does not
        taken = f"predict_linear({selector}{over}, {int(condition.over_s)})"
        return taken if condition.across == "each" else f"{_ACROSS[condition.across]}({taken})"
    taken = selector if condition.take == "newest" else f"{_OVER_TIME[condition.take]}({selector}{over})"
    return taken if condition.across == "each" else f"{_ACROSS[condition.across]}({taken})"


def _selector(condition: Condition) -> str:
    metric = f"{condition.metric}_bucket" if condition.is_quantile else condition.metric
    inside = ", ".join(f"{name}{_matcher(pattern)}" for name, pattern in condition.labels)
    return f"{metric}{{{inside}}}" if inside else metric


def _matcher(pattern: str) -> str:
    """A pattern as of file names -> an exact match, or a regular expression (RE2, anchored)."""
    if not any(letter in pattern for letter in "*?"):
        return f"={json.dumps(pattern)}"
    parts = re.split(r"([*?])", pattern)
    found = "".join({"*": ".*", "?": "."}.get(part, re.escape(part)) for part in parts)
    return f"=~{json.dumps(found)}"


def _alert(rule: AlertRule) -> dict[str, Any]:
    blocked = "".join(f' unless on() ALERTS{{alertname="{name}", alertstate="firing"}}' for name in rule.unless)
    acts = "; ".join(action.text for action in rule.actions if action.acts) or "nothing but notify"
    said = {"summary": rule.summary or rule.condition.text, "tonnage": f"tonnage watch would: {acts}"}
    if rule.condition.clear_at != rule.condition.limit:
        said["hysteresis"] = f"tonnage watch ends it at {rule.condition.clear_at:g}"
    found: dict[str, Any] = {"alert": rule.name, "expr": promql(rule.condition) + blocked}
    if rule.for_s:
        found["for"] = f"{int(rule.for_s)}s"
    return {**found, "labels": {"source": "tonnage"}, "annotations": said}


def _scrapes(rules: WatchRules, watch_address: str) -> dict[str, Any]:
    """One job: the page of the watch has the figures of the runs and of every page that it scrapes."""
    every = f"{max(int(rules.every_s), 1)}s"
    job = {"job_name": "tonnage", "honor_labels": True, "static_configs": [{"targets": [watch_address]}]}
    return {
        "global": {"scrape_interval": every, "evaluation_interval": every},
        "rule_files": ["rules.yml"],
        "scrape_configs": [job],
    }


def _dashboard(rules: WatchRules) -> dict[str, Any]:
    """One panel for each figure that a rule reads, with the rule's limit as a line (Grafana's dashboard JSON model)."""
    panels = [_panel(number, rule) for number, rule in enumerate(rules.rules)]
    return {
        "title": "Tonnage", "uid": "tonnage-watch", "schemaVersion": 39, "editable": True, "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"}, "tags": ["tonnage"],
        "templating": {"list": [{"name": "datasource", "type": "datasource", "query": "prometheus"}]},
        "panels": panels,
    }  # fmt: skip


def _panel(number: int, rule: AlertRule) -> Mapping[str, Any]:
    source = {"type": "prometheus", "uid": "${datasource}"}
    steps: list[dict[str, Any]] = [{"color": "green", "value": None}, {"color": "red", "value": rule.condition.limit}]
    if rule.condition.direction == "below":
        steps = [{"color": "red", "value": None}, {"color": "green", "value": rule.condition.limit}]
    for_words = f" for {duration_words(rule.for_s)}" if rule.for_s else ""
    return {
        "id": number + 1, "type": "timeseries", "title": rule.name, "datasource": source,
        "description": f"{rule.summary or rule.condition.text}: {rule.condition.text}{for_words}",
        "gridPos": {"h": 8, "w": 12, "x": 12 * (number % 2), "y": 8 * (number // 2)},
        "targets": [{"refId": "A", "expr": value_of(rule.condition), "datasource": source}],
        "fieldConfig": {
            "defaults": {
                "thresholds": {"mode": "absolute", "steps": steps}, "unit": _unit(rule.condition.metric),
                "custom": {"thresholdsStyle": {"mode": "line"}},
            },
            "overrides": [],
        },
    }  # fmt: skip


def _unit(metric: str) -> str:
    """Grafana's name of the unit that a metric's name ends with."""
    bare = metric.removesuffix("_total")
    for ending, unit in (("_ratio", "percentunit"), ("_seconds", "s"), ("_bytes", "bytes"), ("_usd", "currencyUSD"),
                         ("_watts", "watt"), ("_celsius", "celsius"), ("_joules", "joule")):  # fmt: skip
        if bare.endswith(ending):
            return unit
    return "short"


def _yaml(value: Any) -> str:
    return yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=120)
