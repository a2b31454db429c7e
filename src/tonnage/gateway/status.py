"""The status page of a gateway: what all its workers count and have under way, beside its accounts; forecasts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from time import monotonic
from typing import Any

from tonnage.gateway.file.described import ANYBODY, Gateway
from tonnage.gateway.measures import Labels, added_up
from tonnage.gateway.money.allowances import Allowance
from tonnage.gateway.money.forecast import HOUR_S, SpendForecast, SpendSample, forecast
from tonnage.gateway.money.rates import PICO_PER_USD
from tonnage.gateway.money.shared_accounts import AccountState
from tonnage.gateway.money.sql_store import AccountsError
from tonnage.gateway.proxy.running import Running
from tonnage.gateway.proxy.settlement import AttemptUnderWay
from tonnage.gateway.routing.choosing import expected_answer_s
from tonnage.values import dataclass

SamplesByAllowance = Mapping[str, Sequence[SpendSample]]


def worker_state(running: Running, attempts: Iterable[AttemptUnderWay], waiting: int) -> dict[str, Any]:
    """What one worker has under way, for the file where the pages of all workers find it."""
    now_s, routes, keys = monotonic(), Counter[str](), Counter[str]()
    for one in attempts:
        route, key = one.route_and_key
        routes[route] += 1
        keys[key] += 1
    healths = running.healths
    return {
        "under_way": {name: health.under_way for name, health in healths.items()},
        "resting": [name for name, health in healths.items() if not health.available(now_s)],
        "in_flight": {"routes": routes, "keys": keys},
        "waiting": waiting,
    }


def status_document(
    running: Running, now_s: float, living: Sequence[Mapping[str, Any]], all_counted: Iterable[Mapping[str, Any]],
    states: Sequence[AccountState] | AccountsError, samples: SamplesByAllowance,
) -> dict[str, Any]:  # fmt: skip
    """`living`: what each living worker wrote; `all_counted`: also those that were killed, whose counts stay;
    `samples` of what budgets had spent, for their forecasts."""
    failed = isinstance(states, AccountsError)
    return {
        "schema": "tonnage/gateway-status@1", "at_s": now_s, "workers": len(living),
        "deployments": {name: {
            "under_way": sum(one["under_way"].get(name, 0) for one in living),
            "first_byte_s": health.first_byte_s, "answer_s": _answer_s(running, name),
            "failures_in_a_row": health.failures,
            "own_usd_per_hour": running.gateway.deployments[name].own_usd_per_hour,
            "instead": _instead(running.gateway, name),
            "resting": not health.available(monotonic()),
            "resting_workers": sum(name in one.get("resting", ()) for one in living),
        } for name, health in running.healths.items()},
        "routes": list(running.gateway.routes),
        "keys": [one.name for one in running.gateway.callers.values()] or [ANYBODY.name],
        "in_flight": {kind: _summed(one.get("in_flight", {}).get(kind, {}) for one in living)
                      for kind in ("routes", "keys")},
        "waiting": sum(one.get("waiting", 0) for one in living),
        "allowances": None if isinstance(states, AccountsError) else [
            _allowance(one) for one in allowance_states(running.gateway, states, samples, now_s)
        ],
        "accounts": str(states) if failed else None,
        **added_up(all_counted).document(),
    }  # fmt: skip


def _instead(gateway: Gateway, name: str) -> list[dict[str, Any]]:
    """Where the tokens of an own machine could be bought: deployments that share a route with it, at their prices."""
    if not gateway.deployments[name].own:
        return []
    named = [(*route.deployments, *(one for rule in route.rules for one in rule.deployments))
             for route in gateway.routes.values()]  # fmt: skip
    others = dict.fromkeys(one for names in named if name in names for one in names)
    found = []
    for one in others:
        deployment = gateway.deployments[one]
        tier = deployment.rates.tiers[0]
        if not deployment.own and "chat" in deployment.surfaces:
            found.append({"name": one, "input_usd": tier.input_pico / PICO_PER_USD,
                          "output_usd": tier.output_pico / PICO_PER_USD})  # fmt: skip
    return found


def _answer_s(running: Running, name: str) -> float | None:
    """Of one more request now, as far as this worker has measured."""
    gateway, health = running.gateway, running.healths[name]
    return expected_answer_s(gateway.deployments[name], health, health.output_tokens, gateway.listen.workers)


@dataclass(frozen=True, slots=True, kw_only=True)
class AllowanceState:
    """What is settled of an allowance in its present window; `forecast` of a budget, None: its rate is not known."""

    allowance: Allowance
    taken: int
    forecast: SpendForecast | None


def allowance_states(
    gateway: Gateway, states: Sequence[AccountState], samples: SamplesByAllowance, now_s: float
) -> list[AllowanceState]:
    """Requests at a time are settled of nothing."""
    moment = datetime.fromtimestamp(now_s, UTC)
    known = {one.account: one.committed for one in states}
    allowances = {one.id: one for one in gateway.allowances}
    for name in gateway.deployments:
        allowances |= {one.id: one for one in gateway.allowances_at(name)}
    found = []
    for one in allowances.values():
        taken = known.get((one.id, one.begin(moment)), 0)
        ahead = forecast(one, taken, samples.get(one.id, ()), now_s) if one.unit == "usd" else None
        if not one.returns:
            found.append(AllowanceState(allowance=one, taken=taken, forecast=ahead))
    return found


def forecast_gauges(states: Sequence[AllowanceState]) -> dict[tuple[str, Labels], float]:
    """For Prometheus. A budget that is not reached in its window has no time until then."""
    gauges: dict[tuple[str, Labels], float] = {}
    for one in states:
        if one.forecast is None:
            continue
        labels = (("limit", one.allowance.id),)
        gauges["tonnage_gateway_budget_expected_share", labels] = one.forecast.share_at_end
        gauges["tonnage_gateway_budget_warns", labels] = float(one.forecast.warns)
        if one.forecast.reached_in_s is not None:
            gauges["tonnage_gateway_budget_reached_in_seconds", labels] = one.forecast.reached_in_s
    return gauges


def forecast_document(found: SpendForecast | None) -> dict[str, Any] | None:
    if found is None:
        return None
    return {"usd_per_hour": found.pico_per_s * HOUR_S / PICO_PER_USD, "measured_s": found.over_s,
            "reached_in_s": found.reached_in_s, "share_at_end": found.share_at_end, "warns": found.warns}  # fmt: skip


def _allowance(state: AllowanceState) -> dict[str, Any]:
    one = state.allowance
    return {"id": one.id, "words": one.words, "scope": one.scope, "name": one.name, "unit": one.unit,
            "window": one.window, "hard": one.hard, "cap": one.cap, "taken": state.taken,
            "forecast": forecast_document(state.forecast)}  # fmt: skip


def _summed(found: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total = Counter[str]()
    for one in found:
        total.update(one)
    return dict(total)
