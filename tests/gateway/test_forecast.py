"""When budgets will be reached: the arithmetic, the warning that does not flap, samples in the accounts, pages."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.gateway.harness import GatewayHarness, Scripted, play, said

import tonnage
from tonnage.gateway.money.allowances import Allowance, Amounts, Window
from tonnage.gateway.money.book import SpendBook
from tonnage.gateway.money.forecast import SpendForecast, SpendSample, forecast
from tonnage.gateway.money.holds import AttemptOutcome, Who
from tonnage.gateway.money.rates import PICO_PER_USD
from tonnage.gateway.money.shared_accounts import LeaseAsk, LeaseMove, SharedAccounts
from tonnage.gateway.report import budgets_report
from tonnage.gateway.status import allowance_states, forecast_gauges
from tonnage.settings import current_settings

MIDNIGHT_S = datetime(2026, 11, 27, tzinfo=UTC).timestamp()
HOUR_S = 3600.0
STEP_S = 300.0


def budget(usd: float, window: Window = "day") -> Allowance:
    return Allowance(scope="total", name="", unit="usd", window=window, cap=int(usd * PICO_PER_USD))


def steady(
    usd_per_hour: float, until_h: float, *, since_h: float = 0.0, begin_s: float = MIDNIGHT_S
) -> list[SpendSample]:
    """A sample every five minutes."""
    first_s, step = begin_s + since_h * HOUR_S, usd_per_hour * STEP_S / HOUR_S
    count = int((until_h - since_h) * HOUR_S / STEP_S)
    return [SpendSample(first_s + STEP_S * one, int(begin_s), _pico(step * one)) for one in range(count + 1)]


def _pico(usd: float) -> int:
    return round(usd * PICO_PER_USD)


def ahead(found: SpendForecast | None) -> SpendForecast:
    assert found is not None
    return found


def test_a_steady_rate_reaches_the_cap_when_it_should() -> None:
    """10 USD an hour from midnight, a cap of 120: at six o'clock it will be reached in six hours."""
    found = ahead(forecast(budget(120), _pico(60), steady(10, 6), MIDNIGHT_S + 6 * HOUR_S))
    assert found.pico_per_s * HOUR_S / PICO_PER_USD == pytest.approx(10)
    assert found.reached_in_s == pytest.approx(6 * HOUR_S)
    assert found.share_at_end == pytest.approx(2.0)
    assert found.warns
    calm = ahead(forecast(budget(300), _pico(60), steady(10, 6), MIDNIGHT_S + 6 * HOUR_S))
    assert (calm.reached_in_s, calm.warns) == (None, False)
    assert calm.share_at_end == pytest.approx(0.8)


def test_the_rate_is_of_the_last_hour_not_of_the_day() -> None:
    """Nothing was spent until noon; since then 10 USD an hour."""
    quiet = [SpendSample(MIDNIGHT_S + STEP_S * one, int(MIDNIGHT_S), 0) for one in range(144)]
    busy = [one._replace(at_s=one.at_s + 12 * HOUR_S) for one in steady(10, 2)]
    found = ahead(forecast(budget(120), _pico(20), [*quiet, *busy], MIDNIGHT_S + 14 * HOUR_S))
    assert found.pico_per_s * HOUR_S / PICO_PER_USD == pytest.approx(10, rel=0.02)
    assert found.reached_in_s == pytest.approx(10 * HOUR_S, rel=0.02)


def test_what_is_used_up_is_reached_and_what_is_not_measured_is_not_known() -> None:
    assert ahead(forecast(budget(5), _pico(5), steady(5, 1), MIDNIGHT_S + HOUR_S)).reached_in_s == 0.0
    assert forecast(budget(5), _pico(1), [], MIDNIGHT_S + HOUR_S) is None
    late = [SpendSample(MIDNIGHT_S, int(MIDNIGHT_S), 0)]
    assert forecast(budget(5), _pico(1), late, MIDNIGHT_S + 60) is None  # a minute says nothing
    assert forecast(budget(5), _pico(1), late, MIDNIGHT_S + 10 * HOUR_S) is None  # nobody sampled since


def test_the_rate_goes_on_over_midnight() -> None:
    """A new day begins at nothing; what was spent before it still tells the rate, and the warning begins anew."""
    before = steady(10, 24, since_h=22, begin_s=MIDNIGHT_S - 24 * HOUR_S)
    after = steady(10, 0.5)[1:]
    found = ahead(forecast(budget(300), _pico(5), [*before, *after], MIDNIGHT_S + 0.5 * HOUR_S))
    assert found.pico_per_s * HOUR_S / PICO_PER_USD == pytest.approx(10, rel=0.15)


def test_a_warning_does_not_flap_around_its_bound() -> None:
    """A rate that swings by 5 % around the one that just uses the budget up: one warning, which stays; without a margin
    it would change every few samples. It ends once clearly less is spent."""
    cap, samples, taken, changes, warned = budget(240), [], 0, 0, False
    rates = [10.0 * (1.05 if (step // 6) % 2 else 0.95) for step in range(120)] + [6.0] * 30
    states = []
    for step, rate in enumerate(rates):
        now_s = MIDNIGHT_S + step * STEP_S
        samples.append(SpendSample(now_s, int(MIDNIGHT_S), taken))
        found = forecast(cap, taken, samples[-48:-1], now_s)
        taken += _pico(rate * STEP_S / HOUR_S)
        if found is not None:
            states.append(found.warns)
            changes += found.warns != warned
            warned = found.warns
    assert any(states)
    assert not states[-1]
    assert changes == 2


def test_a_budget_without_an_end_warns_a_week_ahead() -> None:
    month = [SpendSample(MIDNIGHT_S + HOUR_S * one, 0, _pico(one)) for one in range(25)]
    now_s = MIDNIGHT_S + 24 * HOUR_S
    near = ahead(forecast(budget(100, "ever"), _pico(24), month, now_s))
    far = ahead(forecast(budget(1000, "ever"), _pico(24), month, now_s))
    assert near.reached_in_s == pytest.approx(76 * HOUR_S)
    assert far.reached_in_s == pytest.approx(976 * HOUR_S)
    assert (near.warns, far.warns) == (True, False)


def test_samples_are_taken_once_a_slot_and_old_ones_go(tmp_path: Path) -> None:
    accounts = SharedAccounts(str(tmp_path / "accounts.db"))
    accounts.open()
    day, begin = budget(100), int(MIDNIGHT_S)
    accounts.join("w", "h", MIDNIGHT_S)
    accounts.lease("w", [LeaseAsk(account=(day.id, begin), cap=day.cap, need=_pico(50))], MIDNIGHT_S)
    for step in range(70):
        moves = [LeaseMove(account=(day.id, begin), used=_pico(0.5), returned=0)]
        now_s = MIDNIGHT_S + step * STEP_S
        accounts.apply("w", moves, [], number=step + 1, journal_bytes=0, now_s=now_s)
        accounts.sample(now_s)
        accounts.sample(now_s + 1.0)  # another worker
    found = accounts.samples()[day.id]
    assert [one.committed for one in found] == [_pico(0.5 * one) for one in range(23, 71)]  # of four hours
    accounts.close()


def test_workers_sample_and_pages_say_it(tmp_path: Path) -> None:
    """A worker's own sweep samples; budgets, gauges and the command rest on it."""

    async def scenario() -> None:
        async with Scripted(always=said()) as up:
            file = {"budgets": [{"of": "total", "usd": 0.001, "per": "day"}, {"of": "route:chat", "usd": 10}]}
            async with GatewayHarness(tmp_path, {"a": up}, **file) as harness:
                now_s = harness.book.now()
                for _ in range(5):
                    assert (await harness.ask()).status == 200
                await harness.book.flush()
                await harness.book._in_thread(harness.book._sweep)
                samples = await harness.book.samples()
                assert len(samples) == 2
                states = await harness.book.states()
                begun = allowance_states(harness.gateway, states, samples, now_s)
                assert {one.forecast for one in begun} == {None}  # measured for seconds
                later = allowance_states(harness.gateway, states, samples, now_s + 600)
                if all(one.forecast is not None for one in later):  # not within ten minutes of midnight
                    assert all(one.forecast and one.forecast.pico_per_s == 0.0 for one in later)
                    names = {name for name, _ in forecast_gauges(later)}
                    assert names == {"tonnage_gateway_budget_expected_share", "tonnage_gateway_budget_warns"}

    play(scenario())
    answer = tonnage.gateway_budgets(tmp_path / "gateway.yaml", settings=current_settings(home=tmp_path))
    document = answer.report().document()
    assert [one["cap_usd"] for one in document["budgets"]] == ["0.001", "10"]
    assert document["budgets"][0]["spent_usd"] == "0.000075"
    assert document["budgets"][0]["usd_per_hour"] is None


def test_budgets_of_a_gateway_that_has_not_run_are_unspent(tmp_path: Path) -> None:
    price = {"input_usd_per_million": 1.0, "output_usd_per_million": 2.0}
    path = tmp_path / "gateway.yaml"
    path.write_text(json.dumps({
        "deployments": {"a": {"url": "http://127.0.0.1:9/v1", "model": "m", "price": price}},
        "routes": {"chat": {"deployments": ["a"]}}, "budgets": [{"of": "total", "usd": 5, "at": "soft"}],
        "limits": [{"of": "total", "requests_per_minute": 5}],
    }), encoding="utf-8")  # fmt: skip
    (found,) = tonnage.gateway_budgets(path, settings=current_settings(home=tmp_path)).found
    assert (found.taken, found.forecast, found.allowance.hard) == (0, None, False)


def test_a_book_samples_within_its_first_sweep(tmp_path: Path) -> None:
    """The clock of the book decides: nothing is sampled twice in a slot, and the next slot is sampled."""

    async def scenario() -> None:
        now = [MIDNIGHT_S + 10.0]
        accounts = SharedAccounts(str(tmp_path / "accounts.db"))
        book = SpendBook(accounts, tmp_path / "journals", now=lambda: now[0])
        await book.open()
        who = Who(key="k", team="t", project="p", route="r", deployment="d")
        for step in range(4):
            amounts = Amounts(usd_pico=_pico(1), tokens=1)
            hold = await book.hold((budget(100),), amounts, who=who, request=str(step), lost_usd_pico=0)
            book.settle(hold, AttemptOutcome(200, "ok", amounts, 1, 0, None, False, 0.1, 0.1))
            await book.flush()
            await book._in_thread(book._sweep)
            await book._in_thread(book._sweep)
            now[0] += 150.0
        found = await book.samples()
        assert [one.at_s - MIDNIGHT_S for one in found[budget(100).id]] == [10.0, 310.0]
        await book.close()

    play(scenario())


def test_the_csv_of_budgets_has_a_value_for_each_column() -> None:
    """What only pages show is no column of it."""
    assert "" not in budgets_report(()).columns
