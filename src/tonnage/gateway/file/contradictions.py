"""What contradicts itself in a gateway file, with the key and what to write instead."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tonnage.comparison.user_files import unknown
from tonnage.errors import InputError
from tonnage.gateway.file.allowed import rates_of, scope_names
from tonnage.gateway.file.deployment_entries import media_problems
from tonnage.gateway.file.described import Gateway
from tonnage.gateway.file.entries import DeploymentEntry, GatewayEntries, RouteEntry, RouteRuleEntry
from tonnage.gateway.file.guardrail_entries import classifier_problems, guardrail_problems, language_problems
from tonnage.http.pool import read_endpoint
from tonnage.secret_references import SUCH_AS
from tonnage.workload.file.problems import Problem

LOCAL: Final = ("127.0.0.1", "::1", "localhost")


def contradictions(entries: GatewayEntries) -> Iterator[Problem]:
    """Every problem of a file, from whom it lets in to its limits."""
    yield from _open_problems(entries)
    for name, one in entries.deployments.items():
        yield from _deployment_problems(name, one)
    for name, route in entries.routes.items():
        yield from _route_problems(name, route, entries)
    for check in entries.guardrails.values():
        yield from guardrail_problems(check, entries.deployments)
    used = {rule.classifier for route in entries.routes.values() for rule in route.rules if rule.classifier}
    for classifier in entries.classifiers.values():
        yield from classifier_problems(classifier, entries.deployments, used)
    yield from _repeated(entries)
    yield from _kept_problems(entries)
    for index, budget in enumerate(entries.budgets):
        yield from _scope_problems(("budgets", index, "of"), budget.of, entries)
    for index, limit in enumerate(entries.limits):
        yield from _scope_problems(("limits", index, "of"), limit.of, entries)
        if limit.requests_per_minute is limit.tokens_per_minute is limit.at_once is None:
            yield Problem(("limits", index), "limits nothing", "requests_per_minute, tokens_per_minute or at_once")


def _open_problems(entries: GatewayEntries) -> Iterator[Problem]:
    """Nothing to ask for, or open to those who should not ask."""
    if not entries.deployments:
        yield Problem(("deployments",), "has no deployment", "name one model")
    if not entries.routes:
        yield Problem(("routes",), "has no route", "name one use case")
    if entries.listen.host not in LOCAL and not entries.keys:
        yield Problem(("listen", "host"), "others than this machine could ask without a key", "add `keys:`")
    if entries.listen.admin_host not in LOCAL and entries.listen.admin_key is None:
        yield Problem(("listen", "admin_host"), "others could read the figures without a key", "add `admin_key:`")


def _kept_problems(entries: GatewayEntries) -> Iterator[Problem]:
    """What is counted, kept, encrypted and sent elsewhere."""
    counted = entries.limits_in == "redis"
    if counted and entries.redis is None:
        yield Problem(("limits_in",), "needs an address of Redis", "`redis: env:REDIS_URL`")
    if entries.redis is not None and not counted and not any(one.cache for one in entries.routes.values()):
        yield Problem(("redis",), "keeps nothing: no route has a cache", "`cache: {ttl: 1h}` in a route")
    if entries.batches is not None and entries.batches.file_mb > entries.listen.body_mb:
        yield Problem(("batches", "file_mb"), "is more than a request may have", "raise `listen.body_mb` too")
    if entries.encrypt is not None:
        if entries.batches is not None and "batches" not in entries.encrypt.plain:
            yield Problem(("encrypt",), "does not encrypt the files of `batches`, which hold requests and answers",
                          "say so: `plain: [batches]`, on an encrypted disk; or leave `batches` out")  # fmt: skip
        if entries.batches is None and entries.encrypt.plain:
            yield Problem(("encrypt", "plain"), "names what is not there", "leave it out")
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


def _deployment_problems(name: str, one: DeploymentEntry) -> Iterator[Problem]:
    here = ("deployments", name)
    stated = [key for key in ("price", "catalog_price", "own") if getattr(one, key) is not None]
    if not stated and one.media is None:
        yield Problem(
            here,
            "has no price, and an unknown price is not taken as zero",
            "price, catalog_price, own (a machine of yours) or media",
        )
    if one.media is not None:
        yield from media_problems((*here, "media"), one.media, one.dialect)
    if len(stated) > 1:
        yield Problem(
            (*here, stated[1]), f"cannot be given together with {stated[0]}", "one of them says what it costs"
        )
    if one.own is not None and one.own.plan is None:
        for key in ("input_tokens_per_s", "output_tokens_per_s"):
            if getattr(one.own, key) is None:
                yield Problem(
                    (*here, "own", key), "is missing", "measure it by `tonnage bench serve`, or name a `plan:`"
                )
    if one.quality is not None and one.quality_from is not None:
        yield Problem((*here, "quality_from"), "cannot be given together with quality", "one of them says its score")
    try:
        read_endpoint(one.url)
    except InputError as error:
        yield Problem((*here, "url"), error.message, error.hint)
    if one.sign_in is not None and one.sign_in.kind in ("bearer", "x-api-key", "api-key") and one.sign_in.key is None:
        yield Problem((*here, "sign_in", "key"), "is missing", SUCH_AS)


def _route_problems(name: str, route: RouteEntry, entries: GatewayEntries) -> Iterator[Problem]:
    here = ("routes", name)
    for one in route.deployments:
        if one not in entries.deployments:
            yield unknown((*here, "deployments"), "deployment", one, entries.deployments)
    for index, rule in enumerate(route.rules):
        yield from _rule_problems((*here, "rules", index), rule, entries)
    if route.policy == "weighted" and set(route.weights or {}) != set(route.deployments):
        yield Problem((*here, "weights"), "must name each deployment of the route, and no other", "deployment: weight")
    if route.fallback is not None and route.fallback not in entries.routes:
        yield unknown((*here, "fallback"), "route", route.fallback, entries.routes)
    for one in route.guardrails:
        if one not in entries.guardrails:
            yield unknown((*here, "guardrails"), "guardrail", one, entries.guardrails)
    semantic = None if route.cache is None else route.cache.semantic
    if semantic is not None:
        yield from _semantic_problems((*here, "cache", "semantic", "deployment"), semantic.deployment, entries)
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


def _rule_problems(here: tuple[str | int, ...], rule: RouteRuleEntry, entries: GatewayEntries) -> Iterator[Problem]:
    for one in rule.deployments:
        if one not in entries.deployments:
            yield unknown((*here, "deployments"), "deployment", one, entries.deployments)
    yield from language_problems((*here, "languages"), rule.languages or ())
    if rule.classifier is not None and rule.classifier not in entries.classifiers:
        yield unknown((*here, "classifier"), "classifier", rule.classifier, entries.classifiers)
    if (rule.classifier is None) != (rule.labels is None):
        missing = "labels" if rule.labels is None else "classifier"
        yield Problem((*here, missing), "is missing", "`classifier: NAME` and `labels: ...` go together")


def quality_contradictions(gateway: Gateway) -> Iterator[Problem]:
    """Floors of routes that cannot be held: deployments without a score, scores of different measures. A score that a
    file states is of whatever measure its writer says."""
    for name, route in gateway.routes.items():
        here = ("routes", name, "quality")
        if route.quality is None:
            continue
        named = [*route.deployments, *(one for rule in route.rules for one in rule.deployments)]
        if route.canary is not None:
            named.append(route.canary.deployment)
        measures: dict[str, str] = {}
        for one in dict.fromkeys(named):
            score = gateway.deployments[one].quality
            if score is None and not route.quality_unknown:
                yield Problem(
                    here, f"the quality of {one} is not known",
                    "`quality:` or `quality_from:` there; `quality_unknown: allow` here uses it all the same",
                )  # fmt: skip
            elif score is not None and score.metric is not None:
                measures.setdefault(score.metric, one)
        if len(measures) > 1:
            each = " and ".join(f"{metric} of {one}" for metric, one in measures.items())
            yield Problem(here, f"cannot be compared with {each}", "one measure for all deployments of a route")


def _semantic_problems(path: tuple[str | int, ...], name: str, entries: GatewayEntries) -> Iterator[Problem]:
    known = entries.deployments.get(name)
    if known is None:
        yield unknown(path, "deployment", name, entries.deployments)
    elif known.dialect != "openai":
        yield Problem(path, f"{name} speaks {known.dialect}, which has no /embeddings", "name one of dialect openai")


def _scope_problems(path: tuple[str | int, ...], scope: str, entries: GatewayEntries) -> Iterator[Problem]:
    kind, _, name = scope.partition(":")
    known = scope_names(entries).get(kind, ())
    if kind != "total" and name != "*" and name not in known:
        yield unknown(path, kind, name, known)


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
        for unit, *_ in rates_of(limit.requests_per_minute, limit.tokens_per_minute, limit.at_once):
            if (limit.of, unit) in seen:
                yield Problem(("limits", index), f"{limit.of} has a limit of {unit} already", "one for each scope")
            seen.add((limit.of, unit))
