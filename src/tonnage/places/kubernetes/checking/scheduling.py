"""Where pods may go: tolerations, affinity, topology spread."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tonnage.places.kubernetes.checking.formats import is_label_value, is_qualified, selector
from tonnage.places.kubernetes.checking.refusals import (
    Found,
    at_least,
    between,
    duplicate,
    forbidden,
    invalid,
    many,
    one_of,
    part,
    required,
)

EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"


def tolerations(given: list[dict[str, Any]], path: str) -> Found:
    """Which taints of nodes the pod bears with."""
    for place, one in enumerate(given):
        yield from _toleration(one, f"{path}[{place}]")


def _toleration(given: Mapping[str, Any], path: str) -> Found:
    key, operator, value = given.get("key"), given.get("operator") or "Equal", given.get("value") or ""
    if key and not is_qualified(key):
        yield invalid(f"{path}.key", f"'{key}' is no label name")
    if not key and operator != "Exists":
        yield invalid(f"{path}.operator", "must be Exists when `key` is empty, which means every key")
    if given.get("tolerationSeconds") is not None and given.get("effect") != "NoExecute":
        yield invalid(f"{path}.effect", "must be NoExecute when `tolerationSeconds` is set")
    if operator == "Equal":
        if not is_label_value(value):
            yield invalid(f"{path}.operator", f"'{value}' is no label value")
    elif operator == "Exists":
        if value:
            yield invalid(f"{path}.operator", "value must be empty when `operator` is 'Exists'")
    else:
        yield from one_of(f"{path}.operator", operator, ("Equal", "Exists"))
    yield from one_of(f"{path}.effect", given.get("effect"), EFFECTS)


def affinity(given: Mapping[str, Any], path: str) -> Found:
    """To nodes, to pods, and against pods."""
    nodes = given.get("nodeAffinity")
    if nodes is not None:
        yield from _nodes(nodes, f"{path}.nodeAffinity")
    for kind in ("podAffinity", "podAntiAffinity"):
        pods = part(given, kind)
        for place, one in enumerate(many(pods, REQUIRED)):
            yield from _pods(one, f"{path}.{kind}.{REQUIRED}[{place}]")
        for place, one in enumerate(many(pods, PREFERRED)):
            at = f"{path}.{kind}.{PREFERRED}[{place}]"
            yield from between(f"{at}.weight", one.get("weight") or 0, 1, 100)
            yield from _pods(part(one, "podAffinityTerm"), f"{at}.podAffinityTerm")


def _nodes(given: Mapping[str, Any], path: str) -> Found:
    if given.get(REQUIRED) is not None:
        terms = many(given[REQUIRED], "nodeSelectorTerms")
        if not terms:
            yield required(f"{path}.{REQUIRED}.nodeSelectorTerms", "must have at least one node selector term")
        for place, one in enumerate(terms):
            yield from _term(one, f"{path}.{REQUIRED}.nodeSelectorTerms[{place}]")
    for place, one in enumerate(many(given, PREFERRED)):
        at = f"{path}.{PREFERRED}[{place}]"
        yield from between(f"{at}.weight", one.get("weight") or 0, 1, 100)
        yield from _term(part(one, "preference"), f"{at}.preference")


def _term(given: Mapping[str, Any], path: str) -> Found:
    for place, one in enumerate(many(given, "matchExpressions")):
        at, operator, values = f"{path}.matchExpressions[{place}]", one.get("operator"), many(one, "values")
        if operator in {"In", "NotIn"}:
            if not values:
                yield required(f"{at}.values", "must be specified when `operator` is 'In' or 'NotIn'")
        elif operator in {"Exists", "DoesNotExist"}:
            if values:
                yield forbidden(f"{at}.values", "may not be specified when `operator` is 'Exists' or 'DoesNotExist'")
        elif operator in {"Gt", "Lt"}:
            if len(values) != 1:
                yield required(f"{at}.values", "must be one value when `operator` is 'Lt' or 'Gt'")
        else:
            yield invalid(f"{at}.operator", f"'{operator}' is no operator of a node selector")
        if not is_qualified(one.get("key") or ""):
            yield invalid(f"{at}.key", f"'{one.get('key')}' is no label name")


def _pods(given: Mapping[str, Any], path: str) -> Found:
    for key in ("labelSelector", "namespaceSelector"):
        if given.get(key) is not None:
            yield from selector(f"{path}.{key}", given[key])
    where = given.get("topologyKey")
    if not where:
        yield required(f"{path}.topologyKey", "can not be empty")
    elif not is_qualified(where):
        yield invalid(f"{path}.topologyKey", f"'{where}' is no label name")


def spread(given: list[dict[str, Any]], path: str) -> Found:
    """Over nodes, zones and the like."""
    seen = []
    for place, one in enumerate(given):
        at, key, otherwise = f"{path}[{place}]", one.get("topologyKey"), one.get("whenUnsatisfiable")
        if (one.get("maxSkew") or 0) <= 0:
            yield invalid(f"{at}.maxSkew", "must be greater than zero")
        if not key:
            yield required(f"{at}.topologyKey", "can not be empty")
        elif not is_qualified(key):
            yield invalid(f"{at}.topologyKey", f"'{key}' is no label name")
        allowed = ("DoNotSchedule", "ScheduleAnyway")
        yield from one_of(f"{at}.whenUnsatisfiable", otherwise, allowed, empty=True)
        if (key, otherwise) in seen:
            yield duplicate(f"{at}.{{topologyKey, whenUnsatisfiable}}", (key, otherwise))
        seen.append((key, otherwise))
        yield from at_least(f"{at}.minDomains", one.get("minDomains"), 1)
        if one.get("minDomains") is not None and otherwise != "DoNotSchedule":
            yield invalid(f"{at}.minDomains", "can only be used with DoNotSchedule")
        if one.get("labelSelector") is not None:
            yield from selector(f"{at}.labelSelector", one["labelSelector"])
        for policy in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
            yield from one_of(f"{at}.{policy}", one.get(policy), ("Honor", "Ignore"))
