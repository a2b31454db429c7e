"""Watch files: what they mean, and what is wrong with them, with line and key."""

from __future__ import annotations

from pathlib import Path

import pytest

from tonnage.errors import InputError, WorkloadError
from tonnage.monitoring.alerts.reading import default_rules, read_rules
from tonnage.monitoring.alerts.reference import render_watch_reference

RULE = "when: {metric: load, above: 10}"
POST = "post: {url: 'http://127.0.0.1:1/x', knob: replicas, direction: "


def rules_text(**rules: str) -> str:
    return "defaults: no\nrules:\n" + "".join(f"  {name}: {{{text}}}\n" for name, text in rules.items())


def test_without_a_file_the_default_rules_hold() -> None:
    """What teams write down first: busy, full, slow, dear. Those that act: memory that grows or was short, late
    services, money."""
    found = {rule.name: rule for rule in default_rules().rules}
    assert {"gpu-busy", "gpu-memory", "slow-answers", "spend"} <= set(found)
    assert [name for name, rule in found.items() if any(action.acts for action in rule.actions)] == [
        "gpu-memory-grows", "gpu-memory-retries", "slow-service", "spend", "budget-limit"
    ]  # fmt: skip
    assert found["spend"].condition.limit == 1000.0


def test_halving_at_85_percent_is_asked_for() -> None:
    """`halve_at_85_percent` lets the default rule act on memory that is high and stable; a rule of the file's own stays
    as it is written."""
    found = {rule.name: rule for rule in read_rules("halve_at_85_percent: yes", file=None).rules}
    assert [action.kind for action in found["gpu-memory"].actions] == ["batch"]
    assert found["gpu-memory"].unless == ("gpu-memory-grows", "gpu-memory-retries")
    own = "halve_at_85_percent: yes\nrules: {gpu-memory: {when: {metric: load, above: 10}, do: [{stop: run}]}}"
    kept = {rule.name: rule for rule in read_rules(own, file=None).rules}
    assert [action.kind for action in kept["gpu-memory"].actions] == ["stop"]


def test_a_rule_takes_the_place_of_a_default_and_tells_every_channel() -> None:
    """A file that names channels hears of the default rules too; its own `do` stands as written."""
    text = (
        "channels: {team: {webhook: 'http://127.0.0.1:1/x'}}\n"
        "rules: {spend: {when: {metric: load, above: 10}, do: [{stop: run}]}}"
    )
    found = {rule.name: rule for rule in read_rules(text, file=None).rules}
    assert [action.kind for action in found["spend"].actions] == ["stop"]
    assert [action.channel for action in found["stuck"].actions] == ["team"]


def test_secrets_come_by_reference() -> None:
    """A chat's address is read from the environment, and is no part of the file."""
    text = "channels: {chat: {slack: env:CHAT_URL}}"
    assert (
        read_rules(text, file=None, environment={"CHAT_URL": "https://x/y"}).channels["chat"].address == "https://x/y"
    )
    with pytest.raises(InputError, match="CHAT_URL is empty"):
        read_rules(text, file=None, environment={})


@pytest.mark.parametrize(
    ("text", "key", "said"),
    [
        (rules_text(a=RULE + ", fro: 2m"), "rules.a.fro", "unknown key"),
        (rules_text(a="when: {metric: load}"), "rules.a.when", "no limit"),
        (rules_text(a="when: {metric: load, above: 1, below: 2}"), "rules.a.when", "or two"),
        (rules_text(a="when: {metric: load, take: mean, above: 1}"), "rules.a.when", "needs a window"),
        (rules_text(a="when: {metric: load, above: 1, clear: 2}"), "rules.a.when.clear", "end while it fires"),
        (rules_text(a=RULE + ", do: [{notify: taem}]"), "rules.a.do[0].notify", "no channel is named 'taem'"),
        (rules_text(a=RULE + ", do: [{stop: run, plan: run}]"), "rules.a.do[0]", "or two"),
        (rules_text(a=RULE + ", do: [{post: {body: {n: 1}}}]"), "rules.a.do[0].post.url", "missing"),
        (rules_text(a=RULE + ", unless: [b]"), "rules.a.unless", "no rule is named 'b'"),
        (rules_text(a=RULE + ", unless: [b]", b=RULE + ", unless: [a]"), "rules.a.unless", "waits for itself"),
        (rules_text(a=RULE + ", quiet: '22:00-07:00 Mars/Base'"), "rules.a.quiet", "names no hours"),
        (rules_text(a=RULE + ", for: 2"), "rules.a.for", "duration with its unit"),
        (rules_text(a="when: {metric: load, above: .nan}"), "rules.a.when.above", "number"),
        (
            rules_text(a="when: {metric: tonnage_gpu_utilisation_ratio, above: 1}"),
            "rules.a.when.metric",
            "no metric is named 'tonnage_gpu_utilisation_ratio'",
        ),
        (rules_text(a=RULE + ", do: [{scale: {}}]"), "rules.a.do[0].scale", "found {}, expected 'replicas'"),
    ],
)
def test_what_is_wrong_names_line_and_key(text: str, key: str, said: str) -> None:
    """Each with the line of its rule."""
    with pytest.raises(WorkloadError, match=said) as caught:
        read_rules(text, file="w.yaml")
    assert key in str(caught.value)
    assert (caught.value.line or 0) >= 3


@pytest.mark.parametrize(
    ("when", "action", "said"),
    [
        ("metric: tonnage_run_step, above: 1, across: sum", "batch: smaller", "has no run to act on: one figure"),
        ("metric: tonnage_backup_age_seconds, above: 1", "stop: run", "does not say which run it is of"),
        ("metric: tonnage_run_step, above: 1", "stop: budget", "does not say which budget it is of"),
        ("metric: tonnage_requests_waiting, above: 1", "scale: replicas", "does not say which service it is of"),
        ("metric: tonnage_encoder_request_seconds, take: p95, over: 5m, above: 1", "plan: run", "which run it is of"),
    ],
)
def test_an_action_without_a_target_is_refused(when: str, action: str, said: str) -> None:
    """Where the alert can never name what is to be acted on: line and key of the action, and a metric that could."""
    text = f"defaults: no\nrules:\n  a:\n    when: {{{when}}}\n    do:\n      - {{{action}}}\n"
    with pytest.raises(WorkloadError, match=said) as caught:
        read_rules(text, file="w.yaml")
    assert (caught.value.line, "rules.a.do[0]." + action.split(":")[0] in str(caught.value)) == (6, True)
    labelled = f"scrape: {{a: {{url: 'http://127.0.0.1:1/m', labels: {{run: x, budget: y, service: z}}}}}}\n{text}"
    if "across" not in when:
        assert read_rules(labelled, file="w.yaml")


def test_a_stop_over_a_sum_is_of_every_run() -> None:
    """As the default rule on money has it."""
    assert read_rules(rules_text(a="when: {metric: load, across: sum, above: 1}, do: [{stop: run}]"), file=None)


@pytest.mark.parametrize(
    ("up", "down", "fight"),
    [
        ("above: 10", "below: 5", False),
        ("above: 10", "below: 12", True),
        ("above: 10, clear: 4", "below: 5", True),
        ("above: 10, clear: 6", "below: 5, clear: 6", False),
    ],
)
def test_rules_that_fight_are_refused(up: str, down: str, fight: bool) -> None:
    """One turns a knob up where the other turns it down: only with room between their limits, hysteresis included."""
    text = rules_text(
        up=f"when: {{metric: load, {up}}}, do: [{{{POST}up}}}}]",
        down=f"when: {{metric: load, {down}}}, do: [{{{POST}down}}}}]",
    )
    if not fight:
        assert len(read_rules(text, file=None).rules) == 2
        return
    with pytest.raises(WorkloadError, match="fights with 'up' over replicas"):
        read_rules(text, file=None)


def test_rules_on_two_figures_fight_unless_one_waits() -> None:
    """Any two figures may pass their limits at once; `unless` says which rule goes first."""
    up = f"when: {{metric: queue, above: 5}}, do: [{{{POST}up}}}}]"
    down = f"when: {{metric: dollars, above: 5}}, do: [{{{POST}down}}}}]"
    with pytest.raises(WorkloadError, match="fights"):
        read_rules(rules_text(up=up, down=down), file=None)
    assert read_rules(rules_text(up=up + ", unless: [down]", down=down), file=None)


def test_the_reference_is_fresh() -> None:
    """docs/watch-file.md is what the models render; `python -m tonnage.monitoring.alerts.reference` writes it."""
    page = Path(__file__).parents[3] / "docs" / "watch-file.md"
    assert page.read_text(encoding="utf-8") == render_watch_reference()


def test_the_example_is_read() -> None:
    """examples/watch/team.watch.yaml stands as it is."""
    from tonnage.api.watch import check_watch

    found = check_watch(Path(__file__).parents[3] / "examples" / "watch" / "team.watch.yaml").found
    assert {"spend", "slow-answers", "service-gone"} <= {rule.name for rule in found.rules}


def test_hints_name_keys_as_a_file_has_them() -> None:
    """`for`, and not the name that Python needs for it; without any channel none is listed."""
    with pytest.raises(WorkloadError, match="unknown key 'qit'") as caught:
        read_rules(rules_text(a=RULE + ", qit: 2m"), file="w.yaml")
    assert "when, for, do" in (caught.value.hint or "")
    with pytest.raises(WorkloadError, match="no channel is named 'team'") as caught:
        read_rules("rules: {a: {when: {metric: load, above: 1}, do: [{notify: team}]}}", file="w.yaml")
    assert "no channel is named in this file yet" in (caught.value.hint or "")
