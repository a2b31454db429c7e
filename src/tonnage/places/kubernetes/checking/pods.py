"""Pods, alone or as the template of something else.

Source of the rules: the API reference of Kubernetes 1.36 and k8s.io/kubernetes/pkg/apis/core/validation.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Any, Final

from tonnage.places.kubernetes.checking.containers import (
    PodParts,
    claim_references,
    containers,
    gates,
    identities,
    profiles,
    reference,
)
from tonnage.places.kubernetes.checking.formats import (
    annotated,
    is_label,
    is_label_value,
    is_qualified,
    labels,
    selector,
)
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
from tonnage.places.kubernetes.checking.volumes import sound_volumes, volumes

GRACE_S: Final = 30  # where the pod says none
RESTARTS: Final = ("Always", "OnFailure", "Never")
DNS: Final = ("ClusterFirst", "ClusterFirstWithHostNet", "Default", "None")
DEADLINE_LIMIT_S: Final = 2**31 - 1


def template(given: Mapping[str, Any], path: str) -> Found:
    """Metadata and specification of the pods that something makes."""
    head = part(given, "metadata")
    yield from labels(f"{path}.labels", part(head, "labels"))
    yield from annotated(f"{path}.annotations", part(head, "annotations"))
    spec = part(given, "spec")
    if many(spec, "ephemeralContainers"):
        yield forbidden(f"{path}.spec.ephemeralContainers", "ephemeral containers not allowed in pod template")
    yield from pod_spec(spec, f"{path}.spec", more_volumes=())


def pod(given: Mapping[str, Any]) -> Found:
    """A pod by itself."""
    spec = part(given, "spec")
    if many(spec, "ephemeralContainers"):
        yield forbidden("spec.ephemeralContainers", "cannot be set on create")
    yield from pod_spec(spec, "spec", more_volumes=())
    for place, one in enumerate(many(spec, "containers")):
        if (one.get("image") or "") != (one.get("image") or "").strip():
            yield invalid(f"spec.containers[{place}].image", "must not have leading or trailing whitespace")


def pod_spec(given: Mapping[str, Any], path: str, *, more_volumes: tuple[str, ...]) -> Found:
    """What a pod is made of. `more_volumes`: those that whoever makes it adds."""
    grace_s = given.get("terminationGracePeriodSeconds")
    parts = PodParts(
        volumes=[*sound_volumes(many(given, "volumes")), *more_volumes],
        claims=[one.get("name") for one in many(given, "resourceClaims")],
        grace_s=GRACE_S if grace_s is None else max(grace_s, 1),  # less than 0 means 1 to the server
    )
    yield from volumes(many(given, "volumes"), f"{path}.volumes")
    yield from claim_references(many(given, "resourceClaims"), f"{path}.resourceClaims")
    yield from containers(given, path, parts)
    yield from one_of(f"{path}.restartPolicy", given.get("restartPolicy"), RESTARTS)
    yield from _dns(given, path)
    yield from between(f"{path}.activeDeadlineSeconds", given.get("activeDeadlineSeconds"), 1, DEADLINE_LIMIT_S)
    yield from _names(given, path)
    yield from _where(given, path)
    yield from _host(given, path)
    yield from _context(given.get("securityContext"), f"{path}.securityContext")


def _dns(given: Mapping[str, Any], path: str) -> Found:
    yield from one_of(f"{path}.dnsPolicy", given.get("dnsPolicy"), DNS)
    if given.get("dnsPolicy") != "None":
        return
    if given.get("dnsConfig") is None:
        yield required(f"{path}.dnsConfig", "must provide `dnsConfig` when `dnsPolicy` is None")
    elif not many(given["dnsConfig"], "nameservers"):
        yield required(f"{path}.dnsConfig.nameservers", "must provide at least one DNS nameserver")


def _names(given: Mapping[str, Any], path: str) -> Found:
    for key in ("serviceAccountName", "priorityClassName", "runtimeClassName", "nodeName"):
        yield from reference(f"{path}.{key}", given.get(key))
    for key in ("hostname", "subdomain"):
        if given.get(key) and not is_label(given[key]):
            yield invalid(f"{path}.{key}", f"'{given[key]}' is no DNS label")
    for place, one in enumerate(many(given, "imagePullSecrets")):
        if not one.get("name"):
            yield required(f"{path}.imagePullSecrets[{place}].name")
    yield from gates(many(given, "schedulingGates"), f"{path}.schedulingGates")


def _where(given: Mapping[str, Any], path: str) -> Found:
    yield from labels(f"{path}.nodeSelector", part(given, "nodeSelector"))
    yield from tolerations(many(given, "tolerations"), f"{path}.tolerations")
    yield from affinity(part(given, "affinity"), f"{path}.affinity")
    yield from spread(many(given, "topologySpreadConstraints"), f"{path}.topologySpreadConstraints")


def _host(given: Mapping[str, Any], path: str) -> Found:
    for place, one in enumerate(many(given, "hostAliases")):
        try:
            ipaddress.ip_address(one.get("ip") or "")
        except ValueError:
            yield invalid(f"{path}.hostAliases[{place}].ip", f"'{one.get('ip')}' is no IP address")
    if given.get("hostPID") and given.get("shareProcessNamespace"):
        yield invalid(f"{path}.shareProcessNamespace", "cannot be with hostPID")
    if not given.get("hostNetwork"):
        return
    for number, one in enumerate(many(given, "containers")):
        for place, port in enumerate(many(one, "ports")):
            if port.get("hostPort") not in (None, 0, port.get("containerPort")):
                where = f"{path}.containers[{number}].ports[{place}].hostPort"
                yield invalid(where, "must match `containerPort` when `hostNetwork` is true")


def _context(given: Mapping[str, Any] | None, path: str) -> Found:
    if given is None:
        return
    yield from identities(given, path, ("runAsUser", "runAsGroup", "fsGroup"))
    for place, group in enumerate(many(given, "supplementalGroups")):
        yield from between(f"{path}.supplementalGroups[{place}]", group, 0, DEADLINE_LIMIT_S)
    yield from profiles(given, path)
    yield from one_of(f"{path}.fsGroupChangePolicy", given.get("fsGroupChangePolicy"), ("Always", "OnRootMismatch"))
    for place, one in enumerate(many(given, "sysctls")):
        if not one.get("name"):
            yield required(f"{path}.sysctls[{place}].name")


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
