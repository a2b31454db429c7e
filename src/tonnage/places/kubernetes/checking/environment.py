"""The environment of a container, and fields of its pod that variables and files may show."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from tonnage.places.kubernetes.checking.formats import CONFIG_KEY
from tonnage.places.kubernetes.checking.refusals import Found, invalid, required

FIELD_PATHS: Final = frozenset(
    {"metadata.name", "metadata.namespace", "metadata.uid", "metadata.labels", "metadata.annotations", "spec.nodeName",
     "spec.serviceAccountName", "status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs"}
)  # fmt: skip
ENV_SOURCES: Final = ("fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef")


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
