"""A watch when something fails: its clock, its disk, its pages, its own process."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.monitoring.watched import NOW, Clock, Home, Site

from tonnage.monitoring.audit import AuditFile, LateAudit
from tonnage.monitoring.figures import series
from tonnage.runs import RunFolder
from tonnage.runs.folder import append_values

pytest.importorskip("prometheus_client.parser")


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
