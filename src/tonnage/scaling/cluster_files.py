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
from tonnage.values import dataclass

INSIDE: Final = "sum(tonnage_requests_waiting) + sum(tonnage_requests_running)"
ARRIVED: Final = "sum(rate(tonnage_requests_arrived_total[1m]))"
PORT: Final = 8000  # of the service
Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Rule:
    """What a file sets: the service, busy slots and requests a second of one replica, the name of its deployment."""

    service: ScaledService
    slots: float
    qps: float
    name: str


def cluster_files(found: PolicyComparison, *, name: str) -> dict[str, str]:
    """The file of each rival of a comparison that keeps the promise and whose system reads one: file name -> YAML.
    `name` is the deployment's."""
    service_s = float(found.load.service_s.mean())
    kept = {one.policy: one.setting for one in found.results if one.keeps and one.setting is not None}
    if "keda-queue" in kept:
        kept["hpa"] = kept["keda-queue"]  # the same rule without KEDA: it has no 0
    return {
        f"{policy}.yaml": render_cluster_file(policy, found.service, setting, service_s, name=name)
        for policy, setting in kept.items()
        if policy in RENDERED
    }


def render_cluster_file(policy: str, service: ScaledService, setting: float, service_s: float, *, name: str) -> str:
    """One rival's file. `setting`: its target, as a part of a replica's slots or of the rate at which all are busy;
    `service_s`: mean seconds of a request. InputError for a policy that no file sets."""
    if policy not in RENDERED:
        raise InputError(f"no file sets '{policy}'", hint=f"files are written for {', '.join(RENDERED)}")
    slots = setting * service.slots
    documents = RENDERED[policy](_Rule(service, slots, slots / service_s, name))
    return "".join(
        ("---\n" if place else "") + yaml.safe_dump(one, sort_keys=False, width=110)
        for place, one in enumerate(documents)
    )


def _figure(value: float) -> float | int:
    """Three digits, a whole number as one."""
    rounded = float(f"{value:.3g}")
    return int(rounded) if rounded.is_integer() else rounded


def _keda(rule: _Rule, query: str, threshold: float) -> Document:
    """A KEDA ScaledObject (keda.sh/v1alpha1) with a Prometheus trigger, the HPA's own behavior under it."""
    behavior = {"scaleDown": {"stabilizationWindowSeconds": 300}}
    trigger = {
        "serverAddress": "http://prometheus-server.monitoring.svc:80", "query": query,
        "threshold": str(_figure(threshold)),
    }  # fmt: skip
    return {
        "apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "metadata": {"name": rule.name},
        "spec": {
            "scaleTargetRef": {"name": rule.name}, "pollingInterval": 15, "cooldownPeriod": 300,
            "minReplicaCount": rule.service.least, "maxReplicaCount": rule.service.most,
            "advanced": {"horizontalPodAutoscalerConfig": {"behavior": behavior}},
            "triggers": [{"type": "prometheus", "metricType": "AverageValue", "metadata": trigger}],
        },
    }  # fmt: skip


def _hpa(rule: _Rule) -> list[Document]:
    """A HorizontalPodAutoscaler (autoscaling/v2) on an external metric, which an adapter serves; it knows no 0."""
    metric = {"metric": {"name": "tonnage_requests_inside"}, "target": {
        "type": "AverageValue", "averageValue": str(_figure(rule.slots))}}  # fmt: skip
    return [{
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": rule.name},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": rule.name},
            "minReplicas": max(rule.service.least, 1), "maxReplicas": rule.service.most,
            "metrics": [{"type": "External", "external": metric}],
            "behavior": {"scaleDown": {"stabilizationWindowSeconds": 300}},
        },
    }]  # fmt: skip


def _ray(rule: _Rule) -> list[Document]:
    """A Ray Serve config file (`serve deploy`)."""
    scaling = {
        "min_replicas": rule.service.least, "max_replicas": rule.service.most,
        "target_ongoing_requests": _figure(rule.slots),
        "upscale_delay_s": 30.0, "downscale_delay_s": 600.0, "look_back_period_s": 30.0,
    }  # fmt: skip
    deployment = {"name": rule.name, "max_ongoing_requests": rule.service.slots, "autoscaling_config": scaling}
    application = {
        "name": rule.name,
        "import_path": f"{rule.name}:app",
        "route_prefix": "/",
        "deployments": [deployment],
    }
    return [{"http_options": {"port": PORT}, "applications": [application]}]


def _sky(rule: _Rule) -> list[Document]:
    """The `service` section of a SkyPilot file (`sky serve up`)."""
    policy = {
        "min_replicas": rule.service.least, "max_replicas": rule.service.most,
        "target_qps_per_replica": _figure(rule.qps),
        "upscale_delay_seconds": 300, "downscale_delay_seconds": 1200,
    }  # fmt: skip
    probe = {"path": "/ready", "initial_delay_seconds": max(math.ceil(3 * rule.service.start_up_s), 60)}
    return [{"service": {"readiness_probe": probe, "replica_policy": policy, "ports": PORT}}]


def _knative(rule: _Rule) -> list[Document]:
    """A Knative Service, its image left to be named."""
    prefix = "autoscaling.knative.dev/"
    notes = {
        f"{prefix}class": "kpa.autoscaling.knative.dev", f"{prefix}metric": "concurrency",
        f"{prefix}target": str(_figure(rule.slots)), f"{prefix}target-utilization-percentage": "70",
        f"{prefix}min-scale": str(rule.service.least), f"{prefix}max-scale": str(rule.service.most),
        f"{prefix}window": "60s",
    }  # fmt: skip
    container = {
        "image": "IMAGE",
        "ports": [{"containerPort": PORT}],
        "readinessProbe": {"httpGet": {"path": "/ready"}},
    }
    spec = {"containerConcurrency": rule.service.slots, "containers": [container]}
    return [{
        "apiVersion": "serving.knative.dev/v1", "kind": "Service", "metadata": {"name": rule.name},
        "spec": {"template": {"metadata": {"annotations": notes}, "spec": spec}},
    }]  # fmt: skip


RENDERED: Final[Mapping[str, Callable[[_Rule], list[Document]]]] = MappingProxyType(
    {
        "hpa": _hpa,
        "keda-queue": lambda rule: [_keda(rule, INSIDE, rule.slots)],
        "keda-rate": lambda rule: [_keda(rule, ARRIVED, rule.qps)],
        "ray-serve": _ray,
        "skyserve": _sky,
        "knative": _knative,
    }
)
