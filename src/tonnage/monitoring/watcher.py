"""The watch: every few seconds a round of figures, the rules over it, and what they ask for."""

from __future__ import annotations

import contextlib
import json
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from threading import Event
from typing import Any, Final

from tonnage.files import write_whole
from tonnage.monitoring.actions import ActionRunner, described
from tonnage.monitoring.alerts.engine import AlertEngine, Happening
from tonnage.monitoring.alerts.rules import WatchRules
from tonnage.monitoring.alerts.windows import RecentFigures
from tonnage.monitoring.audit import LateAudit
from tonnage.monitoring.collecting import Collector
from tonnage.monitoring.divergence import SLOW, likely_reason
from tonnage.monitoring.figures import Figures
from tonnage.monitoring.history import MetricHistory
from tonnage.monitoring.otlp import OtlpWriter
from tonnage.monitoring.page import WatchPage
from tonnage.values import dataclass

THIN_EVERY_S: Final = 3600.0
JUMP_S: Final = 5.0  # the clock on the wall against the one that only goes forward
MOST_UNKEPT: Final = 120  # rounds, of 0.3 MB each with 200 runs, that wait for a disk or file that refuses
STATE_SCHEMA: Final = "tonnage/watch-state@1"


class SteadyClock:
    """Seconds since the epoch as of the start, that go on without a jump; `jump` says by how much the wall's went."""

    def __init__(self, wall: Callable[[], float] = time.time, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._wall, self._monotonic = wall, monotonic
        self._start = wall() - monotonic()
        self._off = 0.0

    def now(self) -> float:
        """For lengths of time."""
        return self._start + self._monotonic()

    def wall(self) -> float:
        """For hours of the day, and for what is written down."""
        return self._wall()

    def jump(self) -> float | None:
        """By how many seconds the wall's clock jumped since this was asked before; None: it did not."""
        off = self._wall() - self.now()
        moved, self._off = off - self._off, off
        return moved if abs(moved) > JUMP_S else None


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchParts:
    """What a watch is made of."""

    rules: WatchRules
    collector: Collector
    history: MetricHistory
    actions: ActionRunner
    audit: LateAudit
    page: WatchPage
    state_file: Path
    say: Callable[[str], None]
    otlp: OtlpWriter | None = None


class Watcher:
    """Rounds until `stop` is called. What a round cannot do is reported once, and tried again in the next."""

    def __init__(self, parts: WatchParts, clock: SteadyClock | None = None) -> None:
        self._parts, self._clock = parts, clock or SteadyClock()
        rules = parts.rules
        self.engine = AlertEngine(rules)
        self._recent = RecentFigures(keep_s=rules.longest_s, every_s=rules.every_s)
        self._said: dict[str, str] = {}  # faults that hold, by what has them
        self._thinned_at = self._clock.now()
        self._unkept = deque[tuple[float, Figures]]()
        self._restore()

    def run(self, stop: Event, *, rounds: int | None = None) -> None:
        """Round after round, `every_s` apart by the steady clock, until `stop` is set or `rounds` are done."""
        due, done = self._clock.now(), 0
        while not stop.is_set():
            self.round()
            done += 1
            if done == rounds:
                return
            due = max(due + self._parts.rules.every_s, self._clock.now())
            stop.wait(max(due - self._clock.now(), 0.0))

    def round(self) -> list[Happening]:
        """One round: look, keep, judge, act."""
        parts, at = self._parts, self._clock.now()
        if (jump := self._clock.jump()) is not None:
            parts.say(f"the clock jumped by {jump:+.0f} s: lengths of time are counted on without it")
        seen = parts.collector.collect(self._clock.wall())
        self._tell_faults(seen.faults)
        if parts.otlp is not None:
            parts.otlp.put(self._clock.wall(), seen.figures)
        self._unkept.append((self._clock.wall(), seen.figures))
        self._attempt("figures", self._keep)
        parts.audit.flush(datetime.now(UTC))
        if at - self._thinned_at >= THIN_EVERY_S:
            self._thinned_at = at
            self._attempt("old figures", lambda: parts.history.thin(self._clock.wall()))
        self._recent.add(at, seen.figures)
        found = [self._with_reason(one, at) for one in self.engine.step(at, self._recent, wall=self._clock.wall())]
        parts.page.show(seen.figures, self.engine.states)
        self._attempt("state", self._save)  # before acting: a kill between the two repeats nothing
        for one in found:
            self._carry(one)
        return found

    def _keep(self) -> None:
        """Write the rounds that are not kept yet, the oldest first."""
        if len(self._unkept) > MOST_UNKEPT:
            self._unkept.popleft()
            self._parts.say(f"figures: a round is lost: {MOST_UNKEPT} wait already")
        while self._unkept:
            self._parts.history.add(*self._unkept[0])
            self._unkept.popleft()

    def _with_reason(self, one: Happening, at: float) -> Happening:
        """An alert of a run that is slower than predicted, with the likely reason."""
        run, condition = one.series.label("run"), one.rule.condition
        slow = condition.metric == SLOW and condition.direction == "below" and condition.over_s > 0
        if not slow or run is None or one.why or one.kind not in ("fired", "act"):
            return one
        return replace(one, why=likely_reason(run, self._recent, at, condition.over_s))

    def _carry(self, one: Happening) -> None:
        parts = self._parts
        if one.action is None:
            value = "" if one.value is None else f" ({one.value:.4g})"
            why = f": {one.why}" if one.why else ""
            parts.say(f"{one.rule.name} {one.kind}{value} {one.series.text}{why}")
            parts.audit.put(at=datetime.now(UTC), who="watch", what=one.kind, **described(one))
            if one.kind in ("ended", "gone"):
                for action in (action for action in one.rule.actions if action.kind == "notify"):
                    parts.actions.start(replace(one, action=action))
            return
        parts.actions.start(one)

    def _attempt(self, what: str, do: Callable[[], Any]) -> None:
        """Do it; where the disk refuses, say so once, until it works again."""
        try:
            do()
        except OSError as error:
            if self._said.get(what) != str(error):
                self._parts.say(f"{what}: {error}")
                self._said[what] = str(error)
        else:
            if self._said.pop(what, None) is not None:
                self._parts.say(f"{what}: works again")

    def _tell_faults(self, faults: dict[str, str]) -> None:
        known = {name.removeprefix("! "): words for name, words in self._said.items() if name.startswith("! ")}
        for name, words in faults.items():
            if known.get(name) != words:
                self._parts.say(f"{name}: {words}")
            self._said[f"! {name}"] = words
        for name in known.keys() - faults.keys():
            del self._said[f"! {name}"]
            self._parts.say(f"{name}: answers again")

    def _save(self) -> None:
        state = {"schema": STATE_SCHEMA, "at": self._clock.now(), **self.engine.state()}
        write_whole(self._parts.state_file, json.dumps(state) + "\n", durable=False)

    def _restore(self) -> None:
        """States as another watch left them, and the figures of the longest window."""
        parts, now = self._parts, self._clock.now()
        with contextlib.suppress(FileNotFoundError):
            try:
                state = json.loads(parts.state_file.read_text(encoding="utf-8"))
                back_s = max(float(state["at"]) - now, 0.0)
                if back_s > JUMP_S:
                    parts.say(f"the clock is {back_s:.0f} s behind the last watch: its alerts' times go back with it")
                self.engine.restore(state, back_s=back_s)
            except (ValueError, KeyError, TypeError) as error:
                parts.say(f"{parts.state_file} is left aside, alerts start over: {error}")
        conditions = [rule.condition for rule in parts.rules.rules]
        keys = [key for key in parts.history.names() if any(one.matches(key) for one in conditions)]
        for at, figures in parts.history.rounds(keys, since=now - parts.rules.longest_s, until=now):
            self._recent.add(at, figures)
