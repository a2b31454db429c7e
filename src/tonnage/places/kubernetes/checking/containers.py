"""Containers of a pod: names, resources, environment, ports, probes, hooks, rights.

Source of the rules: the API reference of Kubernetes 1.36 and k8s.io/kubernetes/pkg/apis/core/validation.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from tonnage.places.kubernetes.checking.container_fields import (
    PORT_LIMIT,
    container_resources,
    handler,
    port_name,
    probe,
    sleep,
    variable,
    variables,
)
from tonnage.places.kubernetes.checking.formats import (
    dns_label,
    is_label,
    is_qualified,
    is_subdomain,
)
from tonnage.places.kubernetes.checking.refusals import (
    Found,
    between,
    duplicate,
    forbidden,
    invalid,
    many,
    no_repeats,
    not_found,
    one_of,
    part,
    required,
)
from tonnage.values import dataclass

USER_LIMIT: Final = 2**31 - 1
PULLS, PROTOCOLS = ("Always", "IfNotPresent", "Never"), ("SCTP", "TCP", "UDP")
SECCOMP: Final = ("Localhost", "RuntimeDefault", "Unconfined")


@dataclass(frozen=True, slots=True, kw_only=True)
class PodParts:
    """What containers refer to in their pod."""

    volumes: Collection[str]
    claims: Collection[str]
    grace_s: int


def containers(given: Mapping[str, Any], path: str, parts: PodParts) -> Found:
    """Those of a pod's specification and the ones that start before them."""
    own, before = many(given, "containers"), many(given, "initContainers")
    if not own:
        yield required(f"{path}.containers")
    for place, one in enumerate(own):
        yield from container(one, f"{path}.containers[{place}]", parts)
        yield from _own(one, f"{path}.containers[{place}]")
    for place, one in enumerate(before):
        yield from container(one, f"{path}.initContainers[{place}]", parts)
        yield from _before(one, f"{path}.initContainers[{place}]")
    names = [(f"{path}.containers[{place}].name", one.get("name")) for place, one in enumerate(own)]
    names += [(f"{path}.initContainers[{place}].name", one.get("name")) for place, one in enumerate(before)]
    yield from no_repeats((field, name) for field, name in names if name)


def container(given: Mapping[str, Any], path: str, parts: PodParts) -> Found:
    """What holds of every container."""
    yield from dns_label(f"{path}.name", given.get("name"))
    if not given.get("image"):
        yield required(f"{path}.image")
    yield from one_of(f"{path}.imagePullPolicy", given.get("imagePullPolicy"), PULLS)
    policies = ("File", "FallbackToLogsOnError")
    yield from one_of(f"{path}.terminationMessagePolicy", given.get("terminationMessagePolicy"), policies)
    yield from _ports(many(given, "ports"), f"{path}.ports")
    for place, one in enumerate(many(given, "env")):
        yield from variable(one, f"{path}.env[{place}]")
    for place, one in enumerate(many(given, "envFrom")):
        yield from variables(one, f"{path}.envFrom[{place}]")
    yield from _mounts(given, path, parts)
    yield from container_resources(part(given, "resources"), f"{path}.resources", parts.claims)
    yield from _rights(given.get("securityContext"), f"{path}.securityContext")
    for name in ("postStart", "preStop"):
        hook = part(given, "lifecycle").get(name)
        if hook is not None:
            yield from handler(hook, f"{path}.lifecycle.{name}")
            yield from sleep(hook, f"{path}.lifecycle.{name}", parts.grace_s)


def _own(given: Mapping[str, Any], path: str) -> Found:
    for name in ("livenessProbe", "readinessProbe", "startupProbe"):
        yield from probe(given, name, path)
    yield from _restarts(given, path)


def _before(given: Mapping[str, Any], path: str) -> Found:
    """A container that starts before the others; one that stays beside them has restartPolicy Always."""
    if given.get("restartPolicy") == "Always":
        yield from _own(given, path)
        return
    why = "may not be set for init containers without restartPolicy=Always"
    for name in ("lifecycle", "livenessProbe", "readinessProbe", "startupProbe"):
        if given.get(name) is not None:
            yield forbidden(f"{path}.{name}", why)
    yield from _restarts(given, path)


def _restarts(given: Mapping[str, Any], path: str) -> Found:
    policy, rules = given.get("restartPolicy"), many(given, "restartPolicyRules")
    yield from one_of(f"{path}.restartPolicy", policy, ("Always", "Never", "OnFailure"))
    if rules and not policy:
        yield required(f"{path}.restartPolicy", "must be given with restartPolicyRules")
    if len(rules) > 20:
        yield invalid(f"{path}.restartPolicyRules", "at most 20 rules")
    for place, rule in enumerate(rules):
        at = f"{path}.restartPolicyRules[{place}]"
        yield from one_of(f"{at}.action", rule.get("action"), ("Restart", "RestartAllContainers"), empty=True)
        codes = rule.get("exitCodes")
        if codes is None:
            yield required(f"{at}.exitCodes")
            continue
        yield from one_of(f"{at}.exitCodes.operator", codes.get("operator"), ("In", "NotIn"), empty=True)
        if len(many(codes, "values")) > 255:
            yield invalid(f"{at}.exitCodes.values", "at most 255 values")


def _ports(given: list[dict[str, Any]], path: str) -> Found:
    for place, one in enumerate(given):
        at, name, port = f"{path}[{place}]", one.get("name"), one.get("containerPort")
        if name:
            yield from port_name(f"{at}.name", name)
        if not port:
            yield required(f"{at}.containerPort")
        else:
            yield from between(f"{at}.containerPort", port, 1, PORT_LIMIT)
        if one.get("hostPort"):
            yield from between(f"{at}.hostPort", one["hostPort"], 1, PORT_LIMIT)
        yield from one_of(f"{at}.protocol", one.get("protocol"), PROTOCOLS)
    yield from no_repeats((f"{path}[{place}].name", one["name"]) for place, one in enumerate(given) if one.get("name"))


def _mounts(given: Mapping[str, Any], path: str, parts: PodParts) -> Found:
    paths = set()
    for place, one in enumerate(many(given, "volumeMounts")):
        at, name, where = f"{path}.volumeMounts[{place}]", one.get("name"), one.get("mountPath")
        if not name:
            yield required(f"{at}.name")
        elif name not in parts.volumes:
            yield not_found(f"{at}.name", f"the pod has no volume '{name}'")
        if not where:
            yield required(f"{at}.mountPath")
        if where in paths:
            yield invalid(f"{at}.mountPath", f"'{where}' is mounted twice")
        paths.add(where)
        for key in ("subPath", "subPathExpr"):
            if one.get(key):
                yield from below(one[key], f"{at}.{key}")
        if one.get("subPath") and one.get("subPathExpr"):
            yield invalid(f"{at}.subPathExpr", "subPathExpr and subPath are mutually exclusive")
        modes = ("Bidirectional", "HostToContainer", "None")
        yield from one_of(f"{at}.mountPropagation", one.get("mountPropagation"), modes)


def below(given: str, field: str) -> Found:
    """A path inside a volume."""
    if given.startswith("/"):
        yield invalid(field, "must be a relative path")
    if ".." in given.split("/"):
        yield invalid(field, "must not contain '..'")


def _rights(given: Mapping[str, Any] | None, path: str) -> Found:
    if given is None:
        return
    yield from identities(given, path, ("runAsUser", "runAsGroup"))
    yield from profiles(given, path)
    added = many(part(given, "capabilities"), "add")
    if given.get("allowPrivilegeEscalation") is False:
        if given.get("privileged"):
            yield invalid(path, "cannot set `allowPrivilegeEscalation` to false and `privileged` to true")
        if "CAP_SYS_ADMIN" in added:
            yield invalid(path, "cannot set `allowPrivilegeEscalation` to false and add CAP_SYS_ADMIN")
    yield from one_of(f"{path}.procMount", given.get("procMount"), ("Default", "Unmasked"))


def identities(given: Mapping[str, Any], path: str, keys: tuple[str, ...]) -> Found:
    """Numbers of users and groups."""
    for key in keys:
        yield from between(f"{path}.{key}", given.get(key), 0, USER_LIMIT)


def profiles(given: Mapping[str, Any], path: str) -> Found:
    """Of seccomp and AppArmor."""
    for key in ("seccompProfile", "appArmorProfile"):
        profile = given.get(key)
        if profile is None:
            continue
        yield from one_of(f"{path}.{key}.type", profile.get("type"), SECCOMP, empty=True)
        where = profile.get("localhostProfile")
        if profile.get("type") == "Localhost":
            if not where:
                yield required(f"{path}.{key}.localhostProfile", "must be set with the type Localhost")
            else:
                yield from below(where, f"{path}.{key}.localhostProfile")
        elif where:
            yield invalid(f"{path}.{key}.localhostProfile", "can only be set with the type Localhost")


def reference(field: str, name: str | None) -> Found:
    """The name of another object."""
    if name and not is_subdomain(name):
        yield invalid(field, f"'{name}' is no name of an object")


def claim_references(given: list[dict[str, Any]], path: str) -> Found:
    """The device claims of a pod."""
    names: list[str] = []
    for place, one in enumerate(given):
        at, name = f"{path}[{place}]", one.get("name")
        if not name:
            yield required(f"{at}.name")
        elif name in names:
            yield duplicate(at, name)
        elif not is_label(name):
            yield invalid(f"{at}.name", f"'{name}' is no DNS label")
        names.append(name or "")
        chosen = [key for key in ("resourceClaimName", "resourceClaimTemplateName") if one.get(key) is not None]
        if len(chosen) != 1:
            yield invalid(at, "must have one of resourceClaimName and resourceClaimTemplateName")
        for key in chosen:
            yield from reference(f"{at}.{key}", one[key])


def gates(given: list[dict[str, Any]], path: str) -> Found:
    """What holds a pod back from the scheduler."""
    for place, one in enumerate(given):
        if not is_qualified(one.get("name") or ""):
            yield invalid(f"{path}[{place}].name", f"'{one.get('name')}' is no qualified name")
    yield from no_repeats((f"{path}[{place}]", one.get("name")) for place, one in enumerate(given))
