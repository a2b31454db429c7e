"""A planned replica as a KServe InferenceService (serving.kserve.io/v1beta1): the engine's image with its arguments."""

from __future__ import annotations

import re
from typing import Any, Final

import yaml

from tonnage.errors import InputError
from tonnage.serving.engines.arguments import engine_release
from tonnage.serving.engines.engine import EnginePlace
from tonnage.serving.engines.generation import GenerationService
from tonnage.serving.engines.registry import CommandEngine
from tonnage.values import dataclass

KSERVE_FILE: Final = "kserve.yaml"
PORT: Final = 8080  # of the container
PROBE_S: Final = 10
LABEL_LENGTH: Final = 63
RESOURCES: Final = {
    "NVIDIA": "nvidia.com/gpu",
    "AMD": "amd.com/gpu",
}  # NVIDIA/k8s-device-plugin, ROCm/k8s-device-plugin
Document = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterReplicas:
    """How many replicas a cluster keeps, and what each has. `slots`: requests that one answers at once."""

    name: str
    least: int
    most: int
    slots: int
    gpus: int
    ready_timeout_s: float
    api_key: bool = False


def cluster_name(name: str) -> str:
    """A name as Kubernetes takes it: a DNS label (RFC 1123) that begins with a letter.

    >>> cluster_name("Llama_2.7b")
    'llama-2-7b'
    """
    label = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    return (label if label[:1].isalpha() else f"m-{label}")[:LABEL_LENGTH].rstrip("-")


def render_kserve(
    engine: CommandEngine, service: GenerationService, replicas: ClusterReplicas, *, vendor: str = "NVIDIA"
) -> str:
    """The file for `kubectl apply -f`. `vendor`: the maker of the planned GPU, which names its resource.

    Knative's autoscaler aims at 70 % of `scaleTarget` (its target-utilization-percentage). InputError where a cluster
    cannot have what the command reads: a model in a folder of this machine, or a file of options.
    """
    place = EnginePlace(folder="/tmp", port=PORT, host="0.0.0.0", api_key=replicas.api_key)
    command, name = engine.render(service, place), cluster_name(replicas.name)
    if service.model.startswith("/"):
        raise InputError(f"the model lies in {service.model} of this machine, which a cluster does not see",
                         hint="--model with its name on a hub")  # fmt: skip
    if command.files:
        raise InputError(f"{engine.name} reads {command.files[0].path}, which is not mounted in the cluster",
                         hint="put it in a ConfigMap, or plan for vllm")  # fmt: skip
    probe = {"httpGet": {"path": command.health, "port": PORT}, "periodSeconds": PROBE_S,
             "failureThreshold": max(3, round(replicas.ready_timeout_s / PROBE_S))}  # fmt: skip
    container: Document = {
        "name": "kserve-container", "image": engine_release(engine.name).image,
        "args": list(engine.inside_argv(command)), "ports": [{"containerPort": PORT, "protocol": "TCP"}],
        "readinessProbe": probe,
    }  # fmt: skip
    if command.secrets:
        container["env"] = [
            {"name": key, "valueFrom": {"secretKeyRef": {"name": name, "key": key}}} for key in command.secrets
        ]
    notes = {"serving.knative.dev/progress-deadline": f"{round(replicas.ready_timeout_s)}s"}
    predictor: Document = {
        "annotations": notes,
        "minReplicas": replicas.least, "maxReplicas": replicas.most, "scaleMetric": "concurrency",
        "scaleTarget": replicas.slots, "containerConcurrency": replicas.slots, "containers": [container],
    }  # fmt: skip
    if replicas.gpus:
        container["resources"] = {"limits": {_resource(vendor): str(replicas.gpus)}}
        container["volumeMounts"] = [{"name": "shm", "mountPath": "/dev/shm"}]  # processes of one replica share tensors
        predictor["volumes"] = [{"name": "shm", "emptyDir": {"medium": "Memory"}}]
    document = {
        "apiVersion": "serving.kserve.io/v1beta1", "kind": "InferenceService",
        "metadata": {"name": name}, "spec": {"predictor": predictor},
    }  # fmt: skip
    foreign = vendor != "NVIDIA" and replicas.gpus
    remark = f"# {container['image']} is built for CUDA: name one for {vendor}\n" if foreign else ""
    return remark + yaml.safe_dump(document, sort_keys=False, width=110)


def _resource(vendor: str) -> str:
    """The extended resource of the vendor's device plugin. InputError for a maker without one that is known here."""
    if vendor not in RESOURCES:
        raise InputError(f"what Kubernetes calls a device of {vendor} is not known here",
                         hint=f"plan for a GPU of {' or '.join(RESOURCES)}")  # fmt: skip
    return RESOURCES[vendor]
