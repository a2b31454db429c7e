"""Everything that a submission creates, in the order of its creation, as one YAML stream. Pure.

The object that spends comes last: a client that dies before it has started nothing.
"""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import Any, Final

import yaml

from tonnage.errors import InputError
from tonnage.places.kubernetes.forms import FORMS
from tonnage.places.kubernetes.names import HOME, MANAGED, PLACE, RunNames
from tonnage.places.kubernetes.place import KubernetesPlace
from tonnage.places.kubernetes.pod_template import ACCOUNT, PORT, PodWork, claim_of
from tonnage.places.patching import merged
from tonnage.places.record import PlaceRecord
from tonnage.runs.job import Job, dump_job
from tonnage.runs.secrets import named_secrets
from tonnage.runs.spec import RunSpec, dump_spec

Document = dict[str, Any]
LASTING: Final = frozenset({"ServiceAccount", "PersistentVolumeClaim"})  # stay when the run goes


def documents(place: KubernetesPlace, work: PodWork, spec: RunSpec, record: PlaceRecord) -> list[Document]:
    """All objects of a submission."""
    needed = named_secrets(spec)
    if needed and place.secret is None:
        names = " ".join(f"--from-literal={name}=..." for name in needed)
        raise InputError(
            f"the run needs {', '.join(needed)}, and the place names no `secret` that has them",
            hint=f'`kubectl create secret generic tonnage {names}`, then `secret = "tonnage"`',
        )
    made = [
        *([] if place.service_account else [_account()]),
        *([_storage(place, work.names)] if place.volume is None else []),
        _network(place, work.names),
        *([_claim_template(place, work.names)] if place.gpus and place.device_class else []),
        *([_rendezvous(work.names)] if place.nodes > 1 and place.form == "job" else []),
        _sent(work.names, spec, work.job, record),
        FORMS[place.form](place, work),
    ]
    return [merged(one, place.patch.get(one["kind"], {})) for one in made]


def manifest(found: list[Document], namespace: str) -> str:
    """As `kubectl apply -f` takes it; each object says its namespace."""
    placed = [{**one, "metadata": {"namespace": namespace, **one["metadata"]}} for one in found]
    return "---\n".join(yaml.dump(one, Dumper=_Plain, sort_keys=False, width=110) for one in placed)


def read_manifest(text: str) -> list[Document]:
    """The objects of a manifest."""
    return [one for one in yaml.load_all(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)) if one]


def _account() -> Document:
    """Of all runs in the namespace. It may do nothing, and no pod gets its token."""
    labels = {"app.kubernetes.io/name": "tonnage-run", MANAGED: "tonnage"}
    return {
        "apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ACCOUNT, "labels": labels},
        "automountServiceAccountToken": False,
    }  # fmt: skip


def _storage(place: KubernetesPlace, names: RunNames) -> Document:
    kept = {key: names.labels[key] for key in (MANAGED, HOME, PLACE)}
    spec: Document = {
        "accessModes": ["ReadWriteMany" if place.nodes > 1 else "ReadWriteOnce"],
        "resources": {"requests": {"storage": f"{place.storage_gib:g}Gi"}},
    }
    if place.storage_class is not None:
        spec["storageClassName"] = place.storage_class
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": claim_of(names), "labels": kept}, "spec": spec}  # fmt: skip


def _network(place: KubernetesPlace, names: RunNames) -> Document:
    """In: the run's own pods. Out: those, names, and HTTPS where the place allows it."""
    own = {"podSelector": {"matchLabels": names.own}}
    names_of_hosts = [{"protocol": protocol, "port": 53} for protocol in ("UDP", "TCP")]
    out: list[Document] = [{"to": [own]}, {"ports": names_of_hosts}]
    if place.egress:
        blocks = [{"ipBlock": {"cidr": one}} for one in place.egress]
        out.append({"to": blocks, "ports": [{"protocol": "TCP", "port": 443}]})
    return {
        "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": names.metadata(),
        "spec": {
            "podSelector": {"matchLabels": names.own}, "policyTypes": ["Ingress", "Egress"],
            "ingress": [{"from": [own]}], "egress": out,
        },
    }  # fmt: skip


def _claim_template(place: KubernetesPlace, names: RunNames) -> Document:
    asked = {"name": "gpu", "exactly": {"deviceClassName": place.device_class, "count": place.gpus}}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": names.metadata(),
            "spec": {"spec": {"devices": {"requests": [asked]}}}}  # fmt: skip


def _rendezvous(names: RunNames) -> Document:
    """A name for each pod, there before it is ready: the workers wait for each other."""
    return {
        "apiVersion": "v1", "kind": "Service", "metadata": names.metadata(),
        "spec": {
            "clusterIP": "None", "publishNotReadyAddresses": True, "selector": names.own,
            "ports": [{"name": "rendezvous", "port": PORT}],
        },
    }  # fmt: skip


def _sent(names: RunNames, spec: RunSpec, job: Job, record: PlaceRecord) -> Document:
    """What the pod lays into the run's folder. Fingerprints of data are left out: they are of paths here."""
    data = {
        "spec.json": dump_spec(replace(spec, data=replace(spec.data, prints=None))),
        "job.json": dump_job(job),
        "place.json": json.dumps(asdict(record), indent=2) + "\n",
    }
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": names.metadata(), "immutable": True, "data": data}


class _Plain(yaml.SafeDumper):
    """No anchors; texts of several lines as blocks."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002
        return True


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    style = "|" if "\n" in value else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Plain.add_representer(str, _text)
