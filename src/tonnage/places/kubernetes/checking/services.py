"""What serves: Deployment, StatefulSet, their autoscaler and disruption budget."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tonnage.places.kubernetes.checking.formats import is_subdomain, matches, quantity, selector
from tonnage.places.kubernetes.checking.pods import template
from tonnage.places.kubernetes.checking.refusals import (
    Found,
    at_least,
    between,
    forbidden,
    invalid,
    many,
    one_of,
    part,
    required,
)
from tonnage.places.kubernetes.checking.volumes import claim

METRICS: Final = {
    "Resource": "resource", "ContainerResource": "containerResource", "Pods": "pods", "Object": "object",
    "External": "external",
}  # fmt: skip
STABILIZATION_LIMIT_S, PERIOD_LIMIT_S = 3600, 1800
PROGRESS_S: Final = 600  # where a Deployment says none


def deployment(given: Mapping[str, Any]) -> Found:
    spec = part(given, "spec")
    yield from _replicated(spec, more=())
    yield from at_least("spec.minReadySeconds", spec.get("minReadySeconds"))
    yield from at_least("spec.revisionHistoryLimit", spec.get("revisionHistoryLimit"))
    progress = spec.get("progressDeadlineSeconds", PROGRESS_S)
    yield from at_least("spec.progressDeadlineSeconds", progress)
    if progress <= (spec.get("minReadySeconds") or 0):
        yield invalid("spec.progressDeadlineSeconds", "must be greater than minReadySeconds")
    yield from _strategy(part(spec, "strategy"))


def stateful_set(given: Mapping[str, Any]) -> Found:
    spec = part(given, "spec")
    claims = many(spec, "volumeClaimTemplates")
    yield from _replicated(spec, more=tuple(part(one, "metadata").get("name") or "" for one in claims))
    allowed = ("OrderedReady", "Parallel")
    yield from one_of("spec.podManagementPolicy", spec.get("podManagementPolicy"), allowed)
    for place, one in enumerate(claims):
        yield from claim(part(one, "spec"), f"spec.volumeClaimTemplates[{place}].spec")
    kept = part(spec, "persistentVolumeClaimRetentionPolicy")
    for key in ("whenDeleted", "whenScaled"):
        at = f"spec.persistentVolumeClaimRetentionPolicy.{key}"
        yield from one_of(at, kept.get(key), ("Retain", "Delete"))
    if spec.get("serviceName") and not is_subdomain(spec["serviceName"]):
        yield invalid("spec.serviceName", f"'{spec['serviceName']}' is no name of a Service")


def _replicated(spec: Mapping[str, Any], *, more: tuple[str, ...]) -> Found:
    yield from at_least("spec.replicas", spec.get("replicas"))
    pods, chosen = part(spec, "template"), spec.get("selector")
    found = part(pods, "metadata").get("labels") or {}
    if chosen is None:
        yield required("spec.selector")
    else:
        yield from selector("spec.selector", chosen)
        if not (chosen.get("matchLabels") or chosen.get("matchExpressions")):
            yield invalid("spec.selector", "empty selector is invalid")
    if not matches(chosen, found):
        yield invalid("spec.template.metadata.labels", "`selector` does not match template `labels`")
    if more:
        inner = part(pods, "spec")
        added = [
            {"name": name, "emptyDir": {}}
            for name in more
            if name not in [one.get("name") for one in many(inner, "volumes")]
        ]
        pods = {**pods, "spec": {**inner, "volumes": [*many(inner, "volumes"), *added]}}
    yield from template(pods, "spec.template")
    restart = part(pods, "spec").get("restartPolicy")
    if restart not in (None, ""):
        yield from one_of("spec.template.spec.restartPolicy", restart, ("Always",))
    if part(pods, "spec").get("activeDeadlineSeconds") is not None:
        yield forbidden("spec.template.spec.activeDeadlineSeconds", "pods that are kept have no deadline")


def _strategy(given: Mapping[str, Any]) -> Found:
    kind = given.get("type") or "RollingUpdate"
    yield from one_of("spec.strategy.type", kind, ("Recreate", "RollingUpdate"))
    rolling, at = given.get("rollingUpdate"), "spec.strategy.rollingUpdate"
    if kind == "Recreate":
        if rolling is not None:
            yield forbidden(at, "may not be specified when strategy `type` is 'Recreate'")
        return
    figures = part(given, "rollingUpdate")
    surge, missing = figures.get("maxSurge", "25%"), figures.get("maxUnavailable", "25%")
    yield from _share(missing, f"{at}.maxUnavailable", most=100)
    yield from _share(surge, f"{at}.maxSurge")
    if missing in (0, "0", "0%") and surge in (0, "0", "0%"):
        yield invalid(f"{at}.maxUnavailable", "may not be 0 when `maxSurge` is 0")


def _share(value: int | str, field: str, *, most: int | None = None) -> Found:
    """A number, or a percentage of at most `most`."""
    if isinstance(value, int):
        yield from at_least(field, value)
    elif not (value.endswith("%") and value[:-1].isdigit()):
        yield invalid(field, f"'{value}' is neither a number nor a percentage")
    elif most is not None and int(value[:-1]) > most:
        yield invalid(field, f"must not be greater than {most}%")


def autoscaler(given: Mapping[str, Any]) -> Found:
    spec = part(given, "spec")
    least, most = spec.get("minReplicas"), spec.get("maxReplicas") or 0
    yield from at_least("spec.minReplicas", least, 1)
    if most < 1:
        yield invalid("spec.maxReplicas", "must be greater than 0")
    if least is not None and most < least:
        yield invalid("spec.maxReplicas", "must be greater than or equal to `minReplicas`")
    target = part(spec, "scaleTargetRef")
    for key in ("kind", "name"):
        if not target.get(key):
            yield required(f"spec.scaleTargetRef.{key}")
    for place, one in enumerate(many(spec, "metrics")):
        yield from _metric(one, f"spec.metrics[{place}]", least)
    for way in ("scaleUp", "scaleDown"):
        rules = part(spec, "behavior").get(way)
        if rules is not None:
            yield from _behavior(rules, f"spec.behavior.{way}")


def _metric(given: Mapping[str, Any], path: str, least: int | None) -> Found:
    kind = given.get("type")
    if not kind:
        yield required(f"{path}.type")
        return
    yield from one_of(f"{path}.type", kind, tuple(METRICS))
    for name in (one for word, one in METRICS.items() if given.get(one) is not None and word != kind):
        if given.get(METRICS.get(kind, "")) is not None:
            yield forbidden(f"{path}.{name}", "must populate the given metric source only")
    own = METRICS.get(kind)
    if own is None:
        return
    if given.get(own) is None:
        yield required(f"{path}.{own}", "must populate information for the given metric source")
        return
    source, at = given[own], f"{path}.{own}"
    if own in {"resource", "containerResource"}:
        if not source.get("name"):
            yield required(f"{at}.name")
        if own == "containerResource" and not source.get("container"):
            yield required(f"{at}.container")
    else:
        yield from _metric_name(part(source, "metric").get("name"), f"{at}.metric.name")
    if own == "external" and least == 0:
        return
    yield from _target(part(source, "target"), f"{at}.target", own)


def _metric_name(name: str | None, field: str) -> Found:
    if not name:
        yield required(field)
    elif "/" in name:
        yield invalid(field, "may not contain '/'")


def _target(given: Mapping[str, Any], path: str, kind: str) -> Found:
    yield from one_of(f"{path}.type", given.get("type"), ("Utilization", "Value", "AverageValue"), empty=True)
    for key in ("value", "averageValue"):
        if given.get(key) is not None and quantity(given[key]) <= 0:
            yield invalid(f"{path}.{key}", "must be positive")
    if given.get("averageUtilization") is not None:
        yield from at_least(f"{path}.averageUtilization", given["averageUtilization"], 1)
    if kind in {"external", "object"}:
        if given.get("value") is None and given.get("averageValue") is None:
            yield required(f"{path}.averageValue", "must set either a target value or a target averageValue")
        if kind == "external" and given.get("value") is not None and given.get("averageValue") is not None:
            yield forbidden(f"{path}.value", "may not set both a target value for metric and a per-pod target")
    if kind == "pods" and given.get("averageValue") is None:
        yield required(f"{path}.averageValue", "must specify a positive target averageValue")
    of_a_pod = kind in {"resource", "containerResource"}
    if of_a_pod and given.get("averageUtilization") is None and given.get("averageValue") is None:
        yield required(f"{path}.averageUtilization", "must set either a target raw value or a target utilization")


def _behavior(given: Mapping[str, Any], path: str) -> Found:
    yield from between(
        f"{path}.stabilizationWindowSeconds", given.get("stabilizationWindowSeconds"), 0, STABILIZATION_LIMIT_S
    )
    yield from one_of(f"{path}.selectPolicy", given.get("selectPolicy"), ("Disabled", "Max", "Min"))
    if given.get("policies") is not None and not given["policies"]:
        yield required(f"{path}.policies", "must specify at least one Policy")
    for place, one in enumerate(many(given, "policies")):
        at = f"{path}.policies[{place}]"
        yield from one_of(f"{at}.type", one.get("type"), ("Percent", "Pods"), empty=True)
        yield from at_least(f"{at}.value", one.get("value") or 0, 1)
        yield from between(f"{at}.periodSeconds", one.get("periodSeconds") or 0, 1, PERIOD_LIMIT_S)


def disruption_budget(given: Mapping[str, Any]) -> Found:
    spec = part(given, "spec")
    if spec.get("minAvailable") is not None and spec.get("maxUnavailable") is not None:
        yield invalid("spec", "minAvailable and maxUnavailable cannot be both set")
    for key in ("minAvailable", "maxUnavailable"):
        if spec.get(key) is not None:
            yield from _share(spec[key], f"spec.{key}", most=100)
    if spec.get("selector") is not None:
        yield from selector("spec.selector", spec["selector"])
    allowed = ("AlwaysAllow", "IfHealthyBudget")
    yield from one_of("spec.unhealthyPodEvictionPolicy", spec.get("unhealthyPodEvictionPolicy"), allowed)
