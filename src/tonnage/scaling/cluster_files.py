"""The tuned settings of other autoscalers as the files that their systems read.

A cluster's autoscaler cannot run the control law, so each gets the setting that a comparison found for it: the cheapest
that keeps the promise on the load. Requests inside and arrived are the balancer's metrics (`/metrics`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

import yaml

from tonnage.errors import InputError
from tonnage.scaling.comparing import PolicyComparison
from tonnage.scaling.service import ScaledService

INSIDE: Final = "sum(tonnage_requests_waiting) + sum(tonnage_requests_running)"
ARRIVED: Final = "sum(rate(tonnage_requests_arrived_total[1m]))"
Document = dict[str, Any]


def cluster_files(found: PolicyComparison, *, name: str = "service", port: int = 8000) -> dict[str, str]:
    """The file of each rival of a comparison that keeps the promise and whose system reads one: file name -> YAML.

    `name` is the deployment's, `port` the service's.
    """
    service_s = float(found.load.service_s.mean())
    kept = {one.policy: one.setting for one in found.results if one.keeps and one.setting is not None}
    if "keda-queue" in kept:
        kept["hpa"] = kept["keda-queue"]  # the same rule without KEDA: it has no 0
    return {
        f"{policy}.yaml": render_cluster_file(policy, found.service, setting, service_s, name=name, port=port)
        for policy, setting in kept.items()
        if policy in RENDERED
    }


def render_cluster_file(
    policy: str, service: ScaledService, setting: float, service_s: float, *, name: str, port: int
) -> str:
    """One rival's file. `setting`: its target, as a part of a replica's slots or of the rate at which all are busy;
    `service_s`: mean seconds of a request. InputError for a policy that no file sets."""
    if policy not in RENDERED:
        raise InputError(f"no file sets '{policy}'", hint=f"files are written for {', '.join(RENDERED)}")
    slots = setting * service.slots
    documents = RENDERED[policy](service, slots, slots / service_s, name, port)
    return "".join(
        ("---\n" if place else "") + yaml.safe_dump(one, sort_keys=False, width=110)
        for place, one in enumerate(documents)
    )


def _figure(value: float) -> float | int:
    """Three digits, a whole number as one."""
    rounded = float(f"{value:.3g}")
    return int(rounded) if rounded.is_integer() else rounded


def _keda(service: ScaledService, query: str, threshold: float, name: str) -> Document:
    """A KEDA ScaledObject (keda.sh/v1alpha1) with a Prometheus trigger, the HPA's own behavior under it."""
    behavior = {"scaleDown": {"stabilizationWindowSeconds": 300}}
    trigger = {
        "serverAddress": "http://prometheus-server.monitoring.svc:80", "query": query,
        "threshold": str(_figure(threshold)),
    }  # fmt: skip
    return {
        "apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "metadata": {"name": name},
        "spec": {
            "scaleTargetRef": {"name": name}, "pollingInterval": 15, "cooldownPeriod": 300,
            "minReplicaCount": service.least, "maxReplicaCount": service.most,
            "advanced": {"horizontalPodAutoscalerConfig": {"behavior": behavior}},
            "triggers": [{"type": "prometheus", "metricType": "AverageValue", "metadata": trigger}],
        },
    }  # fmt: skip


def _keda_queue(service: ScaledService, slots: float, qps: float, name: str, port: int) -> list[Document]:
    del qps, port
    return [_keda(service, INSIDE, slots, name)]


def _keda_rate(service: ScaledService, slots: float, qps: float, name: str, port: int) -> list[Document]:
    del slots, port
    return [_keda(service, ARRIVED, qps, name)]


def _hpa(service: ScaledService, slots: float, qps: float, name: str, port: int) -> list[Document]:
    """A HorizontalPodAutoscaler (autoscaling/v2) on an external metric, which an adapter serves; it knows no 0."""
    del qps, port
    metric = {"metric": {"name": "tonnage_requests_inside"}, "target": {
        "type": "AverageValue", "averageValue": str(_figure(slots))}}  # fmt: skip
    return [{
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": name},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
            "minReplicas": max(service.least, 1), "maxReplicas": service.most,
            "metrics": [{"type": "External", "external": metric}],
            "behavior": {"scaleDown": {"stabilizationWindowSeconds": 300}},
        },
    }]  # fmt: skip


def _ray(service: ScaledService, slots: float, qps: float, name: str, port: int) -> list[Document]:
    """A Ray Serve config file (`serve deploy`)."""
    del qps
    scaling = {
        "min_replicas": service.least, "max_replicas": service.most, "target_ongoing_requests": _figure(slots),
        "upscale_delay_s": 30.0, "downscale_delay_s": 600.0, "look_back_period_s": 30.0,
    }  # fmt: skip
    deployment = {"name": name, "max_ongoing_requests": service.slots, "autoscaling_config": scaling}
    application = {"name": name, "import_path": f"{name}:app", "route_prefix": "/", "deployments": [deployment]}
    return [{"http_options": {"port": port}, "applications": [application]}]


def _sky(service: ScaledService, slots: float, qps: float, name: str, port: int) -> list[Document]:
    """The `service` section of a SkyPilot file (`sky serve up`)."""
    del slots, name
    policy = {
        "min_replicas": service.least, "max_replicas": service.most, "target_qps_per_replica": _figure(qps),
        "upscale_delay_seconds": 300, "downscale_delay_seconds": 1200,
    }  # fmt: skip
    probe = {"path": "/ready", "initial_delay_seconds": max(math.ceil(3 * service.start_up_s), 60)}
    return [{"service": {"readiness_probe": probe, "replica_policy": policy, "ports": port}}]


def _knative(service: ScaledService, slots: float, qps: float, name: str, port: int) -> list[Document]:
    """A Knative Service, its image left to be named."""
    del qps
    prefix = "autoscaling.knative.dev/"
    notes = {
        f"{prefix}class": "kpa.autoscaling.knative.dev", f"{prefix}metric": "concurrency",
        f"{prefix}target": str(_figure(slots)), f"{prefix}target-utilization-percentage": "70",
        f"{prefix}min-scale": str(service.least), f"{prefix}max-scale": str(service.most),
        f"{prefix}window": "60s",
    }  # fmt: skip
    container = {
        "image": "IMAGE",
        "ports": [{"containerPort": port}],
        "readinessProbe": {"httpGet": {"path": "/ready"}},
    }
    spec = {"containerConcurrency": service.slots, "containers": [container]}
    return [{
        "apiVersion": "serving.knative.dev/v1", "kind": "Service", "metadata": {"name": name},
        "spec": {"template": {"metadata": {"annotations": notes}, "spec": spec}},
    }]  # fmt: skip


Render = Callable[[ScaledService, float, float, str, int], list[Document]]
RENDERED: Final[Mapping[str, Render]] = MappingProxyType(
    {
        "hpa": _hpa,
        "keda-queue": _keda_queue,
        "keda-rate": _keda_rate,
        "ray-serve": _ray,
        "skyserve": _sky,
        "knative": _knative,
    }
)
