"""The status page of a gateway: what all its workers count and have under way, beside its accounts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from time import monotonic
from typing import Any

from tonnage.gateway.file.described import ANYBODY, Gateway
from tonnage.gateway.measures import added_up
from tonnage.gateway.money.shared_accounts import AccountState
from tonnage.gateway.money.sql_store import AccountsError
from tonnage.gateway.proxy.running import Running
from tonnage.gateway.proxy.settlement import AttemptUnderWay
from tonnage.gateway.routing.choosing import expected_answer_s


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
    states: Sequence[AccountState] | AccountsError,
) -> dict[str, Any]:  # fmt: skip
    """`living`: what each living worker wrote; `all_counted`: also those that were killed, whose counts stay."""
    failed = isinstance(states, AccountsError)
    return {
        "schema": "tonnage/gateway-status@1", "at_s": now_s, "workers": len(living),
        "deployments": {name: {
            "under_way": sum(one["under_way"].get(name, 0) for one in living),
            "first_byte_s": health.first_byte_s, "answer_s": _answer_s(running, name),
            "failures_in_a_row": health.failures,
            "resting": not health.available(monotonic()),
            "resting_workers": sum(name in one.get("resting", ()) for one in living),
        } for name, health in running.healths.items()},
        "routes": list(running.gateway.routes),
        "keys": [one.name for one in running.gateway.callers.values()] or [ANYBODY.name],
        "in_flight": {kind: _summed(one.get("in_flight", {}).get(kind, {}) for one in living)
                      for kind in ("routes", "keys")},
        "waiting": sum(one.get("waiting", 0) for one in living),
        "allowances": None if isinstance(states, AccountsError) else _allowances(running.gateway, states, now_s),
        "accounts": str(states) if failed else None,
        **added_up(all_counted).document(),
    }  # fmt: skip


def _answer_s(running: Running, name: str) -> float | None:
    """Of one more request now, as far as this worker has measured."""
    gateway, health = running.gateway, running.healths[name]
    return expected_answer_s(gateway.deployments[name], health, health.output_tokens, gateway.listen.workers)


def _allowances(gateway: Gateway, states: Sequence[AccountState], now_s: float) -> list[dict[str, Any]]:
    """What is settled of each allowance in its present window; requests at a time are settled of nothing."""
    moment = datetime.fromtimestamp(now_s, UTC)
    taken = {one.account: one.committed for one in states}
    found = {one.id: one for one in gateway.allowances}
    for name in gateway.deployments:
        found |= {one.id: one for one in gateway.allowances_at(name)}
    return [
        {"id": one.id, "words": one.words, "scope": one.scope, "name": one.name, "unit": one.unit,
         "window": one.window, "hard": one.hard, "cap": one.cap, "taken": taken.get((one.id, one.begin(moment)), 0)}
        for one in found.values() if not one.returns
    ]  # fmt: skip


def _summed(found: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total = Counter[str]()
    for one in found:
        total.update(one)
    return dict(total)
