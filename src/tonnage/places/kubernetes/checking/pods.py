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
from tonnage.places.kubernetes.checking.formats import is_label, labels
from tonnage.places.kubernetes.checking.metadata import annotated
from tonnage.places.kubernetes.checking.refusals import (
    Found,
    between,
    forbidden,
    invalid,
    many,
    one_of,
    part,
    required,
)
from tonnage.places.kubernetes.checking.scheduling import affinity, spread, tolerations
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
