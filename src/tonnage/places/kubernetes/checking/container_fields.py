"""Fields of a container: its environment, requests and limits, claims of devices, probes and hooks; fields of its pod
that variables and files may show.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from decimal import Decimal
from typing import Any, Final

from tonnage.places.kubernetes.checking.formats import CONFIG_KEY, PORT_NAME, PORT_NAME_LENGTH, is_qualified, quantity
from tonnage.places.kubernetes.checking.refusals import (
    Found,
    at_least,
    between,
    duplicate,
    forbidden,
    invalid,
    many,
    not_found,
    one_of,
    part,
    required,
)

STANDARD: Final = frozenset({"cpu", "memory", "ephemeral-storage"})
HUGE: Final = "hugepages-"
FIELD_PATHS: Final = frozenset(
    {"metadata.name", "metadata.namespace", "metadata.uid", "metadata.labels", "metadata.annotations", "spec.nodeName",
     "spec.serviceAccountName", "status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs"}
)  # fmt: skip
ENV_SOURCES: Final = ("fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef")
HANDLERS: Final = ("exec", "httpGet", "tcpSocket", "grpc", "sleep")
PORT_LIMIT: Final = 65535


def is_extended(name: str) -> bool:
    """A resource that a device plugin or an administrator brings, such as `nvidia.com/gpu`: counted whole."""
    return "/" in name and not name.split("/")[0].endswith("kubernetes.io") and not name.startswith("requests.")


def container_resources(given: Mapping[str, Any], path: str, claims: Collection[str]) -> Found:
    """Of one container. Devices are neither divided nor promised twice: limits, and requests equal to them."""
    limits, requests = part(given, "limits"), part(given, "requests")
    yield from _claims(many(given, "claims"), path, claims)
    for kind, amounts in (("limits", limits), ("requests", requests)):
        for name, amount in amounts.items():
            yield from _amount(name, amount, f"{path}.{kind}[{name}]")
    for name, amount in requests.items():
        yield from _against_limit(name, amount, limits, path)
    huge = [name for name in (*limits, *requests) if name.startswith(HUGE)]
    if huge and not ({"cpu", "memory"} & {*limits, *requests}):
        yield forbidden(path, "HugePages require cpu or memory")


def variable(given: Mapping[str, Any], path: str) -> Found:
    name, source = given.get("name"), given.get("valueFrom")
    if not name:
        yield required(f"{path}.name")
    elif not all(" " <= letter <= "~" and letter != "=" for letter in name):
        yield invalid(f"{path}.name", f"'{name}' has characters that are not printable ASCII, or '='")
    if source is None:
        return
    chosen = [one for one in ENV_SOURCES if source.get(one) is not None]
    if not chosen:
        yield invalid(f"{path}.valueFrom", f"must have one of {', '.join(ENV_SOURCES)}")
    elif given.get("value"):
        yield invalid(f"{path}.valueFrom", "may not be specified when `value` is not empty")
    elif len(chosen) > 1:
        yield invalid(f"{path}.valueFrom", "may not have more than one source")
    for one in chosen:
        yield from _source(one, source[one], f"{path}.valueFrom.{one}")


def _source(kind: str, given: Mapping[str, Any], path: str) -> Found:
    if kind == "fieldRef":
        yield from field_path(given.get("fieldPath"), f"{path}.fieldPath")
    elif kind == "resourceFieldRef":
        yield from resource_field(given.get("resource"), f"{path}.resource")
    elif kind in {"configMapKeyRef", "secretKeyRef"}:
        yield from _config_key(given.get("key"), f"{path}.key")


def _config_key(key: str | None, field: str) -> Found:
    if not key:
        yield required(field)
    elif not CONFIG_KEY.fullmatch(key) or len(key) > 253 or key in {".", ".."}:
        yield invalid(field, f"'{key}' is no key of a ConfigMap: letters, digits, '-', '_' and '.'")


def field_path(given: str | None, field: str) -> Found:
    """A field of the pod that the environment or a file may show."""
    name, subscript, _ = (given or "").partition("['")
    if not given:
        yield required(field)
    elif name not in FIELD_PATHS or (bool(subscript) != (name in {"metadata.labels", "metadata.annotations"})):
        yield invalid(field, f"'{given}' is no field that a variable can have")


def resource_field(given: str | None, field: str) -> Found:
    if not given:
        yield required(field)
    elif not re.fullmatch(r"(limits|requests)\.(cpu|memory|ephemeral-storage|hugepages-.+)", given):
        yield invalid(field, f"'{given}' is no amount that a variable can have")


def variables(given: Mapping[str, Any], path: str) -> Found:
    chosen = [one for one in ("configMapRef", "secretRef") if given.get(one) is not None]
    if not chosen:
        yield invalid(path, "must have one of configMapRef, secretRef")
    if len(chosen) > 1:
        yield invalid(path, "may not have more than one source")


def handler(given: Mapping[str, Any], path: str) -> Found:
    chosen = [one for one in HANDLERS if given.get(one) is not None]
    if not chosen:
        yield required(path, "must specify a handler type")
    for extra in chosen[1:]:
        yield forbidden(f"{path}.{extra}", "may not specify more than 1 handler type")
    if "exec" in chosen and not many(given["exec"], "command"):
        yield required(f"{path}.exec.command")
    for kind in ("httpGet", "tcpSocket"):
        if kind in chosen:
            yield from _port_of(given[kind].get("port"), f"{path}.{kind}.port")
    if "httpGet" in chosen:
        yield from one_of(f"{path}.httpGet.scheme", given["httpGet"].get("scheme"), ("HTTP", "HTTPS"))


def _port_of(given: int | str | None, field: str) -> Found:
    if isinstance(given, str):
        yield from port_name(field, given)
    else:
        yield from between(field, given or 0, 1, PORT_LIMIT)


def sleep(given: Mapping[str, Any], path: str, grace_s: int) -> Found:
    seconds = part(given, "sleep").get("seconds")
    if seconds is not None and not 0 <= seconds <= grace_s:
        yield invalid(f"{path}.sleep", f"must be non-negative and less than terminationGracePeriodSeconds ({grace_s})")


def probe(given: Mapping[str, Any], name: str, path: str) -> Found:
    chosen, at = given.get(name), f"{path}.{name}"
    if chosen is None:
        return
    yield from handler(chosen, at)
    for key in ("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"):
        yield from at_least(f"{at}.{key}", chosen.get(key))
    if name != "readinessProbe" and (chosen.get("successThreshold") or 1) != 1:
        yield invalid(f"{at}.successThreshold", "must be 1")
    if chosen.get("terminationGracePeriodSeconds") is not None:
        if name == "readinessProbe":
            yield invalid(f"{at}.terminationGracePeriodSeconds", "must not be set for readinessProbes")
        elif chosen["terminationGracePeriodSeconds"] <= 0:
            yield invalid(f"{at}.terminationGracePeriodSeconds", "must be greater than 0")


def port_name(field: str, name: str) -> Found:
    """A name of a port as IANA registers them."""
    if len(name) > PORT_NAME_LENGTH:
        yield invalid(field, f"must be no more than {PORT_NAME_LENGTH} characters")
    elif not PORT_NAME.fullmatch(name) or "--" in name or not re.search("[a-z]", name):
        yield invalid(field, f"'{name}' is no name of a port: lower-case letters, digits and single '-', one letter")


def _claims(given: list[dict[str, Any]], path: str, claims: Collection[str]) -> Found:
    seen = []
    for place, one in enumerate(given):
        at, name = f"{path}.claims[{place}]", one.get("name")
        if not name:
            yield required(f"{at}.name")
        elif name not in claims:
            yield not_found(at, f"'{name}' is none of the pod's resourceClaims")
        mark = (name, one.get("request"))
        if mark in seen:
            yield duplicate(at, name)
        seen.append(mark)


def _amount(name: str, amount: object, field: str) -> Found:
    if not is_qualified(name):
        yield invalid(field, f"'{name}' is no name of a resource")
    elif "/" not in name and name not in STANDARD and not name.startswith(HUGE):
        yield invalid(field, f"'{name}' is no standard resource of containers; others have a prefix, nvidia.com/gpu")
    value = quantity(amount)
    if value < 0:
        yield invalid(field, "must be greater than or equal to 0")
    if is_extended(name) and value % 1:
        yield invalid(field, "must be an integer")


def _against_limit(name: str, amount: object, limits: Mapping[str, Any], path: str) -> Found:
    value = quantity(amount)
    whole = is_extended(name) or name.startswith(HUGE)
    if name not in limits:
        if whole:
            yield required(f"{path}.limits", f"a limit of {name} must be set: it cannot be promised twice")
        return
    limit: Decimal = quantity(limits[name])
    if whole and value != limit:
        yield invalid(f"{path}.requests", f"{amount} must be equal to the {name} limit of {limits[name]}")
    elif value > limit:
        yield invalid(f"{path}.requests", f"{amount} must be less than or equal to the {name} limit of {limits[name]}")
