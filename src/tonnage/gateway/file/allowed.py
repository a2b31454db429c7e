"""Budgets and limits of a gateway file -> allowances of its scopes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from tonnage.gateway.file.entries import GatewayEntries, LimitEntry
from tonnage.gateway.money.allowances import SCOPE_KINDS, Allowance, ScopeKind, Unit, Window
from tonnage.gateway.money.rates import pico_usd


def own_before_all(found: Iterable[tuple[bool, Allowance]]) -> tuple[Allowance, ...]:
    """One allowance an account: what is stated for a name goes before what `*` gives each."""
    by_id: dict[str, Allowance] = {}
    for _, one in sorted(found, key=lambda pair: pair[0], reverse=True):  # those of `*` first
        by_id[one.id] = one
    return tuple(by_id.values())


def allowances_in(entries: GatewayEntries) -> Iterator[tuple[bool, Allowance]]:
    """Each with whether it is one of those that `*` gives."""
    names = scope_names(entries)
    for budget in entries.budgets:
        scope_of_all = budget.of.endswith("*")
        for scope, name in _scopes(budget.of, names):
            yield (
                scope_of_all,
                Allowance(
                    scope=scope,
                    name=name,
                    unit="usd",
                    window=budget.per,
                    cap=pico_usd(budget.usd),
                    hard=budget.at == "hard",
                ),
            )
    for limit in entries.limits:
        yield from _limit_allowances(limit, names)


def _limit_allowances(limit: LimitEntry, names: Mapping[str, tuple[str, ...]]) -> Iterator[tuple[bool, Allowance]]:
    scope_of_all = limit.of.endswith("*")
    for scope, name in _scopes(limit.of, names):
        for unit, window, cap in rates_of(limit.requests_per_minute, limit.tokens_per_minute, limit.at_once):
            yield scope_of_all, Allowance(scope=scope, name=name, unit=unit, window=window, cap=cap)


def rates_of(requests: int | None, tokens: int | None, at_once: int | None) -> Iterator[tuple[Unit, Window, int]]:
    """Unit, window and cap of each limit that is stated."""
    if requests is not None:
        yield "requests", "minute", requests
    if tokens is not None:
        yield "tokens", "minute", tokens
    if at_once is not None:
        yield "at-once", "ever", at_once


def _scopes(scope: str, names: Mapping[str, tuple[str, ...]]) -> Iterator[tuple[ScopeKind, str]]:
    kind, _, name = scope.partition(":")
    for known in SCOPE_KINDS:
        if known == kind:
            for one in names[kind] if name == "*" else (name,):
                yield known, one


def scope_names(entries: GatewayEntries) -> dict[str, tuple[str, ...]]:
    """What a scope of each kind may name."""
    keys = entries.keys.values()
    return {
        "key": tuple(entries.keys),
        "team": tuple(dict.fromkeys(one.team for one in keys)),
        "project": tuple(dict.fromkeys(one.project for one in keys)),
        "route": tuple(entries.routes),
        "deployment": tuple(entries.deployments),
    }
