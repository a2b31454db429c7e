"""The watch as it runs: rounds over real run folders and pages, and what its actions really do."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from tests.monitoring.watched import Clock, Home, Site

from tonnage.monitoring.alerts.rules import Channel
from tonnage.monitoring.collecting import page_figures
from tonnage.monitoring.figures import series
from tonnage.monitoring.notifying import AlertMessage, notify
from tonnage.runs import RunFolder
from tonnage.runs.folder import append_values

pytest.importorskip("prometheus_client.parser")


def test_a_run_is_stopped_and_people_are_reported(tmp_path: Path, folder: RunFolder, site: Site) -> None:
    """The step passes its limit: the alert is posted, the run stopped, and the audit has each before and after."""
    text = f"""
defaults: no
channels: {{team: {{webhook: "{site.url}/hook"}}}}
rules: {{far: {{when: {{metric: tonnage_run_step, above: 40}}, do: [{{notify: team}}, {{stop: run}}]}}}}"""
    clock = Clock()
    home = Home(tmp_path, text, clock, (folder,))
    append_values(folder.metrics_file, {"step": 10})
    assert home.watcher.round() == []
    append_values(folder.metrics_file, {"step": 50})
    clock.pass_s(10.0)
    home.watcher.round()
    home.close()
    assert home.stopped == ["one"]
    (posted,) = site.posted
    assert posted["text"] == 'tonnage alert: tonnage_run_step above 40: 50 [far] tonnage_run_step{run="one"}'
    told = [(line.what, line.fields.get("action")) for line in home.audit.lines()]
    assert told[0] == ("fired", None)
    stop = "save a checkpoint, verify it and stop the run"
    assert told.index(("due", stop)) < told.index(("done", stop))


def test_a_webhook_that_refuses_is_said_and_audited(tmp_path: Path, site: Site) -> None:
    """Three tries, then a line; the URL, which may be secret, stands nowhere."""
    site.status = 500
    site.page = "load 5\n"
    text = f"""
defaults: no
scrape: {{door: {{url: "http://127.0.0.1:1/metrics"}}}}
channels: {{team: {{webhook: "{site.url}/s3cret"}}}}
rules: {{gone: {{when: {{metric: tonnage_watch_target_up_ratio, below: 1}}}}}}"""
    home = Home(tmp_path, text, Clock())
    home.watcher.round()
    home.close()
    assert len(site.posted) == 3
    assert "gone: could not notify team: the webhook does not take the message: it answers 500" in home.said
    assert "s3cret" not in home.audit.path.read_text("utf-8") + "".join(home.said)
    assert [line.what for line in home.audit.lines()] == ["fired", "due", "failed"]


def test_a_command_gets_its_words_not_a_shell(tmp_path: Path, folder: RunFolder) -> None:
    """What a label holds is one word to the program, whatever is in it."""
    out = tmp_path / "said"
    program = f"import sys; open({str(out)!r}, 'w').write(sys.argv[1])"
    command = json.dumps([sys.executable, "-c", program, "{rule} $(id) {value} {label.run}"])
    text = (
        f"defaults: no\nrules: {{far: {{when: {{metric: tonnage_run_step, above: 40}}, do: [{{command: {command}}}]}}}}"
    )
    append_values(folder.metrics_file, {"step": 50})
    home = Home(tmp_path, text, Clock(), (folder,))
    home.watcher.round()
    home.close()
    assert out.read_text() == "far $(id) 50.0 one"


def test_a_post_is_undone_when_the_alert_ends(tmp_path: Path, site: Site) -> None:
    """Scaled up while the page says so, and down again after it: in that order, though the first post takes long."""
    site.slow_s = 0.5
    text = f"""
defaults: no
scrape: {{door: {{url: "{site.url}/metrics"}}}}
rules:
  busy:
    when: {{metric: load, above: 3}}
    do: {{post: {{url: "{site.url}/scale", body: {{n: 4}}, undo: {{n: 1}}}}}}"""
    clock = Clock()
    home = Home(tmp_path, text, clock)
    for load in (5, 5, 1):
        site.page = f"load {load}\n"
        home.watcher.round()
        clock.pass_s(10.0)
    home.close()
    assert site.posted == [{"n": 4}, {"n": 1}]


def test_a_late_service_is_changed_told_and_put_back(tmp_path: Path, site: Site) -> None:
    """The channel gets the alert and the change; the end of the alert takes the change back. A dry run says it."""
    rule = "when: {metric: p95, above: 1.0, clear: 0.7}, do: [{notify: team}, {scale: replicas}]"
    text = f"""
defaults: no
channels: {{team: {{webhook: "{site.url}/hook"}}}}
scrape: {{one: {{url: "{site.url}/metrics", labels: {{service: chat}}}}}}
rules: {{late: {{{rule}}}}}"""
    clock = Clock()
    home = Home(tmp_path, text, clock)
    for value in (2.0, 0.8, 0.6):
        site.page = f"p95 {value}\n"
        home.watcher.round()
        clock.pass_s(10)
    home.close()
    assert "late: act chat" in home.said
    assert home.said[-1].startswith("late: ")
    assert "late: undo chat" in home.said
    assert any(one["text"] == "tonnage: act chat [late]" for one in site.posted)
    assert [line.what for line in home.audit.lines() if "cheapest" in str(line)].count("undo") == 1

    site.page = "p95 2.0\n"
    dry = Home(
        tmp_path / "dry", text.replace("above: 1.0", "above: 1.1").replace("late: {", "late: {dry_run: yes, "), Clock()
    )
    dry.watcher.round()
    dry.close()
    assert "late: dry run: say chat" in dry.said
    # the notification, the change before it is looked for, the change in words
    assert [line.what for line in dry.audit.lines()] == ["fired", "would do", "would do", "would do"]
    assert len([one for one in site.posted if "say chat" in one["text"]]) == 0


def test_an_alert_of_a_slow_run_says_the_likely_reason(tmp_path: Path, site: Site) -> None:
    """In the message and in the audit; its end gives none."""
    text = f"""
defaults: no
channels: {{team: {{webhook: "{site.url}/hook"}}}}
scrape: {{one: {{url: "{site.url}/metrics", labels: {{run: chat}}}}}}
rules:
  slow:
    when: {{metric: tonnage_run_rate_to_predicted_low_ratio, take: mean, over: 20s, below: 1.0}}
    do: [{{notify: team}}]"""
    clock = Clock()
    home = Home(tmp_path, text, clock)
    for ratio in (0.8, 0.8, 0.8, 1.5, 1.5, 1.5):
        site.page = (
            f"tonnage_run_rate_to_predicted_low_ratio {ratio}\ntonnage_run_step_seconds 1\n"
            "tonnage_run_data_wait_seconds 0.3\n"
        )
        home.watcher.round()
        clock.pass_s(10)
    home.close()
    lines = [str(line) for line in home.audit.lines()]
    assert "30 % of the step time was waiting for data" in lines[0]
    assert "(30 % of the step time was waiting for data)" in site.posted[0]["text"]
    assert "waiting" not in site.posted[-1]["text"]


def test_a_dry_run_does_nothing(tmp_path: Path, folder: RunFolder) -> None:
    """It says what would be done, and audits that."""
    text = "defaults: no\nrules: {far: {when: {metric: tonnage_run_step, above: 40}, do: [{stop: run}], dry_run: yes}}"
    append_values(folder.metrics_file, {"step": 50})
    home = Home(tmp_path, text, Clock(), (folder,))
    home.watcher.round()
    home.close()
    assert home.stopped == []
    assert [line.what for line in home.audit.lines()] == ["fired", "would do"]


@pytest.mark.parametrize(
    ("action", "words"),
    [("stop: run", "no run is named"), ("batch: smaller", "no run is named"), ("stop: budget", "no budget is named"),
     ("scale: replicas", "no service is named")],
)  # fmt: skip
def test_an_action_whose_alert_names_nothing_fails(tmp_path: Path, site: Site, action: str, words: str) -> None:
    """A figure of somebody's page says of no run, budget or service: nothing is done, and not «done» in the audit."""
    text = f"""
defaults: no
scrape: {{door: {{url: "{site.url}/metrics"}}}}
rules: {{busy: {{when: {{metric: load, above: 0}}, do: [{{{action}}}]}}}}"""
    home = Home(tmp_path, text, Clock())
    home.watcher.round()
    home.close()
    assert [line.what for line in home.audit.lines()] == ["fired", "due", "failed"]
    assert any(words in said for said in home.said)
    assert home.stopped == []


def test_figures_of_a_page_carry_its_labels() -> None:
    """Buckets and counters under the names that Prometheus gives them."""
    histogram = '# TYPE x histogram\nx_bucket{le="1.0"} 3\nx_bucket{le="+Inf"} 4\nx_sum 2.5\nx_count 4\n'
    text = f"{histogram}# TYPE n counter\nn_total 7\n"
    found = dict(page_figures(text, labels=(("target", "door"),)))
    assert found[series("x_bucket", {"le": "1.0", "target": "door"})] == 3.0
    assert found[series("n_total", {"target": "door"})] == 7.0


def test_the_page_of_a_watch_is_read_by_a_scraper(tmp_path: Path, site: Site) -> None:
    """Figures under their own names and labels, and each alert's state, as another watch reads them."""
    text = f"""
defaults: no
scrape: {{door: {{url: "{site.url}/metrics", labels: {{team: 'a "b"'}}}}}}
rules: {{busy: {{when: {{metric: load, above: 3}}}}, full: {{when: {{metric: load, above: 9}}}}}}"""
    site.page = "load 5\n"
    home = Home(tmp_path, text, Clock())
    url = f"http://127.0.0.1:{home.page.serve(0)}/metrics"
    home.watcher.round()
    found = dict(page_figures(httpx.get(url).text, labels=()))
    home.close()
    load = series("load", {"team": 'a "b"', "target": "door"})
    assert found[load] == 5.0
    firing = {"rule": "busy", "state": "firing", "series": load.text}
    assert found[series("tonnage_watch_alert_state", firing)] == 1.0
    assert sum(key.metric == "tonnage_watch_alert_state" for key in found) == 1


def test_a_chat_and_pagerduty_get_what_they_take(site: Site) -> None:
    """A chat gets text alone; PagerDuty an event that the alert's end resolves, within its lengths."""
    begun = AlertMessage(text="t" * 2000, key="k" * 300, ended=False, fields={"value": 4.0})
    notify(Channel(name="c", kind="slack", address=f"{site.url}/hook"), begun)
    pager = Channel(name="p", kind="pagerduty", address="routing")
    for message in (begun, replace(begun, ended=True)):
        notify(pager, message, pagerduty=f"{site.url}/v2/enqueue")
    chat, trigger, resolve = site.posted
    assert chat == {"text": "t" * 2000}
    assert (trigger["routing_key"], trigger["event_action"], resolve["event_action"]) == (
        "routing", "trigger", "resolve",
    )  # fmt: skip
    assert trigger["dedup_key"] == resolve["dedup_key"] == "k" * 255
    assert trigger["payload"] == {
        "summary": "t" * 1024, "source": "tonnage", "severity": "warning", "custom_details": {"value": 4.0},
    }  # fmt: skip
