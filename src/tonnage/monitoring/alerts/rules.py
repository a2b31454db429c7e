"""Rules, channels and actions as values, and which rules fight: one turns a knob up while another turns it down."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, time, timedelta
from fnmatch import fnmatchcase
from itertools import combinations
from pathlib import Path
from typing import Any, Literal
from zoneinfo import ZoneInfo

from tonnage.monitoring.figures import SeriesKey
from tonnage.values import dataclass

Take = Literal["newest", "mean", "max", "min", "rate", "increase", "age", "ahead", "p50", "p90", "p95", "p99"]
Across = Literal["each", "sum", "max", "mean"]
ActionKind = Literal["notify", "stop", "batch", "command", "post", "plan", "scale"]
Direction = Literal["up", "down"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """A figure and its limit: `take` of the last `over_s` seconds of every series that matches.

    `clear_at`: the value at which the alert ends (hysteresis): at `limit` where none is given.
    """

    metric: str
    labels: tuple[tuple[str, str], ...] = ()  # label -> pattern, as of file names
    take: Take = "newest"
    over_s: float = 0.0
    across: Across = "each"
    direction: Literal["above", "below"]
    limit: float
    clear_at: float

    def matches(self, key: SeriesKey) -> bool:
        """Whether a series is one of those that this condition reads."""
        wanted = f"{self.metric}_bucket" if self.is_quantile else self.metric
        if key.metric != wanted:
            return False
        found = dict(key.labels)
        return all(name in found and fnmatchcase(found[name], pattern) for name, pattern in self.labels)

    @property
    def is_quantile(self) -> bool:
        """Whether it is read off a histogram's buckets."""
        return self.take in ("p50", "p90", "p95", "p99")

    def holds(self, value: float, *, firing: bool) -> bool:
        """Whether the limit is passed; of a firing alert, whether it is not yet back behind `clear_at`."""
        limit = self.clear_at if firing else self.limit
        return value > limit if self.direction == "above" else value < limit

    @property
    def text(self) -> str:
        """In one line.

        >>> Condition(metric="gpu", take="mean", over_s=600.0, direction="above", limit=0.9, clear_at=0.9).text
        'mean of gpu over 10 min above 0.9'
        """
        inside = ",".join(f"{name}={pattern}" for name, pattern in self.labels)
        named = f"{self.metric}{{{inside}}}" if inside else self.metric
        taken = named if self.take == "newest" else f"{self.take} of {named}"
        summed = "" if self.across == "each" else f"{self.across} of "
        over = f" over {duration_words(self.over_s)}" if self.over_s else ""
        return f"{summed}{taken}{over} {self.direction} {self.limit:g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class QuietHours:
    """Hours of the day without notifications: those due then are sent when they end, if the alert still fires."""

    start: time
    end: time
    zone: str = "UTC"

    def hold(self, at: datetime) -> bool:
        """Whether an instant lies in them.

        >>> night = QuietHours(start=time(22), end=time(7))
        >>> from datetime import UTC
        >>> night.hold(datetime(2026, 1, 1, 23, tzinfo=UTC)), night.hold(datetime(2026, 1, 1, 12, tzinfo=UTC))
        (True, False)
        """
        local = at.astimezone(ZoneInfo(self.zone)).time()
        if self.start <= self.end:
            return self.start <= local < self.end
        return local >= self.start or local < self.end


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """One thing that a rule does. `knob` and `direction` say what it turns, so that rules that fight are found."""

    kind: ActionKind
    channel: str | None = None  # notify
    of: Literal["run", "budget"] = "run"  # stop: the alert's run, or all runs of its budget
    command: tuple[str, ...] = ()
    url: str | None = None  # post
    body: Mapping[str, Any] | None = None
    undo: Mapping[str, Any] | None = None  # posted when the alert ends
    knob: str | None = None
    direction: Direction | None = None

    @property
    def acts(self) -> bool:
        """Whether it changes something, rather than telling somebody."""
        return self.kind in ("stop", "batch", "command", "post", "scale")

    @property
    def undone(self) -> bool:
        """Whether it is taken back when the alert ends."""
        return self.undo is not None or self.kind == "scale"

    @property
    def text(self) -> str:
        match self.kind:
            case "notify":
                return f"notify {self.channel}"
            case "stop":
                whose = "the run" if self.of == "run" else "the runs of the budget"
                return f"save a checkpoint, verify it and stop {whose}"
            case "batch":
                return "save a checkpoint and go on with half of the micro-batch"
            case "scale":
                return "make the cheapest change that brings the service's p95 within its promise"
            case "plan":
                return "say what the next machine would gain"
            case "command":
                return " ".join(self.command)
            case "post":
                return f"post to {self.url}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertRule:
    """When something is to be done, what, and how often at most."""

    name: str
    condition: Condition
    for_s: float = 0.0  # so long without a break before it fires
    actions: tuple[Action, ...] = ()
    unless: tuple[str, ...] = ()  # while one of these rules fires, this one does nothing
    quiet: tuple[QuietHours, ...] = ()
    again_after_s: float = 3600.0  # an alert that still fires acts again after this
    tries: int = 3  # actions that did not help; then it says so, and does no more until it has ended
    most_per_day: int = 24  # actions of this rule on one series in 24 h, whatever happens between them
    dry_run: bool = False
    summary: str = ""  # what to tell people; empty: the condition


@dataclass(frozen=True, slots=True, kw_only=True)
class Channel:
    """Where notifications go: one address, by reference where it is a secret."""

    name: str
    kind: Literal["webhook", "slack", "pagerduty", "mail"]
    address: str  # the URL, routing key or mail address itself: never printed


@dataclass(frozen=True, slots=True, kw_only=True)
class ScrapeTarget:
    """A page of figures, in the text form of Prometheus."""

    name: str
    url: str
    bearer: str | None = None
    labels: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OtlpTarget:
    """Where figures are sent as OpenTelemetry metrics. `headers` may hold secrets: never printed."""

    endpoint: str
    headers: tuple[tuple[str, str], ...] = ()
    service: str = "tonnage"


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchRules:
    """What to look at, how often, and what to do about it."""

    every_s: float
    keep_s: float
    runs: bool
    targets: tuple[ScrapeTarget, ...]
    channels: Mapping[str, Channel]
    rules: tuple[AlertRule, ...]
    otlp: OtlpTarget | None = None
    plans: tuple[Path, ...] = ()  # workload files, planned again when prices change

    @property
    def longest_s(self) -> float:
        """Seconds of figures that the rules look back on."""
        return max((rule.condition.over_s for rule in self.rules), default=0.0)


def duration_words(seconds: float) -> str:
    """A length of time, short.

    >>> duration_words(90), duration_words(600), duration_words(86_400)
    ('90 s', '10 min', '24 h')
    """
    whole = timedelta(seconds=seconds).total_seconds()
    for size, unit in ((3600.0, "h"), (60.0, "min")):
        if whole >= size and whole % size == 0:
            return f"{whole / size:g} {unit}"
    return f"{whole:g} s"


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
