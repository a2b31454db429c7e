"""Kubernetes manifests: a Deployment with its probes, a Service, a volume, who may reach it."""

from __future__ import annotations

from typing import Any, Final

import yaml

from tonnage.deployment.described import FILES, Deployed, dockerfile

STOP_S: Final = 330
HOME: Final = "/home/tonnage/home"
OWN: Final = 10001  # the user of the image


def manifests(what: Deployed) -> list[dict[str, Any]]:
    """The objects, in the order in which they are made."""
    found = [_claim(what), *((_config(what),) if what.files else ()), _deployment(what)]
    if what.port is not None:
        found += [_service(what), _policy(what)]
    return found


def manifest_files(what: Deployed) -> dict[str, str]:
    """Name -> text of `manifests.yaml`, and of `Dockerfile` where no image was named."""
    files = {"manifests.yaml": yaml.safe_dump_all(manifests(what), sort_keys=False, width=110)}
    return files if what.image is not None else files | {"Dockerfile": dockerfile(what)}


def _name(what: Deployed) -> str:
    return f"tonnage-{what.name}"


def _labels(what: Deployed) -> dict[str, str]:
    return {"app.kubernetes.io/name": "tonnage", "app.kubernetes.io/instance": what.name}


def _meta(what: Deployed) -> dict[str, Any]:
    version = what.version.replace("+", "_")
    return {"name": _name(what), "labels": {**_labels(what), "app.kubernetes.io/version": version}}


def _claim(what: Deployed) -> dict[str, Any]:
    return {
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": _meta(what),
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": f"{what.storage_gib}Gi"}}},
    }  # fmt: skip


def _config(what: Deployed) -> dict[str, Any]:
    """The files that the command reads. A key has no slash: the volume puts each at its path."""
    data = {config_key(number, path): text for number, (path, text) in enumerate(what.files)}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": _meta(what), "data": data}


def config_key(number: int, path: str) -> str:
    plain = "".join(mark if mark.isascii() and (mark.isalnum() or mark in "-_.") else "-" for mark in path)
    return f"{number}-{plain}"[:253]


def _deployment(what: Deployed) -> dict[str, Any]:
    """One pod at a time: a home is one process's, and its volume one node's. Replicas of a model are inside it, where
    its balancer updates them without a failed request."""
    size = {"cpu": f"{what.cpus:g}", "memory": f"{what.memory_gib:g}Gi"}
    limits = {"memory": size["memory"]} | ({"nvidia.com/gpu": str(what.gpus)} if what.gpus else {})
    container: dict[str, Any] = {
        "name": "tonnage", "image": what.image_name, "args": list(what.in_container()),
        "env": [{"name": "TONNAGE_HOME", "value": HOME}],
        "resources": {"requests": size | ({"nvidia.com/gpu": str(what.gpus)} if what.gpus else {}), "limits": limits},
        "securityContext": {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True,
                            "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [{"name": "home", "mountPath": HOME}, {"name": "tmp", "mountPath": "/tmp"}],
    }  # fmt: skip
    if what.files:
        container["volumeMounts"].append({"name": "files", "mountPath": FILES, "readOnly": True})
    if what.secrets:
        container["envFrom"] = [{"secretRef": {"name": _name(what)}}]
    if what.port is not None:
        ready = {"path": "/ready" if what.verb != "ui" else what.health, "port": "http"}
        container["ports"] = [{"name": "http", "containerPort": what.port}]
        container["startupProbe"] = {"httpGet": {"path": what.health, "port": "http"}, "periodSeconds": 5,
                                     "failureThreshold": 180}  # fmt: skip
        container["readinessProbe"] = {"httpGet": ready, "periodSeconds": 5}
        container["livenessProbe"] = {"httpGet": {"path": what.health, "port": "http"}, "periodSeconds": 10,
                                      "failureThreshold": 6}  # fmt: skip
    pod: dict[str, Any] = {
        "terminationGracePeriodSeconds": STOP_S, "automountServiceAccountToken": False,
        "securityContext": {"runAsNonRoot": True, "runAsUser": OWN, "fsGroup": OWN,
                            "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container],
        "volumes": [{"name": "home", "persistentVolumeClaim": {"claimName": _name(what)}},
                    {"name": "tmp", "emptyDir": {}}],
    }  # fmt: skip
    if what.files:
        items = [{"key": config_key(number, path), "path": path} for number, (path, _) in enumerate(what.files)]
        pod["volumes"].append({"name": "files", "configMap": {"name": _name(what), "items": items}})
    return {
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": _meta(what),
        "spec": {"replicas": 1, "strategy": {"type": "Recreate"}, "selector": {"matchLabels": _labels(what)},
                 "template": {"metadata": {"labels": _labels(what)}, "spec": pod}},
    }  # fmt: skip


def _service(what: Deployed) -> dict[str, Any]:
    return {
        "apiVersion": "v1", "kind": "Service", "metadata": _meta(what),
        "spec": {"selector": _labels(what), "ports": [{"name": "http", "port": what.port, "targetPort": "http"}]},
    }  # fmt: skip


def _policy(what: Deployed) -> dict[str, Any]:
    """Reached from its own namespace, on its port alone."""
    return {
        "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": _meta(what),
        "spec": {"podSelector": {"matchLabels": _labels(what)}, "policyTypes": ["Ingress"],
                 "ingress": [{"from": [{"podSelector": {}}], "ports": [{"port": what.port}]}]},
    }  # fmt: skip
