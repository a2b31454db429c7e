"""Volumes of a pod, and claims of storage."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tonnage.places.kubernetes.checking.container_fields import field_path, resource_field
from tonnage.places.kubernetes.checking.containers import below, reference
from tonnage.places.kubernetes.checking.formats import dns_label, quantity, selector
from tonnage.places.kubernetes.checking.refusals import (
    Found,
    forbidden,
    invalid,
    many,
    no_repeats,
    one_of,
    part,
    required,
)

MODE_LIMIT: Final = 0o777
MODE_WORDS: Final = "must be a number between 0 and 0777 (octal), both inclusive"
ACCESS: Final = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
HOST_TYPES: Final = (
    "",
    "BlockDevice",
    "CharDevice",
    "Directory",
    "DirectoryOrCreate",
    "File",
    "FileOrCreate",
    "Socket",
)
# kind of volume -> fields that it cannot do without
NEEDED: Final = {
    "hostPath": ("path",), "persistentVolumeClaim": ("claimName",), "secret": ("secretName",), "configMap": ("name",),
    "nfs": ("server", "path"), "csi": ("driver",), "image": (),
}  # fmt: skip


def volumes(given: list[dict[str, Any]], path: str) -> Found:
    """All of one pod; one of no kind is an empty folder."""
    for place, one in enumerate(given):
        at = f"{path}[{place}]"
        yield from dns_label(f"{at}.name", one.get("name"))
        kinds = [key for key in one if key != "name" and one[key] is not None]
        for extra in kinds[1:]:
            yield forbidden(f"{at}.{extra}", "may not specify more than 1 volume type")
        for kind in kinds:
            yield from _volume(kind, one[kind], f"{at}.{kind}")
    yield from no_repeats((f"{path}[{place}].name", one["name"]) for place, one in enumerate(given) if one.get("name"))


def _volume(kind: str, given: Mapping[str, Any], path: str) -> Found:
    for key in NEEDED.get(kind, ()):
        if not given.get(key):
            yield required(f"{path}.{key}")
    if kind in {"secret", "configMap", "downwardAPI", "projected"}:
        yield from _files(given, path)
    if kind == "emptyDir" and given.get("sizeLimit") is not None and quantity(given["sizeLimit"]) < 0:
        yield forbidden(f"{path}.sizeLimit", "must be greater than or equal to 0")
    if kind == "hostPath":
        yield from one_of(f"{path}.type", given.get("type"), HOST_TYPES)
        if ".." in (given.get("path") or "").split("/"):
            yield invalid(f"{path}.path", "must not contain '..'")
    if kind == "ephemeral":
        template = given.get("volumeClaimTemplate")
        if template is None:
            yield required(f"{path}.volumeClaimTemplate")
        else:
            yield from claim(part(template, "spec"), f"{path}.volumeClaimTemplate.spec")
    if kind == "projected":
        for place, source in enumerate(many(given, "sources")):
            yield from _projected(source, f"{path}.sources[{place}]")


def _projected(given: Mapping[str, Any], path: str) -> Found:
    for kind in ("secret", "configMap"):
        if given.get(kind) is not None:
            if not given[kind].get("name"):
                yield required(f"{path}.{kind}.name")
            yield from _files(given[kind], f"{path}.{kind}")
    token = given.get("serviceAccountToken")
    if token is not None:
        if not token.get("path"):
            yield required(f"{path}.serviceAccountToken.path")
        if token.get("expirationSeconds") is not None and token["expirationSeconds"] < 600:
            yield invalid(
                f"{path}.serviceAccountToken.expirationSeconds", "may not specify a duration less than 10 minutes"
            )
    if given.get("downwardAPI") is not None:
        yield from _files(given["downwardAPI"], f"{path}.downwardAPI")


def _files(given: Mapping[str, Any], path: str) -> Found:
    mode = given.get("defaultMode")
    if mode is not None and not 0 <= mode <= MODE_LIMIT:
        yield invalid(f"{path}.defaultMode", MODE_WORDS)
    for place, one in enumerate(many(given, "items")):
        at = f"{path}.items[{place}]"
        if one.get("mode") is not None and not 0 <= one["mode"] <= MODE_LIMIT:
            yield invalid(f"{at}.mode", MODE_WORDS)
        if not one.get("path"):
            yield required(f"{at}.path")
        else:
            yield from below(one["path"], f"{at}.path")
        if one.get("fieldRef") is not None:
            yield from field_path(one["fieldRef"].get("fieldPath"), f"{at}.fieldRef.fieldPath")
        elif one.get("resourceFieldRef") is not None:
            yield from resource_field(one["resourceFieldRef"].get("resource"), f"{at}.resourceFieldRef.resource")
        elif "key" in one and not one["key"]:
            yield required(f"{at}.key")


def claim(given: Mapping[str, Any], path: str) -> Found:
    """What a PersistentVolumeClaim asks for."""
    modes = many(given, "accessModes")
    if not modes:
        yield required(f"{path}.accessModes", "at least 1 access mode is required")
    for mode in modes:
        yield from one_of(f"{path}.accessModes", mode, ACCESS)
    if "ReadWriteOncePod" in modes and len(modes) > 1:
        yield forbidden(f"{path}.accessModes", "may not use ReadWriteOncePod with other access modes")
    size = part(part(given, "resources"), "requests").get("storage")
    if size is None:
        yield required(f"{path}.resources[storage]")
    elif quantity(size) <= 0:
        yield invalid(f"{path}.resources[storage]", "must be greater than zero")
    if given.get("selector") is not None:
        yield from selector(f"{path}.selector", given["selector"])
    yield from reference(f"{path}.storageClassName", given.get("storageClassName"))
    yield from one_of(f"{path}.volumeMode", given.get("volumeMode"), ("Block", "Filesystem"))


def sound_volumes(given: list[dict[str, Any]]) -> list[str]:
    """Names of those without a fault: only they can be mounted."""
    return [one["name"] for one in given if one.get("name") and not any(_refused(one))]


def _refused(given: dict[str, Any]) -> Found:
    yield from volumes([given], "")
