"""The watch as it runs: rounds over real run folders and pages, and what its actions really do."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from tonnage.monitoring.actions import ActionRunner, Hands
from tonnage.monitoring.alerts.reading import read_rules
from tonnage.monitoring.alerts.rules import Channel
from tonnage.monitoring.audit import AuditFile, LateAudit
from tonnage.monitoring.collecting import Collector, page_figures
from tonnage.monitoring.figures import series
from tonnage.monitoring.history import MetricHistory
from tonnage.monitoring.notifying import AlertMessage, notify
from tonnage.monitoring.page import WatchPage
from tonnage.monitoring.watcher import SteadyClock, Watcher, WatchParts
from tonnage.runs import EventKind, RunFolder, RunSpec
from tonnage.runs.folder import append_values
from tonnage.runs.spec import DataSource, DataSpec, GuardSpec

pytest.importorskip("prometheus_client.parser")
NOW = 1_800_000_000.0


class Clock:
    """A wall clock and a steady one, set by hand."""

    def __init__(self) -> None:
        self.wall, self.steady = NOW, 100.0

    def pass_s(self, seconds: float) -> None:
        self.wall += seconds
        self.steady += seconds

    def made(self) -> SteadyClock:
        return SteadyClock(lambda: self.wall, lambda: self.steady)


class Site(ThreadingHTTPServer):
    """A page of figures to read, and a place that takes posts."""

    page, posted, status = "load 1\n", list[dict[str, Any]](), 200
    slow_s = 0.0  # of the first post

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.posted = []
        self.hold = threading.Event()  # posts are answered while it is set
        self.hold.set()
        self.url = f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: Site

    def do_GET(self) -> None:
        self._answer(self.server.page.encode())

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        seconds, self.server.slow_s = self.server.slow_s, 0.0
        time.sleep(seconds)
        self.server.hold.wait(60.0)
        self.server.posted.append(body)
        self._answer(b"{}")

    def _answer(self, content: bytes) -> None:
        self.send_response(self.server.status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def site() -> Iterator[Site]:
    made = Site()
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield made
    made.shutdown()
    made.server_close()
    thread.join()


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    run = RunFolder(tmp_path / "runs" / "one")
    data = DataSpec(train=DataSource(location="rows.jsonl", format="jsonl"))
    run.create(RunSpec(name="one", task="causal-lm", model="gpt2", data=data, guard=GuardSpec(usd_per_hour=3.6)))
    run.record(EventKind.STARTED, who="supervisor", attempt=1)
    run.record(EventKind.TRAINING, who="rank0", step=0)
    return run


class Home:
    """A watch over a folder of runs, its rounds made by hand."""

    def __init__(
        self, path: Path, text: str, clock: Clock,
        runs: tuple[RunFolder, ...] | Callable[[], tuple[RunFolder, ...]] = (),
    ) -> None:  # fmt: skip
        self.said: list[str] = []
        self.stopped: list[str | None] = []
        self.audit = AuditFile(path / "audit.jsonl")
        late = LateAudit(self.audit, self.said.append)
        rules, found = read_rules(text, file=None), runs if callable(runs) else lambda: runs
        self.actions = ActionRunner(
            channels=rules.channels, audit=late, say=self.said.append,
            hands=Hands(
                stop=self._stop, plan=lambda run: f"planned {run}", stop_budget=lambda name: f"stopped {name}",
                smaller_batch=lambda run: f"halved {run}", scale=lambda service, do: f"{do} {service}",
            ),
        )  # fmt: skip
        self.page = WatchPage()
        self.history = MetricHistory(path / "history.db", keep_s=rules.keep_s)
        self.watcher = Watcher(
            WatchParts(
                rules=rules, collector=Collector(runs=found, targets=rules.targets), history=self.history,
                actions=self.actions, audit=late, page=self.page, state_file=path / "state.json",
                say=self.said.append,
            ),
            clock.made(),
        )  # fmt: skip

    def _stop(self, run: str | None) -> str:
        self.stopped.append(run)
        return f"stopped {run}"

    def close(self) -> None:
        self.actions.close()
        self.history.close()


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


def test_a_killed_watch_goes_on_where_it_was(tmp_path: Path, folder: RunFolder) -> None:
    """Another process: the window's figures and the alert's state are there, nothing is done a second time."""
    text = """
defaults: no
rules:
  grown: {when: {metric: tonnage_run_step, take: increase, over: 10m, above: 40}, do: [{stop: run}], again_after: 1h}"""
    clock = Clock()
    append_values(folder.metrics_file, {"step": 10})
    first = Home(tmp_path, text, clock, (folder,))
    first.watcher.round()
    first.close()
    clock.pass_s(300.0)
    append_values(folder.metrics_file, {"step": 60})
    second = Home(tmp_path, text, clock, (folder,))
    second.watcher.round()
    second.close()
    assert second.stopped == ["one"]  # 50 more than the first watch saw
    clock.pass_s(30.0)
    third = Home(tmp_path, text, clock, (folder,))
    assert third.watcher.round() == []
    third.close()
    assert third.stopped == []


@pytest.mark.parametrize("jump_s", [86_400.0, -86_400.0])
def test_a_jump_of_the_clock_fires_nothing(tmp_path: Path, folder: RunFolder, jump_s: float) -> None:
    """The wall's clock goes on or back by a day: said once, and no length of time is a day longer or shorter."""
    text = "defaults: no\nrules: {stuck: {when: {metric: tonnage_run_step, take: age, over: 1h, above: 1800}}}"
    append_values(folder.metrics_file, {"step": 10})
    clock = Clock()
    home = Home(tmp_path, text, clock, (folder,))
    home.watcher.round()
    clock.pass_s(10.0)
    clock.wall += jump_s
    assert home.watcher.round() == []
    clock.pass_s(1795.0)
    assert [one.kind for one in home.watcher.round()] == ["fired"]
    home.close()
    assert [words for words in home.said if "clock" in words] == [
        f"the clock jumped by {jump_s:+.0f} s: lengths of time are counted on without it"
    ]


def test_a_clock_that_was_set_back_between_two_watches_holds_no_alert_up(tmp_path: Path, folder: RunFolder) -> None:
    """An alert acted a day «ahead»: the next watch acts again after `again_after`, and not before."""
    rule = "when: {metric: tonnage_run_step, above: 40}, do: [{stop: run}], again_after: 1h"
    text = f"defaults: no\nrules: {{far: {{{rule}}}}}"
    append_values(folder.metrics_file, {"step": 50})
    clock = Clock()
    first = Home(tmp_path, text, clock, (folder,))
    first.watcher.round()
    first.close()
    back = Clock()
    back.wall -= 86_400.0
    second = Home(tmp_path, text, back, (folder,))
    second.watcher.round()
    assert any("the clock is 86400 s behind" in words for words in second.said)
    back.pass_s(3700.0)
    second.watcher.round()
    second.close()
    assert (first.stopped, second.stopped) == (["one"], ["one"])


def test_webhooks_that_hang_delay_no_round_and_no_stop(tmp_path: Path, folder: RunFolder, site: Site) -> None:
    """Six of them, more than there are threads for messages: rounds go on, and the run is stopped meanwhile."""
    site.hold.clear()
    hooks = ", ".join(f'c{number}: {{webhook: "{site.url}/{number}"}}' for number in range(6))
    told = ", ".join(f"{{notify: c{number}}}" for number in range(6))
    rule = f"when: {{metric: tonnage_run_step, above: 40}}, do: [{told}, {{stop: run}}]"
    text = f"defaults: no\nchannels: {{{hooks}}}\nrules: {{far: {{{rule}}}}}"
    append_values(folder.metrics_file, {"step": 50})
    clock = Clock()
    home = Home(tmp_path, text, clock, (folder,))
    for _ in range(3):
        home.watcher.round()
        clock.pass_s(10.0)
    until = time.monotonic() + 30.0
    while not home.stopped and time.monotonic() < until:
        time.sleep(0.01)
    assert (home.stopped, site.posted) == (["one"], [])
    site.hold.set()
    home.close()
    assert len(site.posted) == 6


def test_a_full_disk_stops_nothing_and_loses_nothing(
    tmp_path: Path, folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Figures, state and audit cannot be written for a while: said once each, the run is stopped all the same; then
    every figure and every line is written, those of meanwhile with the time at which they were."""

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    text = (
        "defaults: no\nrules: {far: {when: {metric: tonnage_run_step, above: 40}, do: [{stop: run}], again_after: 1s}}"
    )
    append_values(folder.metrics_file, {"step": 50})
    clock = Clock()
    home = Home(tmp_path, text, clock, (folder,))
    with monkeypatch.context() as patched:
        patched.setattr("tonnage.monitoring.watcher.write_whole", full)
        patched.setattr(home.audit, "append", full)
        patched.setattr(home.history, "add", full)
        for _ in range(2):
            home.watcher.round()
            clock.pass_s(10.0)
    home.watcher.round()
    home.actions.close()
    assert home.stopped == ["one"] * 3
    for what in ("figures", "audit", "state"):
        assert sum(words.startswith(f"{what}: ") and "works again" not in words for words in home.said) == 1, what
        assert sum(words.startswith(f"{what}: works again") for words in home.said) == 1, what
    (steps,) = home.history.points([series("tonnage_run_step", {"run": "one"})], since=NOW - 1, until=NOW + 60)
    assert (steps.times - NOW).round().tolist() == [0.0, 10.0, 20.0]
    lines = list(home.audit.lines())
    assert [line.what for line in lines].count("done") == 3
    assert ["written_at" in line.fields for line in lines[:3]] == [True] * 3
    home.history.close()


def test_what_the_disk_never_takes_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over the bound the oldest lines are lost: the audit says how many; at the end what is held is said."""
    said: list[str] = []
    file = AuditFile(tmp_path / "audit.jsonl")
    late = LateAudit(file, said.append, most=2)

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(file, "append", full)
        for number in range(4):
            late.put(at=datetime(2026, 11, 27, 12, number, tzinfo=UTC), who="watch", what=f"line {number}")
        late.close(datetime(2026, 11, 27, 12, 5, tzinfo=UTC))
    assert said[-1] == "audit: 2 lines could not be written, and are lost"
    late.flush(datetime(2026, 11, 27, 12, 6, tzinfo=UTC))
    assert [line.what for line in file.lines()] == ["lines lost", "line 2", "line 3"]
    assert next(file.lines()).fields == {"lines": 2}


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


def test_a_home_that_is_gone_for_a_while_is_said(tmp_path: Path, folder: RunFolder) -> None:
    """Its disk is taken away and comes back: the watch goes on, and says both once."""
    clock, gone = Clock(), [False]

    def runs() -> tuple[RunFolder, ...]:
        if gone[0]:
            raise FileNotFoundError(2, "No such file or directory")
        return (folder,)

    home = Home(tmp_path, "defaults: no", clock, runs)
    for gone[0] in (False, True, True, False):
        home.watcher.round()
        clock.pass_s(10.0)
    home.close()
    assert home.said == ["runs: [Errno 2] No such file or directory", "runs: answers again"]


def test_a_page_that_does_not_answer_is_said_once(tmp_path: Path, site: Site) -> None:
    """When it goes and when it comes back; others are looked at all the same."""
    text = f'defaults: no\nscrape: {{door: {{url: "{site.url}/metrics", labels: {{team: a}}}}}}'
    clock = Clock()
    home = Home(tmp_path, text, clock)
    for status in (200, 503, 503, 200):
        site.status = status
        home.watcher.round()
        clock.pass_s(10.0)
    home.close()
    assert home.said == [f"door: {site.url}/metrics answers 503", "door: answers again"]


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
