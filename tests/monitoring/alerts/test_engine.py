"""When alerts fire and end, and which actions are due."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, time

from hypothesis import given
from hypothesis import strategies as st

from tonnage.monitoring.alerts.engine import AlertEngine, Happening
from tonnage.monitoring.alerts.rules import Action, AlertRule, Condition, QuietHours, WatchRules
from tonnage.monitoring.alerts.windows import RecentFigures
from tonnage.monitoring.figures import series

LOAD = series("load", {"run": "a"})
ABOVE = Condition(metric="load", direction="above", limit=10.0, clear_at=8.0)
STOP, TELL = Action(kind="stop"), Action(kind="notify", channel="team")
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC).timestamp()


def rule(name: str = "high", **more: object) -> AlertRule:
    return AlertRule(name=name, **{"condition": ABOVE, "actions": (STOP,), **more})  # type: ignore[arg-type]


def watched(*rules: AlertRule) -> WatchRules:
    return WatchRules(every_s=10.0, keep_s=3600.0, runs=True, targets=(), channels={}, rules=rules)


def played(
    rules: WatchRules, values: Iterable[float], *, every_s: float = 10.0, engine: AlertEngine | None = None,
    start: float = NOON,
) -> list[Happening]:  # fmt: skip
    """What rounds of values of one series bring, ten seconds apart."""
    engine, recent = engine or AlertEngine(rules), RecentFigures(keep_s=3600.0, every_s=every_s)
    found = []
    for number, value in enumerate(values):
        at = start + number * every_s
        recent.add(at, {LOAD: value})
        found += engine.step(at, recent)
    return found


def kinds(found: Iterable[Happening]) -> list[str]:
    return [one.kind for one in found]


def test_it_fires_once_and_ends_behind_the_other_limit() -> None:
    """Between 8 and 10 nothing changes: an alert at the limit does not flap."""
    found = played(watched(rule(actions=())), [9, 11, 9, 11, 9, 7, 9, 11])
    assert kinds(found) == ["fired", "ended", "fired"]


def test_for_must_hold_without_a_break() -> None:
    """Twenty seconds above, a dip, twenty seconds above: not yet thirty."""
    found = played(watched(rule(actions=(), for_s=30.0)), [11, 11, 11, 7, 11, 11, 11, 11])
    assert [(one.kind, one.at - NOON) for one in found] == [("fired", 70.0)]


def test_what_does_not_help_is_not_repeated_for_ever() -> None:
    """Three tries an hour apart, then it gives up and says so once; when it has ended it may begin again."""
    one = rule(again_after_s=20.0, tries=3, actions=(TELL, STOP))
    found = played(watched(one), [11.0] * 20 + [5.0, 11.0])
    assert [(each.kind, each.action and each.action.kind) for each in found] == [
        ("fired", None), ("act", "notify"), ("act", "stop"), ("act", "stop"), ("act", "stop"), ("gave up", None),
        ("act", "notify"), ("ended", None), ("fired", None), ("act", "notify"), ("act", "stop"),
    ]  # fmt: skip


def test_a_scaled_service_is_put_back_when_its_alert_ends_or_has_no_figures() -> None:
    """What was asked for a load does not outlive it; a stop is not undone."""
    scale = Action(kind="scale", knob="replicas of services", direction="up")
    rules = watched(rule(actions=(scale, STOP)))
    assert kinds(played(rules, [11.0, 5.0])) == ["fired", "act", "act", "ended", "undo"]
    engine = AlertEngine(rules)
    played(rules, [11.0], engine=engine)
    assert kinds(engine.step(NOON + 3600.0, RecentFigures(keep_s=3600.0, every_s=10.0))) == ["gone", "undo"]


def test_actions_of_a_day_are_bounded_whatever_happens() -> None:
    """An alert that fires and ends all day long acts as often as the rule allows, and says that it holds back."""
    found = played(watched(rule(most_per_day=3)), [11.0, 5.0] * 10)
    assert kinds(found).count("act") == 3
    assert kinds(found).count("held back") == 7


def test_a_rule_waits_while_another_fires() -> None:
    """`unless`: the second does nothing while the first fires, and acts once that has ended."""
    first = rule("first", condition=replace(ABOVE, limit=20.0, clear_at=20.0), actions=(TELL,))
    second = rule("second", unless=("first",))
    found = played(watched(second, first), [25, 25, 15])
    assert [(one.rule.name, one.kind) for one in found if one.action] == [("first", "act"), ("second", "act")]
    assert found[-1].rule.name == "second"


def test_quiet_hours_hold_notifications_back_not_actions() -> None:
    """At night the run is stopped; people are told in the morning, as it still holds."""
    night = QuietHours(start=time(22), end=time(7), zone="UTC")
    start = datetime(2026, 1, 1, 23, tzinfo=UTC).timestamp()
    found = played(
        watched(rule(quiet=(night,), actions=(TELL, STOP), tries=99)), [11.0] * 10, every_s=3600.0, start=start
    )
    acts = [(one.action.kind, int((one.at - start) / 3600)) for one in found if one.action]
    assert acts[0] == ("stop", 0)
    assert [hours for kind, hours in acts if kind == "notify"] == [8]


def test_an_undo_follows_the_end_of_what_was_done() -> None:
    """What a post turned up is turned down when the alert ends; not where nothing was done."""
    post = Action(kind="post", url="http://127.0.0.1/x", body={"n": 2}, undo={"n": 1})
    assert kinds(played(watched(rule(actions=(post,))), [11, 5])) == ["fired", "act", "ended", "undo"]
    assert "undo" not in kinds(played(watched(rule(actions=(post,), for_s=60.0)), [11, 5]))


def test_a_series_that_is_gone_ends_its_alert() -> None:
    """The run has ended: nobody waits for a figure of it."""
    rules, recent = watched(rule(actions=())), RecentFigures(keep_s=60.0, every_s=10.0)
    engine = AlertEngine(rules)
    recent.add(0.0, {LOAD: 11.0})
    engine.step(0.0, recent)
    recent.add(100.0, {})
    assert kinds(engine.step(100.0, recent)) == ["gone"]


@given(st.lists(st.sampled_from([5.0, 9.0, 11.0]), max_size=40), st.integers(0, 40))
def test_a_restart_changes_nothing(values: list[float], cut: int) -> None:
    """Cut anywhere, its state written and read: the same happenings as without the restart."""
    rules = watched(rule(for_s=20.0, again_after_s=30.0, tries=2))
    whole = played(rules, values)
    first = AlertEngine(rules)
    before = played(rules, values[:cut], engine=first)
    second = AlertEngine(rules)
    second.restore(first.state())
    after = played(rules, values[cut:], engine=second, start=NOON + 10.0 * min(cut, len(values)))
    assert [(one.kind, one.at) for one in before + after] == [(one.kind, one.at) for one in whole]


def test_a_state_of_an_older_version_is_read() -> None:
    """The keys of `tonnage/watch-state@1` hold: the alert that fires is neither notified nor acted on again."""
    alert = {"rule": "high", "metric": "load", "labels": {"run": "a"}, "status": "firing", "since": NOON - 20.0,
             "value": 11.0, "tries": 1, "acted_at": NOON - 10.0, "told": True, "gave_up": False}  # fmt: skip
    state = {"alerts": [alert], "acted": [{"rule": "high", "metric": "load", "labels": {"run": "a"}, "at": [NOON]}]}
    engine = AlertEngine(watched(rule(actions=(STOP, TELL), again_after_s=600.0)))
    engine.restore(state)
    assert engine.state() == state
    assert played(watched(rule()), [11.0], engine=engine) == []
