"""Names, labels, quantities and the like: what the API conventions of Kubernetes take, and what holds of the metadata
of every object. Pure.

Source: https://kubernetes.io/docs/concepts/overview/working-with-objects/names/ and labels/, and the packages
k8s.io/apimachinery/pkg/util/validation and pkg/api/resource.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from tonnage.places.kubernetes.checking.refusals import Document, Found, ObjectRefusal, invalid, many, part, required

LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
LABEL_1035: Final = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
SUBDOMAIN: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
QUALIFIED: Final = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
LABEL_VALUE: Final = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")
PORT_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")
CONFIG_KEY: Final = re.compile(r"[-._a-zA-Z0-9]+")
LABEL_LENGTH: Final = 63
SUBDOMAIN_LENGTH: Final = 253
PORT_NAME_LENGTH: Final = 15
QUANTITY: Final = re.compile(r"([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)")
SUFFIXES: Final = {
    "n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3"), "": Decimal(1), "k": Decimal(10**3),
    "M": Decimal(10**6), "G": Decimal(10**9), "T": Decimal(10**12), "P": Decimal(10**15), "E": Decimal(10**18),
    "Ki": Decimal(2**10), "Mi": Decimal(2**20), "Gi": Decimal(2**30), "Ti": Decimal(2**40), "Pi": Decimal(2**50),
    "Ei": Decimal(2**60),
}  # fmt: skip
ANNOTATION_BYTES: Final = 256 * 1024
SUFFIX_LENGTH: Final = 5  # that the server puts behind `generateName`
NAMED: Final = "is no name: lower-case letters, digits, '-' and '.', ending with a letter or digit"


def is_label(name: str) -> bool:
    """A DNS label of RFC 1123: 63 characters, lower case, digits, dashes inside."""
    return len(name) <= LABEL_LENGTH and LABEL.fullmatch(name) is not None


def is_label_1035(name: str) -> bool:
    """The same, beginning with a letter."""
    return len(name) <= LABEL_LENGTH and LABEL_1035.fullmatch(name) is not None


def is_subdomain(name: str) -> bool:
    """Labels with dots between them, 253 characters."""
    return len(name) <= SUBDOMAIN_LENGTH and SUBDOMAIN.fullmatch(name) is not None


def is_qualified(name: str) -> bool:
    """`name` or `prefix.example/name`.

    >>> [is_qualified(name) for name in ("app", "nvidia.com/gpu", "a/b/c", "Example.com/x", "-a")]
    [True, True, False, False, False]
    """
    prefix, slash, rest = name.rpartition("/")
    if slash and (not prefix or not is_subdomain(prefix)):
        return False
    return len(rest) <= LABEL_LENGTH and QUALIFIED.fullmatch(rest) is not None


def is_label_value(value: str) -> bool:
    return len(value) <= LABEL_LENGTH and LABEL_VALUE.fullmatch(value) is not None


def quantity(value: Any) -> Decimal:
    """An amount as Kubernetes writes it; null is 0, as the server reads it. ValueError for what is none.

    >>> [str(quantity(one)) for one in ("500m", "64Gi", 8.0, "1e3")]
    ['0.500', '68719476736', '8', '1E+3']
    """
    if value is None:
        return Decimal(0)
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError("quantities are numbers with a suffix")
    text = str(int(value) if isinstance(value, float) and value.is_integer() else value)
    whole = QUANTITY.fullmatch(text)
    if whole is None:
        raise ValueError(f"'{text}' is no quantity")
    number, suffix = whole.groups()
    try:
        if suffix in SUFFIXES:
            return Decimal(number) * SUFFIXES[suffix]
        if suffix[:1] in {"e", "E"}:
            return Decimal(f"{number}{suffix}")
    except InvalidOperation as error:
        raise ValueError(f"'{text}' is no quantity") from error
    raise ValueError(f"'{text}' has no suffix of a quantity")


def label_value(field: str, value: str) -> Found:
    if not is_label_value(value):
        yield invalid(field, f"'{value}' is no label value: 63 letters, digits, '-', '_', '.', ending with the former")


def labels(field: str, given: dict[str, str]) -> Found:
    """Of metadata or a selector: the field is that of all labels."""
    for name, value in given.items():
        if not is_qualified(name):
            yield invalid(field, f"'{name}' is no label name")
        yield from label_value(field, value or "")


def dns_label(field: str, name: str | None) -> Found:
    if not name:
        yield required(field)
    elif not is_label(name):
        yield invalid(field, f"'{name}' is no DNS label: 63 lower-case letters, digits and '-' inside")


def subdomain(field: str, name: str | None) -> Found:
    if not name:
        yield required(field)
    elif not is_subdomain(name):
        yield invalid(field, f"'{name}' is no DNS subdomain: lower-case letters, digits, '-' and '.' inside")


def selector(field: str, given: dict[str, Any]) -> Found:
    """A label selector of any kind of object."""
    yield from labels(f"{field}.matchLabels", given.get("matchLabels") or {})
    for place, one in enumerate(given.get("matchExpressions") or ()):
        at, operator, values = f"{field}.matchExpressions[{place}]", one.get("operator"), one.get("values") or []
        if operator in {"In", "NotIn"} and not values:
            yield required(f"{at}.values", "must be given with In and NotIn")
        elif operator in {"Exists", "DoesNotExist"} and values:
            yield invalid(f"{at}.values", "must not be given with Exists and DoesNotExist")
        elif operator not in {"In", "NotIn", "Exists", "DoesNotExist"}:
            yield invalid(f"{at}.operator", f"'{operator}' is no operator of a selector")
        if not is_qualified(one.get("key") or ""):
            yield invalid(f"{at}.key", f"'{one.get('key')}' is no label name")
        for number, value in enumerate(values):
            yield from label_value(f"{at}.values[{number}]", value)


def matches(given: dict[str, Any] | None, found: dict[str, str]) -> bool:
    """Whether a selector takes these labels; one that is empty or missing takes none here."""
    if not given or not (given.get("matchLabels") or given.get("matchExpressions")):
        return False
    for name, value in (given.get("matchLabels") or {}).items():
        if found.get(name) != value:
            return False
    for one in given.get("matchExpressions") or ():
        there, values = found.get(one["key"]), one.get("values") or ()
        ok = {"In": there in values, "NotIn": there not in values, "Exists": there is not None,
              "DoesNotExist": there is None}.get(one["operator"], False)  # fmt: skip
        if not ok:
            return False
    return True


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
