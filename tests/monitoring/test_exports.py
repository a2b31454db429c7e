"""Files for Prometheus and Grafana: the same conditions, in their words."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from tonnage.monitoring.alerts.reading import default_rules, read_rules
from tonnage.monitoring.exports import export_files, promql
from tonnage.testing.slurm import free_ports

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
        ("stuck", "changes(step[800s]) == 0 and step offset 800s"),
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


@pytest.mark.slow
def test_a_prometheus_scrapes_and_evaluates_them(tmp_path: Path) -> None:
    """A real one: it scrapes the watch's address, evaluates the rules of a file and the default rules without an error,
    and fires the one that holds; a run that has just begun is not stuck."""
    prometheus = shutil.which("prometheus")
    if prometheus is None:
        pytest.skip("prometheus is not installed")
    text = "rules: {high: {when: {metric: tonnage_run_step, above: 5}}, half: {when: {metric: load, below: 1}}}"
    page = b'# TYPE tonnage_run_step gauge\ntonnage_run_step{run="teach"} 7\n'

    class Watch(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("content-type", "text/plain; version=0.0.4")
            self.send_header("content-length", str(len(page)))
            self.end_headers()
            self.wfile.write(page)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Watch) as watch:
        threading.Thread(target=watch.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        files = export_files(read_rules(text, file=None), watch_address=f"127.0.0.1:{watch.server_address[1]}")
        for name, content in files.items():
            faster = re.sub(r"(scrape_interval|evaluation_interval|interval): \S+", r"\1: 1s", content)
            (tmp_path / name).write_text(faster, encoding="utf-8")
        url = f"http://127.0.0.1:{free_ports(1)[0]}"
        command = [
            prometheus, "--config.file", str(tmp_path / "prometheus.yml"),
            "--storage.tsdb.path", str(tmp_path / "data"), "--web.listen-address", url.removeprefix("http://"),
        ]  # fmt: skip
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            try:
                until = time.monotonic() + 60.0
                while True:
                    rules = [one for group in asked(f"{url}/api/v1/rules", "groups") for one in group["rules"]]
                    targets = asked(f"{url}/api/v1/targets", "activeTargets")
                    states = {one["name"]: one["state"] for one in rules if one["type"] == "alerting"}
                    known = bool(rules) and all(one["health"] != "unknown" for one in rules)
                    if known and "firing" in states.values() and [one["health"] for one in targets] == ["up"]:
                        break
                    assert time.monotonic() < until, (states, [one.get("lastError") for one in [*rules, *targets]])
                    time.sleep(0.5)
                assert {one["health"] for one in rules} == {"ok"}
                assert [name for name, state in states.items() if state == "firing"] == ["high"]
                assert len(states) > 10  # the default rules too
            finally:
                process.terminate()
        watch.shutdown()


def asked(url: str, member: str) -> list[dict[str, Any]]:
    """A list of Prometheus' answer; empty while it does not answer yet."""
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            found: list[dict[str, Any]] = json.load(answer)["data"][member]
            return found
    except OSError:
        return []
