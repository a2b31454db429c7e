"""What holds of the metadata of every object."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from tonnage.places.kubernetes.checking.formats import is_qualified, is_subdomain, labels
from tonnage.places.kubernetes.checking.refusals import Document, Found, ObjectRefusal, invalid, many, part, required

ANNOTATION_BYTES: Final = 256 * 1024
SUFFIX_LENGTH: Final = 5  # that the server puts behind `generateName`
NAMED: Final = "is no name: lower-case letters, digits, '-' and '.', ending with a letter or digit"


def metadata(given: Document, *, named: Callable[[str], bool] = is_subdomain, path: str = "metadata") -> Found:
    """Name, labels, annotations, finalizers. `named`: what a name of this kind has to be."""
    name, prefix = given.get("name"), given.get("generateName")
    if not name and not prefix:
        yield required(f"{path}.name", "name or generateName is required")
    if name and not named(name):
        yield invalid(f"{path}.name", f"'{name}' {NAMED}")
    if prefix and not name and not named(f"{prefix}{'x' * SUFFIX_LENGTH}"):
        yield invalid(f"{path}.generateName", f"'{prefix}' {NAMED}")
    yield from labels(f"{path}.labels", part(given, "labels"))
    yield from annotated(f"{path}.annotations", part(given, "annotations"))
    for one in many(given, "finalizers"):
        if not is_qualified(one):
            yield invalid(f"{path}.finalizers", f"'{one}' is no qualified name")


def annotated(field: str, given: dict[str, Any]) -> Found:
    """Names as of labels in lower case, values of any content, 256 KiB together."""
    for name in given:
        if not is_qualified(name.lower()):
            yield invalid(field, f"'{name}' is no name of an annotation")
    if sum(len(name.encode()) + len((value or "").encode()) for name, value in given.items()) > ANNOTATION_BYTES:
        yield ObjectRefusal(field=field, reason="too long", message=f"more than {ANNOTATION_BYTES} bytes together")
