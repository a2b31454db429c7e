"""Kinds of the network: Service, NetworkPolicy, Ingress."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Any, Final

from tonnage.places.kubernetes.checking.container_fields import port_name
from tonnage.places.kubernetes.checking.formats import is_label, is_subdomain, selector
from tonnage.places.kubernetes.checking.refusals import (
    Found,
    between,
    forbidden,
    invalid,
    many,
    no_repeats,
    one_of,
    part,
    required,
)

SERVICE_TYPES: Final = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
PORT_LIMIT: Final = 65535


def service(given: Mapping[str, Any]) -> Found:
    spec = part(given, "spec")
    kind, address = spec.get("type") or "ClusterIP", spec.get("clusterIP")
    yield from one_of("spec.type", kind, SERVICE_TYPES)
    ports = many(spec, "ports")
    if not ports and kind != "ExternalName" and address != "None":
        yield required("spec.ports")
    if kind == "LoadBalancer" and address == "None":
        yield invalid("spec.clusterIP", "may not be set to 'None' for LoadBalancer services")
    if kind == "NodePort" and address == "None":
        yield invalid("spec.clusterIP", "may not be set to 'None' for NodePort services")
    if kind == "ExternalName" and not spec.get("externalName"):
        yield required("spec.externalName")
    for place, one in enumerate(ports):
        yield from _service_port(one, f"spec.ports[{place}]", several=len(ports) > 1, kind=kind)
    yield from no_repeats(
        (f"spec.ports[{place}].name", one["name"]) for place, one in enumerate(ports) if one.get("name")
    )
    marks = ((one.get("protocol") or "TCP", one.get("port")) for one in ports)
    yield from no_repeats((f"spec.ports[{place}]", mark) for place, mark in enumerate(marks))
    yield from selector("spec.selector", {"matchLabels": part(spec, "selector")})
    yield from one_of("spec.sessionAffinity", spec.get("sessionAffinity"), ("ClientIP", "None"))


def _service_port(given: Mapping[str, Any], path: str, *, several: bool, kind: str) -> Found:
    name, target = given.get("name"), given.get("targetPort")
    if several and not name:
        yield required(f"{path}.name")
    if name and not is_label(name):
        yield invalid(f"{path}.name", f"'{name}' is no DNS label")
    yield from between(f"{path}.port", given.get("port") or 0, 1, PORT_LIMIT)
    yield from one_of(f"{path}.protocol", given.get("protocol"), ("SCTP", "TCP", "UDP"))
    if isinstance(target, str):
        yield from port_name(f"{path}.targetPort", target)
    elif target:
        yield from between(f"{path}.targetPort", target, 1, PORT_LIMIT)
    if given.get("nodePort") and kind == "ClusterIP":
        yield forbidden(f"{path}.nodePort", "may not be used when `type` is 'ClusterIP'")


def network_policy(given: Mapping[str, Any]) -> Found:
    spec = part(given, "spec")
    yield from selector("spec.podSelector", part(spec, "podSelector"))
    for way, side in (("ingress", "from"), ("egress", "to")):
        for place, rule in enumerate(many(spec, way)):
            for number, one in enumerate(many(rule, "ports")):
                yield from _policy_port(one, f"spec.{way}[{place}].ports[{number}]")
            for number, peer in enumerate(many(rule, side)):
                yield from _peer(peer, f"spec.{way}[{place}].{side}[{number}]")
    kinds = many(spec, "policyTypes")
    if len(kinds) > 2:
        yield invalid("spec.policyTypes", "may not specify more than two policyTypes")
    for place, kind in enumerate(kinds):
        yield from one_of(f"spec.policyTypes[{place}]", kind, ("Egress", "Ingress"))


def _policy_port(given: Mapping[str, Any], path: str) -> Found:
    yield from one_of(f"{path}.protocol", given.get("protocol"), ("SCTP", "TCP", "UDP"))
    port, end = given.get("port"), given.get("endPort")
    if isinstance(port, str):
        yield from port_name(f"{path}.port", port)
    else:
        yield from between(f"{path}.port", port, 1, PORT_LIMIT)
    if end is None:
        return
    if port is None:
        yield required(f"{path}.port", "must be specified when `endPort` is specified")
    elif isinstance(port, str):
        yield invalid(f"{path}.endPort", "may not be with a named port")
    elif end < port:
        yield invalid(f"{path}.endPort", "must be greater than or equal to `port`")


def _peer(given: Mapping[str, Any], path: str) -> Found:
    chosen = [key for key in ("podSelector", "namespaceSelector") if given.get(key) is not None]
    for key in chosen:
        yield from selector(f"{path}.{key}", given[key])
    block = given.get("ipBlock")
    if block is not None:
        yield from _block(block, f"{path}.ipBlock")
        if chosen:
            yield forbidden(path, "may not specify both ipBlock and another peer")
    elif not chosen:
        yield required(path, "must specify a peer")


def _block(given: Mapping[str, Any], path: str) -> Found:
    whole = _network(given.get("cidr"))
    if not given.get("cidr"):
        yield required(f"{path}.cidr")
        return
    if whole is None:
        yield invalid(f"{path}.cidr", f"'{given['cidr']}' is no CIDR, such as 10.9.8.0/24")
    for place, one in enumerate(many(given, "except")):
        inner = _network(one)
        if inner is None:
            yield invalid(f"{path}.except[{place}]", f"'{one}' is no CIDR")
        elif whole is not None and not (inner.version == whole.version and inner.subnet_of(whole) and inner != whole):  # type: ignore[arg-type]
            yield invalid(f"{path}.except[{place}]", "must be a strict subset of `cidr`")


def _network(text: str | None) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    try:
        return ipaddress.ip_network(text or "", strict=False) if "/" in (text or "") else None
    except ValueError:
        return None


def _address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def ingress(given: Mapping[str, Any]) -> Found:
    spec = part(given, "spec")
    if not many(spec, "rules") and spec.get("defaultBackend") is None:
        yield invalid("spec", "either `defaultBackend` or `rules` must be specified")
    if spec.get("defaultBackend") is not None:
        yield from _backend(spec["defaultBackend"], "spec.defaultBackend")
    for place, rule in enumerate(many(spec, "rules")):
        at, host = f"spec.rules[{place}]", rule.get("host")
        if host:
            if _address(host):
                yield invalid(f"{at}.host", "must be a DNS name, not an IP address")
            elif not is_subdomain(host.removeprefix("*.")):
                yield invalid(f"{at}.host", f"'{host}' is no host name")
        if rule.get("http") is not None:
            paths = many(rule["http"], "paths")
            if not paths:
                yield required(f"{at}.http.paths")
            for number, one in enumerate(paths):
                yield from _path(one, f"{at}.http.paths[{number}]")


def _path(given: Mapping[str, Any], path: str) -> Found:
    kind, where = given.get("pathType"), given.get("path")
    if not kind:
        yield required(f"{path}.pathType", "pathType must be specified")
    else:
        yield from one_of(f"{path}.pathType", kind, ("Exact", "ImplementationSpecific", "Prefix"))
    if kind in {"Exact", "Prefix"} and not (where or "").startswith("/"):
        yield invalid(f"{path}.path", "must be an absolute path")
    yield from _backend(part(given, "backend"), f"{path}.backend")


def _backend(given: Mapping[str, Any], path: str) -> Found:
    target, other = given.get("service"), given.get("resource")
    if target is not None and other is not None:
        yield invalid(path, "cannot set both resource and service backends")
    if target is None and other is None:
        yield required(path, "service or resource")
    if target is None:
        return
    port = part(target, "port")
    if not target.get("name"):
        yield required(f"{path}.service.name")
    if port.get("name") and port.get("number"):
        yield invalid(path, "cannot set both port name & port number")
    elif port.get("name"):
        yield from port_name(f"{path}.service.port.name", port["name"])
    elif port.get("number"):
        yield from between(f"{path}.service.port.number", port["number"], 1, PORT_LIMIT)
    else:
        yield required(path, "port name or number is required")
