"""Where objects are in the API of a cluster. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tonnage.places.kubernetes.checking.decoding import find_kind

PLURALS: Final = {"NetworkPolicy": "networkpolicies", "Ingress": "ingresses"}


def plural(kind: str) -> str:
    """As paths and rights call a kind.

    >>> [plural(kind) for kind in ("Job", "NetworkPolicy", "ResourceClaimTemplate")]
    ['jobs', 'networkpolicies', 'resourceclaimtemplates']
    """
    return PLURALS.get(kind) or f"{kind.lower()}s"


def group_path(version: str) -> str:
    """The root of an API group.

    >>> group_path("v1"), group_path("batch/v1")
    ('/api/v1', '/apis/batch/v1')
    """
    return f"/apis/{version}" if "/" in version else f"/api/{version}"


def collection_path(document: Mapping[str, Any], namespace: str) -> str:
    """Where an object is created."""
    return path_of(document["apiVersion"], document["kind"], namespace)


def path_of(version: str, kind: str, namespace: str, name: str | None = None) -> str:
    """Where objects of a kind are; of one object with `name`."""
    known = find_kind(version, kind)
    inside = f"/namespaces/{namespace}" if known is None or known.namespaced else ""
    return f"{group_path(version)}{inside}/{plural(kind)}" + (f"/{name}" if name else "")
