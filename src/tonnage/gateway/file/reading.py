"""Gateway file -> `Gateway`: names resolved, prices found, what contradicts itself refused with its line."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Final

from tonnage.comparison.door import load_text, parse_entries, read_reference, unknown
from tonnage.errors import InputError
from tonnage.gateway.dialects.translation import TRANSLATED, native
from tonnage.gateway.dialects.usage import Surface
from tonnage.gateway.file.described import Caller, Deployment, Gateway, Route, RouteRule
from tonnage.gateway.file.entries import (
    DeploymentEntry,
    GatewayEntries,
    KeyEntry,
    LimitEntry,
    LongPriceEntry,
    PriceEntry,
    RouteEntry,
)
from tonnage.gateway.file.guardrail_entries import guardrail_problems, read_guardrail
from tonnage.gateway.file.media_entries import media_problems, read_media_rates
from tonnage.gateway.file.observing import RequestLogEntry
from tonnage.gateway.media.rates import MediaRates
from tonnage.gateway.money.allowances import SCOPE_KINDS, Allowance, ScopeKind, Unit, Window
from tonnage.gateway.money.rates import DeploymentRates, TierRates, own_rates, pico_usd, tier_rates
from tonnage.gateway.proxy.asked import OUTPUT_KEYS
from tonnage.gateway.signing.sign_in import SignIn
from tonnage.http.pool import read_endpoint
from tonnage.workload.file.problems import Problem, raise_problems

PAGE: Final = "docs/gateway.md"
LOCAL: Final = ("127.0.0.1", "::1", "localhost")
CatalogRates = Callable[[str], DeploymentRates]  # "bedrock/NAME" -> rates; InputError for a name that is sold nowhere
PlannedSpeeds = Callable[[Path], tuple[float, float]]  # a workload file -> input and output tokens/s of its plan


def load_gateway(
    path: Path,
    *,
    home: Path,
    environment: Mapping[str, str] | None = None,
    catalog_rates: CatalogRates,
    planned_speeds: PlannedSpeeds,
) -> Gateway:
    """The gateway of a file. WorkloadError names line and key; InputError what a reference lacks."""
    entries, document = parse_entries(load_text(path), GatewayEntries, file=str(path), page=PAGE)
    raise_problems(_problems(entries), document)
    environment = os.environ if environment is None else environment
    admin_key = entries.listen.admin_key
    return Gateway(
        listen=entries.listen,
        deployments={
            name: _deployment(one, path.parent, catalog_rates, planned_speeds)
            for name, one in entries.deployments.items()
        },
        routes={name: _route(one) for name, one in entries.routes.items()},
        callers={
            key_hash(_secret(one.key, environment, f"keys.{one.name}")): _caller(one) for one in entries.keys.values()
        },
        admin_key=None if admin_key is None else key_hash(_secret(admin_key, environment, "listen.admin_key")),
        allowances=_own_before_all(_allowances(entries)),
        store=_store(entries.store, home, environment),
        redis=None if entries.redis is None else read_reference(entries.redis, environment, "redis"),
        durable=entries.durable,
        after_disconnect_s=entries.after_disconnect,
        log_days=entries.log_days,
        guardrails={name: read_guardrail(one, path.parent) for name, one in entries.guardrails.items()},
        queue=entries.queue,
        batches=entries.batches,
        request_log=_request_log(entries, path.parent, home),
        spans=entries.spans,
        spans_headers={
            name.lower(): read_reference(reference, environment, f"spans.headers.{name}")
            for name, reference in (entries.spans.headers if entries.spans else {}).items()
        },
        idempotency=entries.idempotency if entries.idempotency.on else None,
    )


def key_hash(key: str) -> str:
    """What stands in the file for a key: `blake2b:` and 64 hexadecimal digits. A hash stands for itself."""
    if key.startswith("blake2b:"):
        return key
    return "blake2b:" + blake2b(key.encode(), digest_size=32).hexdigest()


# what contradicts itself


def _problems(entries: GatewayEntries) -> Iterator[Problem]:
    if not entries.deployments:
        yield Problem(("deployments",), "has no deployment", "name one model")
    if not entries.routes:
        yield Problem(("routes",), "has no route", "name one use case")
    if entries.listen.host not in LOCAL and not entries.keys:
        yield Problem(("listen", "host"), "others than this machine could ask without a key", "add `keys:`")
    if entries.listen.admin_host not in LOCAL and entries.listen.admin_key is None:
        yield Problem(("listen", "admin_host"), "others could read the figures without a key", "add `admin_key:`")
    for name, one in entries.deployments.items():
        yield from _deployment_problems(name, one)
    for name, route in entries.routes.items():
        yield from _route_problems(name, route, entries)
    for check in entries.guardrails.values():
        yield from guardrail_problems(check, entries.deployments)
    yield from _repeated(entries)
    if entries.redis is not None and not any(one.cache for one in entries.routes.values()):
        yield Problem(("redis",), "keeps nothing: no route has a cache", "`cache: {ttl: 1h}` in a route")
    if entries.batches is not None and entries.batches.file_mb > entries.listen.body_mb:
        yield Problem(("batches", "file_mb"), "is more than a request may have", "raise `listen.body_mb` too")
    if entries.spans is not None:
        try:
            read_endpoint(entries.spans.endpoint)
        except InputError as error:
            yield Problem(("spans", "endpoint"), error.message, error.hint)
    log = entries.request_log
    if log is not None and log.keep_mb < (entries.listen.workers + 1) * log.file_mb:
        least = (entries.listen.workers + 1) * log.file_mb
        yield Problem(("request_log", "keep_mb"), "is less than a file for each worker and one more",
                      f"at least {least:g} with files of {log.file_mb:g} MB")  # fmt: skip
    for index, budget in enumerate(entries.budgets):
        yield from _scope_problems(("budgets", index, "of"), budget.of, entries)
    for index, limit in enumerate(entries.limits):
        yield from _scope_problems(("limits", index, "of"), limit.of, entries)
        if limit.requests_per_minute is limit.tokens_per_minute is limit.at_once is None:
            yield Problem(("limits", index), "limits nothing", "requests_per_minute, tokens_per_minute or at_once")


def _deployment_problems(name: str, one: DeploymentEntry) -> Iterator[Problem]:
    here = ("deployments", name)
    stated = [key for key in ("price", "catalog_price", "own") if getattr(one, key) is not None]
    if not stated and one.media is None:
        yield Problem(
            here, "has no price: unknown is not free", "price, catalog_price, own (a machine of yours) or media"
        )
    if one.media is not None:
        yield from media_problems((*here, "media"), one.media, one.dialect)
    if len(stated) > 1:
        yield Problem((*here, stated[1]), f"stands beside {stated[0]}", "one of them says what it costs")
    if one.own is not None and one.own.plan is None:
        for key in ("input_tokens_per_s", "output_tokens_per_s"):
            if getattr(one.own, key) is None:
                yield Problem(
                    (*here, "own", key), "is missing", "measure it by `tonnage bench serve`, or name a `plan:`"
                )
    try:
        read_endpoint(one.url)
    except InputError as error:
        yield Problem((*here, "url"), error.message, error.hint)
    if one.sign_in is not None and one.sign_in.kind in ("bearer", "x-api-key", "api-key") and one.sign_in.key is None:
        yield Problem((*here, "sign_in", "key"), "is missing", "env:NAME or file:PATH")


def _route_problems(name: str, route: RouteEntry, entries: GatewayEntries) -> Iterator[Problem]:
    here = ("routes", name)
    for one in route.deployments:
        if one not in entries.deployments:
            yield unknown((*here, "deployments"), "deployment", one, entries.deployments)
    for index, rule in enumerate(route.rules):
        for one in rule.deployments:
            if one not in entries.deployments:
                yield unknown((*here, "rules", index, "deployments"), "deployment", one, entries.deployments)
    if route.policy == "weighted" and set(route.weights or {}) != set(route.deployments):
        yield Problem((*here, "weights"), "must name each deployment of the route, and no other", "deployment: weight")
    if route.fallback is not None and route.fallback not in entries.routes:
        yield unknown((*here, "fallback"), "route", route.fallback, entries.routes)
    for one in route.guardrails:
        if one not in entries.guardrails:
            yield unknown((*here, "guardrails"), "guardrail", one, entries.guardrails)
    for key in ("canary", "shadow"):
        other = getattr(route, key)
        if other is not None and other.deployment not in entries.deployments:
            yield unknown((*here, key, "deployment"), "deployment", other.deployment, entries.deployments)
        elif other is not None and other.deployment in route.deployments:
            problem = f"{other.deployment} is one of the route's own"
            yield Problem((*here, key, "deployment"), problem, "take it out of `deployments`")
    if route.hedge is not None and len(route.deployments) < 2:
        yield Problem((*here, "hedge"), "needs a second deployment", "name one more in `deployments`")
    passed, at = [name], route.fallback
    while at is not None and at in entries.routes:
        if at in passed:
            yield Problem((*here, "fallback"), f"leads round in a circle: {' -> '.join([*passed, at])}", "end it")
            break
        passed.append(at)
        at = entries.routes[at].fallback
    if route.quality is not None:
        for one in route.deployments:
            if one in entries.deployments and entries.deployments[one].quality is None:
                yield Problem((*here, "quality"), f"the quality of {one} is not known", "state it: `quality:` there")


def _scope_problems(path: tuple[str | int, ...], scope: str, entries: GatewayEntries) -> Iterator[Problem]:
    kind, _, name = scope.partition(":")
    known = _scope_names(entries).get(kind, ())
    if kind != "total" and name != "*" and name not in known:
        yield unknown(path, kind, name, known)


def _scope_names(entries: GatewayEntries) -> dict[str, tuple[str, ...]]:
    keys = entries.keys.values()
    return {
        "key": tuple(entries.keys),
        "team": tuple(dict.fromkeys(one.team for one in keys)),
        "project": tuple(dict.fromkeys(one.project for one in keys)),
        "route": tuple(entries.routes),
        "deployment": tuple(entries.deployments),
    }


# entries -> values


def _deployment(one: DeploymentEntry, folder: Path, catalog: CatalogRates, planned: PlannedSpeeds) -> Deployment:
    made = [
        Allowance(scope="deployment", name=one.name, unit=unit, window=window, cap=cap)
        for unit, window, cap in _rates_of(one.requests_per_minute, one.tokens_per_minute, one.at_once)
    ]
    media = None if one.media is None else read_media_rates(one.media)
    return Deployment(
        name=one.name,
        endpoint=read_endpoint(one.url),
        model=one.model,
        dialect=one.dialect,
        rates=_rates(one, folder, catalog, planned),
        own=one.own is not None,
        sign_in=None if one.sign_in is None or one.sign_in.kind == "none" else SignIn(**one.sign_in.model_dump()),
        timeouts=one.timeouts,
        at_once=one.at_once,
        max_output_tokens=one.max_output_tokens,
        quality=one.quality,
        first_byte_s=None if one.first_byte_ms is None else one.first_byte_ms / 1000.0,
        image_tokens=one.image_tokens,
        stored_tokens=one.stored_tokens,
        region=one.region,
        allowances=tuple(made),
        media=media,
        surfaces=_surfaces(one, media),
    )


def _surfaces(one: DeploymentEntry, media: MediaRates | None) -> frozenset[Surface]:
    """What may be asked of it: nothing that has no price."""
    tokens = one.price is not None or one.catalog_price is not None or one.own is not None
    asked = {name for name in OUTPUT_KEYS if native(name, one.dialect) or (name, one.dialect) in TRANSLATED}
    return frozenset(asked if tokens else ()) | (frozenset() if media is None else media.surfaces)


def _rates(one: DeploymentEntry, folder: Path, catalog: CatalogRates, planned: PlannedSpeeds) -> DeploymentRates:
    if one.catalog_price is not None:
        return catalog(one.catalog_price)
    if one.own is not None:
        reads, writes = one.own.input_tokens_per_s, one.own.output_tokens_per_s
        source = "stated speed of an own machine"
        if one.own.plan is not None:
            planned_reads, planned_writes = planned(folder / one.own.plan)
            reads, writes = reads or planned_reads, writes or planned_writes
            source = f"predicted speed, {one.own.plan}"
        assert reads is not None
        assert writes is not None
        return own_rates(
            usd_per_hour=one.own.usd_per_hour, input_tokens_per_s=reads, output_tokens_per_s=writes, source=source
        )
    if one.price is None:  # of images and audio alone: its tokens are not sold
        return DeploymentRates(tiers=(tier_rates(input_usd=0, output_usd=0),), source="no tokens")
    tiers = [_tier(one.price)]
    if one.price.above is not None:
        tiers.append(_tier(one.price.above, above_tokens=one.price.above.tokens))
    return DeploymentRates(
        tiers=tuple(tiers),
        source=one.price.source or "the gateway file",
        read_on=None if one.price.read_on is None else one.price.read_on.isoformat(),
        request_pico=pico_usd(one.price.usd_per_request),
    )


def _tier(price: PriceEntry | LongPriceEntry, above_tokens: int = 0) -> TierRates:
    return tier_rates(
        input_usd=price.input_usd_per_million,
        output_usd=price.output_usd_per_million,
        cached_input_usd=price.cached_input_usd_per_million,
        cache_write_usd=price.cache_write_usd_per_million,
        above_tokens=above_tokens,
    )


def _route(one: RouteEntry) -> Route:
    rules = tuple(
        RouteRule(
            deployments=rule.deployments,
            input_tokens_above=rule.input_tokens_above,
            teams=None if rule.teams is None else frozenset(rule.teams),
            keys=None if rule.keys is None else frozenset(rule.keys),
            regions=None if rule.regions is None else frozenset(rule.regions),
        )
        for rule in one.rules
    )
    weights = tuple((one.weights or {}).get(name, 1.0) for name in one.deployments)
    return Route(
        name=one.name, deployments=one.deployments, policy=one.policy, weights=weights, first_byte_s=one.first_byte,
        quality=one.quality, max_tokens=one.max_tokens, cache=one.cache, rules=rules,
        retry=one.retry, fallback=one.fallback, sticky=one.sticky, hedge=one.hedge, canary=one.canary,
        shadow=one.shadow,
        guardrails=one.guardrails,
        most_usd_pico=None if one.most_usd_per_request is None else pico_usd(one.most_usd_per_request),
    )  # fmt: skip


def _caller(one: KeyEntry) -> Caller:
    return Caller(
        name=one.name, team=one.team, project=one.project, expires=one.expires, priority=one.priority,
        routes=None if one.routes is None else frozenset(one.routes),
    )  # fmt: skip


def _own_before_all(found: Iterable[tuple[bool, Allowance]]) -> tuple[Allowance, ...]:
    """One allowance an account: what is stated for a name goes before what `*` gives each."""
    by_id: dict[str, Allowance] = {}
    for _, one in sorted(found, key=lambda pair: pair[0], reverse=True):  # those of `*` first
        by_id[one.id] = one
    return tuple(by_id.values())


def _repeated(entries: GatewayEntries) -> Iterator[Problem]:
    """Two entries of one scope for the same thing: which one holds would be a guess."""
    seen: set[tuple[object, ...]] = set()
    for index, budget in enumerate(entries.budgets):
        place = (budget.of, budget.per, budget.at)
        if place in seen:
            yield Problem(
                ("budgets", index), f"{budget.of} has this budget already", "one for each scope, time and kind"
            )
        seen.add(place)
    for index, limit in enumerate(entries.limits):
        for unit, *_ in _rates_of(limit.requests_per_minute, limit.tokens_per_minute, limit.at_once):
            if (limit.of, unit) in seen:
                yield Problem(("limits", index), f"{limit.of} has a limit of {unit} already", "one for each scope")
            seen.add((limit.of, unit))


def _allowances(entries: GatewayEntries) -> Iterator[tuple[bool, Allowance]]:
    names = _scope_names(entries)
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
        for unit, window, cap in _rates_of(limit.requests_per_minute, limit.tokens_per_minute, limit.at_once):
            yield scope_of_all, Allowance(scope=scope, name=name, unit=unit, window=window, cap=cap)


def _rates_of(requests: int | None, tokens: int | None, at_once: int | None) -> Iterator[tuple[Unit, Window, int]]:
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


def _secret(reference: str, environment: Mapping[str, str], what: str) -> str:
    if reference.startswith("blake2b:"):
        return reference
    return read_reference(reference, environment, what)


def _request_log(entries: GatewayEntries, folder: Path, home: Path) -> RequestLogEntry | None:
    stated = entries.request_log
    if stated is None:
        return None
    place = home / "gateway" / "requests" if stated.folder is None else folder / stated.folder
    return stated.model_copy(update={"folder": str(place)})


def _store(stated: str | None, home: Path, environment: Mapping[str, str]) -> str:
    if stated is None:
        return str(home / "gateway" / "accounts.db")
    return read_reference(stated, environment, "store") if stated.startswith("env:") else stated
