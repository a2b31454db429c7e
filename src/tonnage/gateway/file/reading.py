"""Gateway file -> `Gateway`: names resolved, prices found, what contradicts itself refused with its line."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Final

from tonnage.comparison.user_files import parse_entries
from tonnage.gateway.dialects.translation import TRANSLATED, native
from tonnage.gateway.dialects.usage import Surface
from tonnage.gateway.file.allowed import allowances_in, own_before_all, rates_of
from tonnage.gateway.file.contradictions import contradictions, quality_contradictions
from tonnage.gateway.file.deployment_entries import QualityScore, read_media_rates, read_quality
from tonnage.gateway.file.described import Caller, Deployment, Gateway, Route, RouteRule
from tonnage.gateway.file.entries import (
    DeploymentEntry,
    GatewayEntries,
    KeyEntry,
    LongPriceEntry,
    PriceEntry,
    RouteEntry,
)
from tonnage.gateway.file.guardrail_entries import read_classifier, read_guardrail
from tonnage.gateway.file.kept_entries import RequestLogEntry
from tonnage.gateway.money.allowances import Allowance
from tonnage.gateway.money.rates import DeploymentRates, MediaRates, TierRates, own_rates, pico_usd, tier_rates
from tonnage.gateway.proxy.asked import OUTPUT_KEYS
from tonnage.gateway.signing.sign_in import SignIn
from tonnage.http.pool import read_endpoint
from tonnage.secret_references import is_reference, read_reference
from tonnage.workload.file.problems import raise_problems
from tonnage.workload.file.text import load_text

PAGE: Final = "docs/gateway.md"
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
    raise_problems(contradictions(entries), document)
    environment = os.environ if environment is None else environment
    admin_key = entries.listen.admin_key
    labels: defaultdict[str, set[str]] = defaultdict(set)
    for rule in (rule for route in entries.routes.values() for rule in route.rules):
        if rule.classifier is not None:
            labels[rule.classifier].update(rule.labels or ())
    found = Gateway(
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
        allowances=own_before_all(allowances_in(entries)),
        store=_store(entries.store, home, environment),
        redis=None if entries.redis is None else read_reference(entries.redis, environment, "redis"),
        limits_in_redis=entries.limits_in == "redis",
        durable=entries.durable,
        after_disconnect_s=entries.after_disconnect,
        log_days=entries.log_days,
        guardrails={name: read_guardrail(one, path.parent) for name, one in entries.guardrails.items()},
        classifiers={name: read_classifier(one, frozenset(labels[name])) for name, one in entries.classifiers.items()},
        queue=entries.queue,
        batches=entries.batches,
        request_log=_request_log(entries, path.parent, home),
        spans=entries.spans,
        spans_headers={
            name.lower(): read_reference(reference, environment, f"spans.headers.{name}")
            for name, reference in (entries.spans.headers if entries.spans else {}).items()
        },
        idempotency=entries.idempotency if entries.idempotency.on else None,
        encrypt=entries.encrypt,
    )
    raise_problems(quality_contradictions(found), document)
    return found


def key_hash(key: str) -> str:
    """What is in the file for a key: `blake2b:` and 64 hexadecimal digits. A hash stands for itself."""
    if key.startswith("blake2b:"):
        return key
    return "blake2b:" + blake2b(key.encode(), digest_size=32).hexdigest()


# entries -> values


def _deployment(one: DeploymentEntry, folder: Path, catalog: CatalogRates, planned: PlannedSpeeds) -> Deployment:
    made = [
        Allowance(scope="deployment", name=one.name, unit=unit, window=window, cap=cap)
        for unit, window, cap in rates_of(one.requests_per_minute, one.tokens_per_minute, one.at_once)
    ]
    media = None if one.media is None else read_media_rates(one.media)
    return Deployment(
        name=one.name,
        endpoint=read_endpoint(one.url),
        model=one.model,
        dialect=one.dialect,
        rates=_rates(one, folder, catalog, planned),
        own=one.own is not None,
        own_usd_per_hour=None if one.own is None else one.own.usd_per_hour,
        sign_in=None if one.sign_in is None or one.sign_in.kind == "none" else SignIn(**one.sign_in.model_dump()),
        timeouts=one.timeouts,
        at_once=one.at_once,
        max_output_tokens=one.max_output_tokens,
        quality=_quality(one, folder),
        first_byte_s=None if one.first_byte_ms is None else one.first_byte_ms / 1000.0,
        image_tokens=one.image_tokens,
        stored_tokens=one.stored_tokens,
        region=one.region,
        allowances=tuple(made),
        media=media,
        surfaces=_surfaces(one, media),
    )


def _quality(one: DeploymentEntry, folder: Path) -> QualityScore | None:
    if one.quality_from is not None:
        return read_quality(one.quality_from, folder, f"deployments.{one.name}.quality_from")
    return None if one.quality is None else QualityScore(value=one.quality)


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
            languages=None if rule.languages is None else frozenset(rule.languages),
            words=rule.words,
            classifier=rule.classifier,
            labels=frozenset(rule.labels or ()),
        )
        for rule in one.rules
    )
    weights = tuple((one.weights or {}).get(name, 1.0) for name in one.deployments)
    return Route(
        name=one.name, deployments=one.deployments, policy=one.policy, weights=weights, first_byte_s=one.first_byte,
        answer_s=one.answer, quality=one.quality, quality_unknown=one.quality_unknown == "allow",
        max_tokens=one.max_tokens, cache=one.cache, rules=rules, retry=one.retry, fallback=one.fallback,
        sticky=one.sticky, hedge=one.hedge, canary=one.canary, shadow=one.shadow, guardrails=one.guardrails,
        most_usd_pico=None if one.most_usd_per_request is None else pico_usd(one.most_usd_per_request),
    )  # fmt: skip


def _caller(one: KeyEntry) -> Caller:
    return Caller(
        name=one.name, team=one.team, project=one.project, expires=one.expires, priority=one.priority,
        routes=None if one.routes is None else frozenset(one.routes),
    )  # fmt: skip


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
    return read_reference(stated, environment, "store") if is_reference(stated) else stated
