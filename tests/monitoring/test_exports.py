"""Files for Prometheus and Grafana: the same conditions, in their words."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from tonnage.monitoring.alerts.reading import default_rules, read_rules
from tonnage.monitoring.exports import export_files, promql

TEXT = """
defaults: no
rules:
  newest: {when: {metric: load, labels: {run: chat-*, team: a.b}, above: 0.5}, for: 5m}
  slow: {when: {metric: wait_seconds, take: p95, over: 5m, across: sum, above: 1}, unless: [newest]}
  spend: {when: {metric: usd_total, take: increase, over: 24h, across: sum, above: 100}}
  stuck: {when: {metric: step, take: age, over: 15m, above: 800}}
"""


@pytest.mark.parametrize(
    ("name", "expression"),
    [
        ("newest", 'load{run=~"chat\\\\-.*", team="a.b"} > 0.5'),
        ("slow", "histogram_quantile(0.95, sum by (le) (rate(wait_seconds_bucket[300s]))) > 1"),
        ("spend", "sum(increase(usd_total[86400s])) > 100"),
        ("stuck", "changes(step[800s]) == 0"),
    ],
)
def test_conditions_in_promql(name: str, expression: str) -> None:
    """Each way of taking a figure has its function."""
    rule = next(rule for rule in read_rules(TEXT, file=None).rules if rule.name == name)
    assert promql(rule.condition) == expression


def test_files_carry_every_rule() -> None:
    """A rule, a panel, and what has no words in Prometheus as an annotation."""
    files = export_files(read_rules(TEXT, file=None), watch_address="127.0.0.1:9464")
    rules = yaml.safe_load(files["rules.yml"])["groups"][0]["rules"]
    assert [one["alert"] for one in rules] == ["newest", "slow", "spend", "stuck"]
    assert rules[0]["for"] == "300s"
    assert rules[1]["expr"].endswith('unless on() ALERTS{alertname="newest", alertstate="firing"}')
    assert [panel["title"] for panel in json.loads(files["grafana-dashboard.json"])["panels"]] == [
        "newest", "slow", "spend", "stuck",
    ]  # fmt: skip


@pytest.mark.slow
def test_promtool_takes_them(tmp_path: Path) -> None:
    """The real tool of Prometheus checks settings and rules: of this file, and of the default rules."""
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed")
    for name, rules in (("own", read_rules(TEXT, file=None)), ("default", default_rules())):
        folder = tmp_path / name
        folder.mkdir()
        for file, text in export_files(rules, watch_address="127.0.0.1:9464").items():
            (folder / file).write_text(text, encoding="utf-8")
        subprocess.run([promtool, "check", "config", str(folder / "prometheus.yml")], check=True, capture_output=True)
