"""Names, labels and annotations of what a run has in a cluster, and where objects are in its API. Pure.

The name comes from the token of the submission, so that one that is sent twice meets itself.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from tonnage.places.contract import home_mark, token_of
from tonnage.places.kubernetes.checking.decoding import find_kind
from tonnage.places.kubernetes.place import KubernetesPlace
from tonnage.runs.folder import RunFolder
from tonnage.runs.spec import RunSpec
from tonnage.values import dataclass

PREFIX: Final = "tonnage.dev/"
MANAGED: Final = "app.kubernetes.io/managed-by"
PLURALS: Final = {"NetworkPolicy": "networkpolicies", "Ingress": "ingresses"}
HOME, TOKEN, RUN, OWNER, PLACE = (f"{PREFIX}{word}" for word in ("home", "token", "run", "owner", "place"))
HELPER: Final = f"{PREFIX}helper"  # a pod that does not carry the run
TAG: Final = f"{PREFIX}tag"  # an annotation: a run's name may be longer than a label
RUN_LENGTH: Final = 24  # of a run's name in an object's, which has a token, indexes and a pod's suffix behind it
LABEL_LENGTH: Final = 63


def dns_label(text: str, most: int = LABEL_LENGTH) -> str:
    """As a DNS label that begins with a letter.

    >>> dns_label("2026_Bert.run")
    'r-2026-bert-run'
    """
    plain = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "run"
    return (plain if plain[0].isalpha() else f"r-{plain}")[:most].rstrip("-")


def label_value(text: str) -> str:
    """As the value of a label."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", text)[:LABEL_LENGTH].strip("-_.")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunNames:
    """Of one submission of one run."""

    name: str  # of the Job and everything that only it needs
    labels: Mapping[str, str]
    annotations: Mapping[str, str]

    @property
    def own(self) -> dict[str, str]:
        """Labels that its pods have and others have not."""
        return {TOKEN: self.labels[TOKEN]}

    def metadata(self, name: str | None = None, **more: Any) -> dict[str, Any]:
        """Of an object of the submission."""
        return {"name": name or self.name, "labels": dict(self.labels), "annotations": dict(self.annotations), **more}


def names_of(
    spec: RunSpec, folder: RunFolder, place: KubernetesPlace, *, place_name: str, owner: str, tag: str, number: int
) -> RunNames:
    """`owner`: who sends it. The budget is an annotation: administrators sum what is promised."""
    token = token_of(folder.path, number)
    budget = spec.guard.max_cost_usd
    labels = {
        "app.kubernetes.io/name": "tonnage-run",
        MANAGED: "tonnage",
        HOME: home_mark(folder.path.parent),
        TOKEN: token,
        RUN: label_value(spec.name),
        OWNER: label_value(owner),
        PLACE: label_value(place_name),
        **place.labels,
    }
    annotations = {TAG: tag, **({} if budget is None else {f"{PREFIX}max-cost-usd": f"{budget:g}"})}
    return RunNames(name=f"{dns_label(spec.name, RUN_LENGTH)}-{token}", labels=labels, annotations=annotations)


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
