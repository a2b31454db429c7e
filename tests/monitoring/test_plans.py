"""Plans that a watch looks after: a price that moves the winner is seen once, a file that was edited is no price."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tonnage.api.catalogs import load_catalog
from tonnage.api.plans import plan
from tonnage.api.watch_plans import MOVED, PlanWatch
from tonnage.catalog import Catalog
from tonnage.monitoring.alerts.engine import AlertEngine
from tonnage.monitoring.alerts.reading import default_rules, read_rules
from tonnage.monitoring.alerts.windows import RecentFigures
from tonnage.monitoring.figures import SeriesKey
from tonnage.planning import Plan

EXAMPLE = Path(__file__).parents[2] / "examples" / "serve-bert.tonnage.yaml"
NOON = datetime(2026, 11, 1, 12, tzinfo=UTC)
DAY = timedelta(days=1)


class Prices:
    """A market that a test changes, the plans of it, and what the watch sees."""

    def __init__(self, folder: Path) -> None:
        self.market, self.snapshot, self.plans = load_catalog(), "one", 0
        self.file = folder / "bert.tonnage.yaml"
        self.file.write_text(EXAMPLE.read_text())
        self.state, self.said = folder / "plans.json", list[str]()
        self.watch = self.opened()

    def opened(self) -> PlanWatch:
        return PlanWatch(
            (self.file,), self.state, plan=self._plan, snapshot=lambda: self.snapshot, say=self.said.append
        )

    def _plan(self, file: Path) -> Plan:
        self.plans += 1
        return plan(file, catalog=self.market).plan

    def change(self, name: str, market: Callable[[Catalog], Catalog]) -> None:
        self.snapshot, self.market = name, market(self.market)

    def seen(self, at: datetime) -> dict[SeriesKey, float]:
        return dict(self.watch.figures(at))


def without(machine: str) -> Callable[[Catalog], Catalog]:
    """The market where a machine is sold no more."""
    return lambda market: replace(market, offers=tuple(o for o in market.offers if o.instance_type != machine))


def test_a_winner_that_moves_is_shown_for_a_day_with_both_names_and_the_difference(tmp_path: Path) -> None:
    """The winner is sold no more, then again: each time another wins; at last the saving is of the new prices."""
    prices = Prices(tmp_path)
    market = prices.market
    first = plan(prices.file, catalog=market).plan.best
    assert first is not None
    assert prices.seen(NOON) == {}
    prices.change("two", without(first.instance_type))
    second = plan(prices.file, catalog=prices.market).plan.best
    assert second is not None
    ((key, saves),) = prices.seen(NOON + DAY).items()
    assert key.metric == MOVED
    assert first.instance_type in (key.label("before") or "")
    assert second.instance_type in (key.label("winner") or "")
    assert saves == pytest.approx(first.cost_usd.value - second.cost_usd.value)
    prices.watch = prices.opened()  # a watch that starts again knows it
    assert prices.seen(NOON + 1.5 * DAY) == {key: saves}
    assert prices.seen(NOON + 2.5 * DAY) == {}
    prices.change("three", lambda _: market)
    ((_, back),) = prices.seen(NOON + 3 * DAY).items()
    assert back == pytest.approx(second.cost_usd.value - first.cost_usd.value)
    assert back > 0


def test_plans_are_made_when_prices_change_once_a_day_at_most(tmp_path: Path) -> None:
    """Rounds cost nothing; a second snapshot of the day waits for the next one."""
    prices = Prices(tmp_path)
    for _ in range(3):
        prices.seen(NOON)
    prices.change("two", lambda market: market)
    prices.seen(NOON)
    assert prices.plans == 1
    prices.seen(NOON + DAY)
    prices.seen(NOON + DAY)
    assert prices.plans == 2


def test_an_edited_file_is_no_price_change(tmp_path: Path) -> None:
    """Another question has another answer: it is planned, and nothing is shown."""
    prices = Prices(tmp_path)
    prices.seen(NOON)
    prices.file.write_text(EXAMPLE.read_text().replace("rate_per_s: 1000", "rate_per_s: 9000"))
    assert prices.seen(NOON + DAY) == {}
    assert prices.plans == 2


def test_what_cannot_be_planned_is_said_once_and_keeps_nothing_else(tmp_path: Path) -> None:
    """A file that is gone, a workload with a wrong key, a state that cannot be read."""
    prices = Prices(tmp_path)
    prices.file.write_text("kind: serve\nmodle: bert\n")
    for _ in range(2):
        assert prices.seen(NOON) == {}
    assert len(prices.said) == 1
    prices.file.unlink()
    prices.seen(NOON)
    assert len(prices.said) == 2
    assert "bert.tonnage.yaml" in prices.said[1]
    prices.state.write_text("no JSON")
    prices.opened()
    assert "start over" in prices.said[2]


def test_the_default_rule_says_it_and_files_are_found_beside_the_watch_file() -> None:
    """Whatever the difference: a winner that moved is told."""
    engine, recent = AlertEngine(default_rules()), RecentFigures(keep_s=60.0, every_s=10.0)
    recent.add(0.0, {SeriesKey(MOVED, (("before", "a"), ("plan", "p"), ("winner", "b"))): -3.0})
    assert [(one.kind, one.rule.name) for one in engine.step(0.0, recent)] == [("fired", "plan-winner")]
    found = read_rules("plans: [a.yaml, ../Work/B.yaml]", file="x/watch.yaml").plans
    assert found == (Path("x/a.yaml"), Path("x/../Work/B.yaml"))
