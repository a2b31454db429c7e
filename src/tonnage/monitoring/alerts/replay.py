"""Rules over figures of the past: when they would have fired, what they would have done, what that would have saved."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from tonnage.monitoring.alerts.engine import AlertEngine, Happening
from tonnage.monitoring.alerts.rules import AlertRule, WatchRules
from tonnage.monitoring.alerts.windows import RecentFigures
from tonnage.monitoring.figures import Figures, SeriesKey
from tonnage.values import dataclass

SPEND: Final = "tonnage_run_spend_usd_total"


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
