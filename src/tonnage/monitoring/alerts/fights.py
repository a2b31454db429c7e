"""Rules that fight: one turns a knob up while another turns it down."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

from tonnage.monitoring.alerts.rules import Action, AlertRule, Condition


def fighting(rules: Sequence[AlertRule]) -> Iterator[tuple[AlertRule, AlertRule, str]]:
    """Pairs of rules that can turn one knob both ways at once, and which knob.

    Two rules on one figure do not fight where no value holds for both, hysteresis included; two on different figures
    do not where one is `unless` the other.
    """
    for one, other in combinations(rules, 2):
        if one.dry_run or other.dry_run or other.name in one.unless or one.name in other.unless:
            continue
        for knob in sorted(_turned(one) & _opposite(_turned(other))):
            if _overlap(one.condition, other.condition):
                yield one, other, knob[0]


def _turned(rule: AlertRule) -> set[tuple[str, str]]:
    return {turn for action in rule.actions for turn in _turns(action)}


def _turns(action: Action) -> Iterator[tuple[str, str]]:
    if action.knob is not None and action.direction is not None:
        yield action.knob, action.direction


def _opposite(turned: set[tuple[str, str]]) -> set[tuple[str, str]]:
    return {(knob, "down" if direction == "up" else "up") for knob, direction in turned}


def _overlap(one: Condition, other: Condition) -> bool:
    """Whether both can fire at one time."""
    same = (one.metric, one.labels, one.take, one.over_s, one.across) == (
        other.metric, other.labels, other.take, other.over_s, other.across
    )  # fmt: skip
    if not same:
        return True
    low, high = _held(one), _held(other)
    return max(low[0], high[0]) < min(low[1], high[1])


def _held(condition: Condition) -> tuple[float, float]:
    """The values at which it fires or goes on firing."""
    if condition.direction == "above":
        return min(condition.limit, condition.clear_at), float("inf")
    return float("-inf"), max(condition.limit, condition.clear_at)
