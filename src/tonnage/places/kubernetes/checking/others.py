"""What a namespace has beside workloads: rights, quotas, secrets, device claims, priorities, admission policies."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from tonnage.places.kubernetes.checking.custom import compiled
from tonnage.places.kubernetes.checking.formats import CONFIG_KEY, is_label, is_qualified, is_subdomain, quantity
from tonnage.places.kubernetes.checking.refusals import (
    Found,
    ObjectRefusal,
    duplicate,
    forbidden,
    invalid,
    many,
    one_of,
    part,
    required,
)
from tonnage.places.kubernetes.checking.volumes import claim

SECRET_BYTES: Final = 1024 * 1024  # of all values
USER_PRIORITY_LIMIT: Final = 1_000_000_000
POLICY_VARIABLES: Final = frozenset(
    {"object", "oldObject", "request", "params", "namespaceObject", "authorizer", "variables"}
)
DEVICE_FIELDS: Final = frozenset({"driver", "attributes", "capacity", "allowMultipleAllocations"})
SECRET_KEYS: Final = {
    "kubernetes.io/tls": ("tls.crt", "tls.key"), "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/dockercfg": (".dockercfg",), "kubernetes.io/ssh-auth": ("ssh-privatekey",),
}  # fmt: skip
QUOTA_NAMES: Final = frozenset(
    ["cpu", "memory", "ephemeral-storage", "pods", "services", "replicationcontrollers", "resourcequotas", "secrets",
     "configmaps", "persistentvolumeclaims", "services.nodeports", "services.loadbalancers", "requests.cpu",
     "requests.memory", "requests.storage", "requests.ephemeral-storage", "limits.cpu", "limits.memory",
     "limits.ephemeral-storage"]
)  # fmt: skip
DEVICES_LIMIT: Final = 32


def role(given: Mapping[str, Any]) -> Found:
    for place, rule in enumerate(many(given, "rules")):
        at = f"rules[{place}]"
        if not many(rule, "verbs"):
            yield required(f"{at}.verbs", "verbs must contain at least one value")
        if many(rule, "nonResourceURLs"):
            yield invalid(f"{at}.nonResourceURLs", "namespaced rules cannot apply to non-resource URLs")
            continue
        if not many(rule, "apiGroups"):
            yield required(f"{at}.apiGroups", "resource rules must supply at least one api group")
        if not many(rule, "resources"):
            yield required(f"{at}.resources", "resource rules must supply at least one resource")


def role_binding(given: Mapping[str, Any]) -> Found:
    target = part(given, "roleRef")
    if target.get("apiGroup") not in (None, "", "rbac.authorization.k8s.io"):
        yield from one_of("roleRef.apiGroup", target["apiGroup"], ("rbac.authorization.k8s.io",))
    yield from one_of("roleRef.kind", target.get("kind"), ("Role", "ClusterRole"), empty=True)
    if not target.get("name"):
        yield required("roleRef.name")
    for place, one in enumerate(many(given, "subjects")):
        at, kind = f"subjects[{place}]", one.get("kind")
        if not one.get("name"):
            yield required(f"{at}.name")
        if kind == "ServiceAccount":
            if one.get("name") and not is_subdomain(one["name"]):
                yield invalid(f"{at}.name", f"'{one['name']}' is no name")
            if one.get("apiGroup"):
                yield from one_of(f"{at}.apiGroup", one["apiGroup"], ("",))
        else:
            yield from one_of(f"{at}.kind", kind, ("ServiceAccount", "User", "Group"), empty=True)


def resource_quota(given: Mapping[str, Any]) -> Found:
    for name, amount in part(part(given, "spec"), "hard").items():
        at = f"spec.hard[{name}]"
        if not is_qualified(name):
            yield invalid(at, f"'{name}' is no name of a resource")
        elif "/" not in name and name not in QUOTA_NAMES and not name.startswith(("hugepages-", "requests.hugepages-")):
            yield invalid(at, f"'{name}' is no standard resource of quotas")
        if quantity(amount) < 0:
            yield invalid(at, "must be greater than or equal to 0")


def limit_range(given: Mapping[str, Any]) -> Found:
    """Bounds and defaults of one namespace. A default limit is the default request too, where none is given."""
    for place, one in enumerate(many(part(given, "spec"), "limits")):
        at, kind = f"spec.limits[{place}]", one.get("type")
        if not kind:
            yield required(f"{at}.type")
        limits, requests = part(one, "default"), part(one, "defaultRequest")
        least, most = part(one, "min"), part(one, "max")
        if kind == "Pod":
            for key in ("default", "defaultRequest"):
                if one.get(key):
                    yield forbidden(f"{at}.{key}", "may not be specified when `type` is 'Pod'")
        if kind == "Container":
            limits = {**most, **limits}
            requests = {**least, **limits, **requests}
        for name in sorted({*least, *most, *limits, *requests}):
            yield from _bounds(name, at, least.get(name), most.get(name), limits.get(name), requests.get(name))


def _bounds(name: str, path: str, least: Any, most: Any, limit: Any, request: Any) -> Found:
    def over(low: Any, high: Any) -> bool:
        return low is not None and high is not None and quantity(low) > quantity(high)

    if over(least, most):
        yield invalid(f"{path}.min[{name}]", f"min value {least} is greater than max value {most}")
    for key, value in (("defaultRequest", request), ("default", limit)):
        if over(least, value):
            yield invalid(f"{path}.{key}[{name}]", f"min value {least} is greater than {key} value {value}")
        if over(value, most):
            yield invalid(f"{path}.{key}[{name}]", f"{key} value {value} is greater than max value {most}")
    if over(request, limit):
        yield invalid(
            f"{path}.defaultRequest[{name}]", f"default request {request} is greater than default limit {limit}"
        )


def secret(given: Mapping[str, Any]) -> Found:
    values = {**part(given, "data"), **part(given, "stringData")}
    for key in values:
        yield from _key(key, f"data[{key}]")
    if sum(len(str(one)) for one in part(given, "stringData").values()) + sum(
        len(one or "") * 3 // 4 for one in part(given, "data").values()
    ) > SECRET_BYTES:  # fmt: skip
        yield ObjectRefusal(field="data", reason="too long", message=f"may not be more than {SECRET_BYTES} bytes")
    for key in SECRET_KEYS.get(given.get("type") or "", ()):
        if key not in values:
            yield required(f"data[{key}]")


def config_map(given: Mapping[str, Any]) -> Found:
    text, raw = part(given, "data"), part(given, "binaryData")
    for key in text:
        yield from _key(key, f"data[{key}]")
        if key in raw:
            yield invalid(f"data[{key}]", "duplicate of key present in binaryData")
    for key in raw:
        yield from _key(key, f"binaryData[{key}]")
    if (
        sum(len((one or "").encode()) for one in text.values()) + sum(len(one or "") * 3 // 4 for one in raw.values())
        > SECRET_BYTES
    ):
        yield ObjectRefusal(field="", reason="too long", message=f"may not be more than {SECRET_BYTES} bytes")


def _key(key: str, field: str) -> Found:
    if not CONFIG_KEY.fullmatch(key) or len(key) > 253 or key == "." or key.startswith(".."):
        yield invalid(field, f"'{key}' is no key: letters, digits, '-', '_' and '.'")


def volume_claim(given: Mapping[str, Any]) -> Found:
    yield from claim(part(given, "spec"), "spec")


def priority_class(given: Mapping[str, Any]) -> Found:
    name, value = part(given, "metadata").get("name") or "", given.get("value") or 0
    if name.startswith("system-"):
        yield forbidden("metadata.name", "priority class names with 'system-' prefix are reserved")
    elif value > USER_PRIORITY_LIMIT:
        yield forbidden("value", f"maximum allowed value of a user defined priority is {USER_PRIORITY_LIMIT}")
    yield from one_of("preemptionPolicy", given.get("preemptionPolicy"), ("Never", "PreemptLowerPriority"))


def resource_claim(given: Mapping[str, Any]) -> Found:
    yield from _claim_spec(part(given, "spec"), "spec")


def resource_claim_template(given: Mapping[str, Any]) -> Found:
    yield from _claim_spec(part(part(given, "spec"), "spec"), "spec.spec")


def _claim_spec(given: Mapping[str, Any], path: str) -> Found:
    requests = many(part(given, "devices"), "requests")
    at = f"{path}.devices.requests"
    if len(requests) > DEVICES_LIMIT:
        yield ObjectRefusal(field=at, reason="too many", message=f"must have at most {DEVICES_LIMIT} items")
    names = []
    for place, one in enumerate(requests):
        here, name = f"{at}[{place}]", one.get("name")
        if not name:
            yield required(f"{here}.name")
        elif not is_label(name):
            yield invalid(f"{here}.name", f"'{name}' is no DNS label")
        elif name in names:
            yield duplicate(here, name)
        names.append(name)
        exact, first = one.get("exactly"), many(one, "firstAvailable")
        if exact is None and not first:
            yield required(here, "exactly one of `exactly` or `firstAvailable` is required")
        elif exact is not None and first:
            yield invalid(here, "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set")
        if exact is not None:
            yield from _device(exact, f"{here}.exactly")
        for number, other in enumerate(first):
            if not is_label(other.get("name") or ""):
                yield invalid(f"{here}.firstAvailable[{number}].name", f"'{other.get('name')}' is no DNS label")
            yield from _device(other, f"{here}.firstAvailable[{number}]")


def _device(given: Mapping[str, Any], path: str) -> Found:
    kind, mode, count = given.get("deviceClassName"), given.get("allocationMode") or "ExactCount", given.get("count")
    if not kind:
        yield required(f"{path}.deviceClassName")
    elif not is_subdomain(kind):
        yield invalid(f"{path}.deviceClassName", f"'{kind}' is no name of a device class")
    yield from one_of(f"{path}.allocationMode", mode, ("All", "ExactCount"))
    if mode == "All" and count:
        yield invalid(f"{path}.count", "must not be specified when allocationMode is 'All'")
    if mode == "ExactCount" and count is not None and count < 0:
        yield invalid(f"{path}.count", "must be greater than zero")
    yield from _selectors(many(given, "selectors"), f"{path}.selectors")


def device_class(given: Mapping[str, Any]) -> Found:
    yield from _selectors(many(part(given, "spec"), "selectors"), "spec.selectors")


def _selectors(given: list[dict[str, Any]], path: str) -> Found:
    for place, one in enumerate(given):
        at, text = f"{path}[{place}].cel.expression", part(one, "cel").get("expression")
        if not text:
            yield required(at)
            continue
        yield from _expression(text, at, frozenset({"device"}))
        bare = re.sub(r"'[^']*'|\"[^\"]*\"", "''", text)
        for field in re.findall(r"\bdevice\.(\w+)", bare):
            if field not in DEVICE_FIELDS:
                yield invalid(at, f"a device has no field '{field}': {', '.join(sorted(DEVICE_FIELDS))}")


def admission_policy(given: Mapping[str, Any]) -> Found:
    spec = part(given, "spec")
    checks = many(spec, "validations")
    if not checks and not many(spec, "auditAnnotations"):
        yield required("spec.validations", "validations or auditAnnotations must contain at least one item")
    for place, one in enumerate(checks):
        at = f"spec.validations[{place}].expression"
        if not (one.get("expression") or "").strip():
            yield required(at)
        else:
            yield from _expression(one["expression"], at, POLICY_VARIABLES)
            yield from _boolean(one["expression"], at)
    if spec.get("matchConstraints") is None:
        yield required("spec.matchConstraints")
    elif not many(spec["matchConstraints"], "resourceRules"):
        yield required("spec.matchConstraints.resourceRules")
    yield from one_of("spec.failurePolicy", spec.get("failurePolicy"), ("Fail", "Ignore"))


def _boolean(text: str, field: str) -> Found:
    """Of an expression that needs no variable: its value is known here. Of others the server finds the type."""
    try:
        program = compiled(text)
        value = True if program.variables() else program.execute({})
    except (ValueError, TypeError, RuntimeError):
        return  # said by the compilation
    if not isinstance(value, bool):
        yield invalid(field, f"must evaluate to bool but got {type(value).__name__}")


def _expression(text: str, field: str, known: frozenset[str]) -> Found:
    """Whether CEL can be compiled, with the variables that there are."""
    try:
        used = compiled(text).variables()
    except ValueError as error:
        yield invalid(field, f"compilation failed: {str(error).splitlines()[0]}")
        return
    bound = set(re.findall(r"\b(?:all|exists|exists_one|filter|map)\(\s*(\w+)\s*,", text))
    for name in used:
        if name not in known and name not in bound:
            yield invalid(field, f"compilation failed: undeclared reference to '{name}'")
