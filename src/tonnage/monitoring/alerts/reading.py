"""Watch file -> `WatchRules`: names and secrets resolved, what contradicts itself refused with its line."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from datetime import time
from pathlib import Path
from typing import Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from tonnage.comparison.user_files import parse_entries, unknown
from tonnage.errors import did_you_mean, nearest
from tonnage.metric_names import REGISTRY, find_metric
from tonnage.monitoring.alerts.defaults import DEFAULT_RULES
from tonnage.monitoring.alerts.entries import (
    ActionEntry,
    AlertRuleEntry,
    ChannelEntry,
    ConditionEntry,
    OtlpEntry,
    WatchEntries,
)
from tonnage.monitoring.alerts.rules import (
    Action,
    AlertRule,
    Channel,
    Condition,
    OtlpTarget,
    QuietHours,
    ScrapeTarget,
    WatchRules,
    fighting,
)
from tonnage.secret_references import is_reference, read_reference
from tonnage.workload.file.problems import Problem, raise_problems
from tonnage.workload.file.text import load_text

PAGE: Final = "docs/watch.md"
CHANNEL_KINDS: Final = ("webhook", "slack", "pagerduty", "mail")
MEMORY: Final = "gpu-memory"  # of the default rules
MEMORY_RULES: Final = ("gpu-memory-grows", "gpu-memory-retries")  # which halve the micro-batch by themselves
ACTION_KINDS: Final = ("notify", "stop", "batch", "scale", "plan", "command", "post")


def load_rules(path: Path, *, environment: Mapping[str, str] | None = None) -> WatchRules:
    """The rules of a file. WorkloadError names line and key; InputError a reference that leads nowhere."""
    return read_rules(load_text(path), file=str(path), environment=environment)


def default_rules() -> WatchRules:
    """What is watched without a file."""
    return read_rules("{every: 10s}", file=None)


def read_rules(text: str, *, file: str | None, environment: Mapping[str, str] | None = None) -> WatchRules:
    """The rules of a text, the default rules among them unless it says not."""
    entries, document = parse_entries(text, WatchEntries, file=file, page=PAGE)
    own = dict(entries.rules)
    if entries.defaults:
        standard, _ = parse_entries(DEFAULT_RULES, WatchEntries, file=None, page=PAGE)
        own |= {name: rule for name, rule in standard.rules.items() if name not in own}
        if entries.halve_at_85_percent and MEMORY not in entries.rules:
            halving = {"do": (ActionEntry(batch="smaller"),), "tries": 2, "unless": MEMORY_RULES}
            own[MEMORY] = own[MEMORY].model_copy(update=halving)
    raise_problems(_problems(entries, own), document)
    everybody = tuple(Action(kind="notify", channel=name) for name in entries.channels)
    rules = tuple(_rule(one, () if one.name in entries.rules and one.do else everybody) for one in own.values())
    fights = [_fight(*pair) for pair in fighting(rules)]
    raise_problems(fights, document)
    known = os.environ if environment is None else environment
    return WatchRules(
        every_s=entries.every,
        keep_s=entries.keep,
        runs=entries.runs,
        targets=tuple(
            ScrapeTarget(
                name=one.name, url=one.url, labels=tuple(sorted(one.labels.items())),
                bearer=None if one.bearer is None else read_reference(one.bearer, known, f"scrape.{one.name}.bearer"),
            )
            for one in entries.scrape.values()
        ),
        channels={name: _channel(one, known) for name, one in entries.channels.items()},
        rules=rules,
        plans=tuple((Path() if file is None else Path(file).parent).joinpath(one) for one in entries.plans),
        otlp=None if entries.otlp is None else _otlp(entries.otlp, known),
    )  # fmt: skip


def _problems(entries: WatchEntries, rules: Mapping[str, AlertRuleEntry]) -> Iterator[Problem]:
    for name, channel in entries.channels.items():
        if len(_given(channel, CHANNEL_KINDS)) != 1:
            yield Problem(("channels", name), "leads nowhere, or to two places", f"one of {', '.join(CHANNEL_KINDS)}")
    for name, rule in rules.items():
        here: tuple[str | int, ...] = ("rules", name)
        yield from _metric_problems((*here, "when", "metric"), rule.when.metric)
        yield from _condition_problems((*here, "when"), rule.when)
        for index, action in enumerate(rule.do):
            yield from _action_problems((*here, "do", index), action, entries.channels)
            yield from _target_problems((*here, "do", index), action, rule.when, entries)
        for other in rule.unless:
            if other not in rules:
                yield unknown((*here, "unless"), "rule", other, rules)
        if name in _reached(name, rules):
            yield Problem((*here, "unless"), "waits for itself", "take one `unless` of the circle away")
        for hours in rule.quiet:
            yield from _hours_problems((*here, "quiet"), hours)


def _metric_problems(path: tuple[str | int, ...], metric: str) -> Iterator[Problem]:
    """An unknown name of ours would never fire; other names are those of the pages that are scraped."""
    if metric.startswith("tonnage_") and find_metric(metric) is None:
        hint = did_you_mean(nearest(metric, REGISTRY, count=2), "`tonnage watch names` lists them all")
        yield Problem(path, f"no metric is named '{metric}'", hint)


def _condition_problems(path: tuple[str | int, ...], when: ConditionEntry) -> Iterator[Problem]:
    if (when.above is None) == (when.below is None):
        yield Problem(path, "has no limit, or two", "give `above` or `below`")
        return
    if when.take != "newest" and when.over is None:
        yield Problem(path, f"`take: {when.take}` needs a window", "over: 5m")
    if when.take == "newest" and when.over is not None:
        yield Problem((*path, "over"), "the newest figure has no window", "take: mean")
    limit = when.above if when.above is not None else when.below
    if when.clear is not None and limit is not None:
        inside = when.clear <= limit if when.above is not None else when.clear >= limit
        if not inside:
            side = "below" if when.above is not None else "above"
            yield Problem((*path, "clear"), "an alert would end while it fires", f"a figure {side} {limit:g}")


def _action_problems(
    path: tuple[str | int, ...], action: ActionEntry, channels: Mapping[str, ChannelEntry]
) -> Iterator[Problem]:
    given = _given(action, ACTION_KINDS)
    if len(given) != 1:
        yield Problem(path, "is no action, or two", f"one of {', '.join(ACTION_KINDS)}")
        return
    if action.notify is not None and action.notify not in channels:
        yield unknown((*path, "notify"), "channel", action.notify, channels)
    if action.command is not None and not action.command:
        yield Problem((*path, "command"), "names no program", "command: [./page.sh, '{rule}']")
    if action.post is not None and (action.post.knob is None) != (action.post.direction is None):
        yield Problem((*path, "post"), "says a knob without its direction, or the other way round", "give both")
    if action.post is not None and action.post.url.startswith("http://") and "@" in action.post.url:
        yield Problem((*path, "post", "url"), "carries a password in the clear", "leave it out of the URL")


def _target_problems(
    path: tuple[str | int, ...], action: ActionEntry, when: ConditionEntry, entries: WatchEntries
) -> Iterator[Problem]:
    """An action of a run, budget or service whose alert can name none: one figure over all series has no labels, and
    of a metric of the registry they are known. `stop: run` over a sum stops every run."""
    key, label = _targeted(action)
    if label is None or (action.stop == "run" and when.across != "each"):
        return
    if when.across != "each":
        words = f"has no {label} to act on: one figure over all series names none"
        yield Problem((*path, key), words, "leave `across` out, so that each series is looked at by itself")
        return
    metric = find_metric(when.metric)
    given = {name for one in entries.scrape.values() for name in one.labels}
    if metric is not None and label not in metric.labels and label not in given:
        others = [one.name for one in REGISTRY.values() if label in one.labels]
        hint = f"a metric with the label `{label}`, such as {others[0]}: `tonnage watch names`"
        yield Problem(
            (*path, key), f"has no {label} to act on: {when.metric} does not say which {label} it is of", hint
        )


def _targeted(action: ActionEntry) -> tuple[str, str | None]:
    """The key of an action and the label that names its target; None: it has another target, or none."""
    if action.stop is not None:
        return "stop", action.stop
    if action.batch is not None:
        return "batch", "run"
    if action.plan is not None:
        return "plan", action.plan
    return ("scale", "service") if action.scale is not None else ("", None)


def _hours_problems(path: tuple[str | int, ...], hours: str) -> Iterator[Problem]:
    try:
        _hours(hours)
    except (ValueError, ZoneInfoNotFoundError) as error:
        yield Problem(path, f"'{hours}' names no hours: {error}", "22:00-07:00 Europe/Berlin")


def _fight(one: AlertRule, other: AlertRule, knob: str) -> Problem:
    words = f"fights with '{one.name}' over {knob}: one turns it up, the other down, and both can fire at once"
    return Problem(("rules", other.name), words, f"`unless: [{one.name}]`, or limits with room between them")


def _reached(name: str, rules: Mapping[str, AlertRuleEntry]) -> set[str]:
    """The rules that a rule waits for, those that they wait for, and so on."""
    found: set[str] = set()
    ahead = [*rules[name].unless]
    while ahead:
        one = ahead.pop()
        if one in rules and one not in found:
            found.add(one)
            ahead += rules[one].unless
    return found


def _given(entry: Any, kinds: tuple[str, ...]) -> list[str]:
    return [kind for kind in kinds if getattr(entry, kind) is not None]


def _rule(one: AlertRuleEntry, defaults: tuple[Action, ...]) -> AlertRule:
    """`defaults`: notifications beside those of the rule; a rule without any notifies every channel."""
    return AlertRule(
        name=one.name, condition=_condition(one.when), for_s=one.for_,
        actions=(*defaults, *(_action(each) for each in one.do)),
        unless=one.unless, quiet=tuple(_hours(each) for each in one.quiet), again_after_s=one.again_after,
        tries=one.tries, most_per_day=one.most_per_day, dry_run=one.dry_run, summary=one.summary or "",
    )  # fmt: skip


def _condition(when: ConditionEntry) -> Condition:
    limit = when.above if when.above is not None else when.below
    assert limit is not None  # _problems has refused
    return Condition(
        metric=when.metric, labels=tuple(sorted(when.labels.items())), take=when.take, over_s=when.over or 0.0,
        across=when.across, direction="above" if when.above is not None else "below", limit=limit,
        clear_at=limit if when.clear is None else when.clear,
    )  # fmt: skip


def _action(entry: ActionEntry) -> Action:
    if entry.notify is not None:
        return Action(kind="notify", channel=entry.notify)
    if entry.command is not None:
        return Action(kind="command", command=entry.command)
    if entry.post is not None:
        post = entry.post
        return Action(
            kind="post", url=post.url, body=post.body, undo=post.undo, knob=post.knob, direction=post.direction
        )
    if entry.stop is not None:
        return Action(kind="stop", of=entry.stop)
    if entry.scale is not None:
        return Action(kind="scale", knob="replicas of services", direction="up")
    return Action(kind="batch") if entry.batch else Action(kind="plan")


def _hours(text: str) -> QuietHours:
    span, _, zone = text.partition(" ")
    start, _, end = span.partition("-")
    ZoneInfo(zone or "UTC")
    return QuietHours(start=time.fromisoformat(start), end=time.fromisoformat(end), zone=zone or "UTC")


def _otlp(one: OtlpEntry, environment: Mapping[str, str]) -> OtlpTarget:
    headers = {name: read_reference(said, environment, f"otlp.headers.{name}") for name, said in one.headers.items()}
    return OtlpTarget(endpoint=one.endpoint, headers=tuple(sorted(headers.items())), service=one.service)


def _channel(one: ChannelEntry, environment: Mapping[str, str]) -> Channel:
    kind: Any = _given(one, CHANNEL_KINDS)[0]
    address = getattr(one, kind)
    if is_reference(address):
        address = read_reference(address, environment, f"channels.{one.name}.{kind}")
    return Channel(name=one.name, kind=kind, address=address)
