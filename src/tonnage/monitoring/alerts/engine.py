"""The states of alerts: pending, firing, ended; which actions are due. The clock is an argument, so rules are replayed
over figures of the past too: when they would have fired, what they would have done and saved.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import Any, Final, Literal

from tonnage.monitoring.alerts.rules import Action, AlertRule, WatchRules
from tonnage.monitoring.alerts.windows import RecentFigures, SeriesReading
from tonnage.monitoring.figures import Figures, SeriesKey
from tonnage.values import dataclass

DAY_S: Final = 86_400.0
AlertStatus = Literal["pending", "firing"]
HappeningKind = Literal["fired", "ended", "gone", "act", "undo", "gave up", "held back"]
SPEND: Final = "tonnage_run_spend_usd_total"
_KEYS: Final = {"notified": "told"}  # field of AlertState -> its key in JSON, where the schema's word is another
_FIELDS: Final = {key: name for name, key in _KEYS.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertState:
    """One rule on one series."""

    status: AlertStatus
    since: float  # of the status, in seconds since the epoch
    value: float  # the newest reading
    tries: int = 0  # times its actions were due since it fired
    acted_at: float | None = None
    notified: bool = False  # its notifications were due outside quiet hours
    gave_up: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Happening:
    """What a round brings: an alert that fires or ends, an action that is due."""

    kind: HappeningKind
    at: float
    rule: AlertRule
    series: SeriesKey
    value: float | None
    action: Action | None = None
    why: str = ""


class AlertEngine:
    """Alerts of some rules over rounds of figures. `state` and `restore` carry it over a restart."""

    def __init__(self, rules: WatchRules) -> None:
        self._rules = rules.rules
        self.states: dict[tuple[str, SeriesKey], AlertState] = {}
        self._acted: dict[tuple[str, SeriesKey], list[float]] = {}  # of the last day
        self._wall = 0.0

    def step(self, at: float, recent: RecentFigures, *, wall: float | None = None) -> list[Happening]:
        """One round: rules in the order of the file, those that others wait for first.

        `wall`: what the clock on the wall says, for quiet hours, where that is not `at`.
        """
        self._wall = at if wall is None else wall
        found: list[Happening] = []
        for rule in _ordered(self._rules):
            found += self._step_rule(rule, at, recent.read(rule.condition, at))
        return found

    def firing(self, rule: str) -> bool:
        """Whether a rule fires on any series."""
        return any(name == rule and state.status == "firing" for (name, _), state in self.states.items())

    def _step_rule(self, rule: AlertRule, at: float, readings: Sequence[SeriesReading]) -> Iterable[Happening]:
        seen = {one.key: one.value for one in readings}
        found: list[Happening] = []
        for name, key in [place for place in self.states if place[0] == rule.name and place[1] not in seen]:
            state = self.states.pop((name, key))
            if state.status == "firing":
                found.append(self._happening("gone", rule, at, key, None, why="no figures any more"))
                if state.tries:  # silence is no reason to keep what was asked for a load
                    found += [self._happening("undo", rule, at, key, None, action=action)
                              for action in rule.actions if action.kind == "scale"]  # fmt: skip
        for key, value in seen.items():
            found += self._step_series(rule, at, key, value)
        return found

    def _step_series(self, rule: AlertRule, at: float, key: SeriesKey, value: float) -> Iterable[Happening]:
        place = (rule.name, key)
        state = self.states.get(place)
        firing = state is not None and state.status == "firing"
        if not rule.condition.holds(value, firing=firing):
            if state is not None:
                del self.states[place]
            return self._ended(rule, at, key, value, state) if firing and state is not None else []
        if state is None:
            state = AlertState(status="pending", since=at, value=value)
        found: list[Happening] = []
        if state.status == "pending" and at - state.since >= rule.for_s:
            state = AlertState(status="firing", since=at, value=value)
            found.append(self._happening("fired", rule, at, key, value))
        state = replace(state, value=value)
        if state.status == "firing":
            state, due = self._due(rule, at, key, state)
            found += due
        self.states[place] = state
        return found

    def _ended(
        self, rule: AlertRule, at: float, key: SeriesKey, value: float, state: AlertState
    ) -> Iterable[Happening]:
        yield self._happening("ended", rule, at, key, value)
        if state.tries:
            for action in rule.actions:
                if action.undone:
                    yield self._happening("undo", rule, at, key, value, action=action)

    def _due(self, rule: AlertRule, at: float, key: SeriesKey, state: AlertState) -> tuple[AlertState, list[Happening]]:
        """The actions that a firing alert asks for now, and the state after them."""
        blocked = next((name for name in rule.unless if self.firing(name)), None)
        if blocked is not None:
            return state, []
        quiet = any(one.hold(datetime.fromtimestamp(self._wall, UTC)) for one in rule.quiet)
        found: list[Happening] = []
        acting = [one for one in rule.actions if one.acts]
        telling = [one for one in rule.actions if not one.acts]
        if not state.notified and not quiet:
            found += [self._happening("act", rule, at, key, state.value, action=one) for one in telling]
            state = replace(state, notified=True)
        again = state.acted_at is None or at - state.acted_at >= rule.again_after_s
        if not acting or state.gave_up or not again:
            return state, found
        if state.tries >= rule.tries:
            why = f"{state.tries} times did not help: no more until it ends"
            found.append(self._happening("gave up", rule, at, key, state.value, why=why))
            found += [self._happening("act", rule, at, key, state.value, action=one, why=why)
                      for one in telling if not quiet]  # fmt: skip
            return replace(state, gave_up=True), found
        today = [when for when in self._acted.get((rule.name, key), []) if when > at - DAY_S]
        if len(today) >= rule.most_per_day:
            why = f"{len(today)} times in 24 h: the most that the rule allows"
            found.append(self._happening("held back", rule, at, key, state.value, why=why))
            return replace(state, acted_at=at), found
        self._acted[rule.name, key] = [*today, at]
        found += [self._happening("act", rule, at, key, state.value, action=one) for one in acting]
        return replace(state, tries=state.tries + 1, acted_at=at), found

    def _happening(
        self,
        kind: HappeningKind,
        rule: AlertRule,
        at: float,
        key: SeriesKey,
        value: float | None,
        *,
        action: Action | None = None,
        why: str = "",
    ) -> Happening:
        return Happening(kind=kind, at=at, rule=rule, series=key, value=value, action=action, why=why)

    def state(self) -> dict[str, Any]:
        """As JSON carries it."""
        alerts = [
            {"rule": name, "metric": key.metric, "labels": dict(key.labels), **_written(state)}
            for (name, key), state in self.states.items()
        ]
        acted = [
            {"rule": name, "metric": key.metric, "labels": dict(key.labels), "at": times}
            for (name, key), times in self._acted.items()
        ]
        return {"alerts": alerts, "acted": acted}

    def restore(self, state: Mapping[str, Any], *, back_s: float = 0.0) -> None:
        """Go on where another left off; alerts of rules that are gone are forgotten. KeyError, TypeError: no state.

        `back_s`: by how much the clock has been set back since: times that lie ahead would hold alerts up for so long.
        """
        known = {rule.name for rule in self._rules}
        self.states |= {
            place: replace(one, since=one.since - back_s,
                           acted_at=None if one.acted_at is None else one.acted_at - back_s)
            for place, one in self.states_of(state).items() if place[0] in known
        }  # fmt: skip
        for one in state["acted"]:
            if one["rule"] in known:
                times = [float(when) - back_s for when in one["at"]]
                self._acted[one["rule"], _key(one["metric"], one["labels"])] = times

    @staticmethod
    def states_of(state: Mapping[str, Any]) -> dict[tuple[str, SeriesKey], AlertState]:
        """The alerts of a state that was written down. KeyError, TypeError: it is not one."""
        found = {}
        for one in state["alerts"]:
            given: dict[str, Any] = dict(one)
            rule, metric, labels = given.pop("rule"), given.pop("metric"), given.pop("labels")
            found[rule, _key(metric, labels)] = AlertState(
                **{_FIELDS.get(key, key): value for key, value in given.items()}
            )
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedAlert:
    """One alert of the past. `ended_at` None: it held to the end of the figures."""

    rule: AlertRule
    series: SeriesKey
    fired_at: float
    ended_at: float | None
    actions: tuple[tuple[float, str], ...]  # when, what
    saved_usd: float | None  # by a stop: what its runs cost after it; None: it stops nothing, or no cost is known


def replay(rules: WatchRules, rounds: Iterable[tuple[float, Figures]]) -> tuple[ReplayedAlert, ...]:
    """The alerts of the past, in the order in which they fired. Nothing of what an action does is played on."""
    engine = AlertEngine(rules)
    recent = RecentFigures(keep_s=rules.longest_s, every_s=rules.every_s)
    found, spent = list[Happening](), defaultdict[str, list[tuple[float, float]]](list)
    for at, figures in rounds:
        recent.add(at, figures)
        found += engine.step(at, recent)
        for key, value in figures.items():
            if key.metric == SPEND and (run := key.label("run")) is not None:
                spent[run].append((at, value))
    return tuple(_alerts(found, spent))


def _written(state: AlertState) -> dict[str, Any]:
    return {_KEYS.get(name, name): value for name, value in asdict(state).items()}


def _key(metric: str, labels: Mapping[str, str]) -> SeriesKey:
    return SeriesKey(metric, tuple(sorted(labels.items())))


def _ordered(rules: Sequence[AlertRule]) -> list[AlertRule]:
    """Rules that others name in `unless` before those; reading has refused circles."""
    by_name, placed = {rule.name: rule for rule in rules}, dict[str, AlertRule]()

    def place(rule: AlertRule) -> None:
        for name in rule.unless:
            if name in by_name and name not in placed:
                place(by_name[name])
        placed.setdefault(rule.name, rule)

    for rule in rules:
        place(rule)
    return list(placed.values())


def _alerts(happenings: list[Happening], spent: Mapping[str, list[tuple[float, float]]]) -> Iterator[ReplayedAlert]:
    for place, fired in enumerate(happenings):
        if fired.kind != "fired":
            continue
        own = [one for one in happenings[place:] if one.rule is fired.rule and one.series == fired.series]
        ended = next((one for one in own if one.kind in ("ended", "gone")), None)
        until = own if ended is None else own[: own.index(ended) + 1]
        acted = [one for one in until if one.action is not None]
        stop = next((one for one in acted if one.action is not None and one.action.kind == "stop"), None)
        yield ReplayedAlert(
            rule=fired.rule,
            series=fired.series,
            fired_at=fired.at,
            ended_at=None if ended is None else ended.at,
            actions=tuple((one.at, one.action.text) for one in acted if one.action is not None),
            saved_usd=None if stop is None else _spent_after(stop.at, fired.series.label("run"), spent),
        )


def _spent_after(at: float, run: str | None, spent: Mapping[str, list[tuple[float, float]]]) -> float | None:
    """What the runs that an action stops cost after it."""
    found = []
    for name, points in spent.items():
        if run is None or name == run:
            before = max((value for when, value in points if when <= at), default=None)
            last = points[-1][1]
            if before is not None:
                found.append(last - before)
    return sum(found) if found else None
