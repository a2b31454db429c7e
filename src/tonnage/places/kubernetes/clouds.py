"""How each kind of cluster says what a node is: labels to choose by, taints to bear with. Pure.

Sources, read 2026-11-24: GKE https://cloud.google.com/kubernetes-engine/docs/how-to/gpus and .../spot-vms,
.../concepts/dws; EKS https://docs.aws.amazon.com/eks/latest/userguide/managed-node-groups.html; Karpenter
https://karpenter.sh/docs/concepts/scheduling/; AKS https://learn.microsoft.com/azure/aks/gpu-cluster and
.../spot-node-pool (a pool of GPUs is often tainted `sku=gpu`); DigitalOcean
https://docs.digitalocean.com/products/kubernetes/details/managed; others:
https://docs.nvidia.com/datacenter/cloud-native/gpu-operator/latest/ (feature discovery).
"""

from __future__ import annotations

from typing import Any, Final, Literal

from tonnage.values import dataclass

ClusterKind = Literal["gke", "gke-autopilot", "gke-flex-start", "eks", "karpenter", "aks", "doks", "other"]
INSTANCE_TYPE: Final = "node.kubernetes.io/instance-type"
GPU_TAINT: Final = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeWords:
    """The labels of one kind of cluster. `spot`: of nodes that may be taken away; None: it has none."""

    gpu: str  # the label whose value is the type of GPU
    spot: tuple[str, str] | None
    on_demand: tuple[str, str] | None = None
    spot_taint: tuple[str, str] | None = None
    more: tuple[tuple[str, str], ...] = ()  # of every node with GPUs
    gpu_taints: tuple[tuple[str, str], ...] = ()  # that pools of GPUs may have, beside NVIDIA's own
    annotations: tuple[tuple[str, str], ...] = ()  # of the pods


_GKE: Final = NodeWords(
    gpu="cloud.google.com/gke-accelerator",
    spot=("cloud.google.com/gke-spot", "true"),
    spot_taint=("cloud.google.com/gke-spot", "true"),
)
WORDS: Final[dict[ClusterKind, NodeWords]] = {
    "gke": _GKE,
    "gke-autopilot": _GKE,
    "gke-flex-start": NodeWords(
        gpu=_GKE.gpu,
        spot=_GKE.spot,
        more=(("cloud.google.com/gke-flex-start", "true"),),
        annotations=(("cluster-autoscaler.kubernetes.io/safe-to-evict", "false"),),
    ),
    "eks": NodeWords(
        gpu="nvidia.com/gpu.product",
        spot=("eks.amazonaws.com/capacityType", "SPOT"),
        on_demand=("eks.amazonaws.com/capacityType", "ON_DEMAND"),
    ),
    "karpenter": NodeWords(
        gpu="karpenter.k8s.aws/instance-gpu-name",
        spot=("karpenter.sh/capacity-type", "spot"),
        on_demand=("karpenter.sh/capacity-type", "on-demand"),
        annotations=(("karpenter.sh/do-not-disrupt", "true"),),
    ),
    "aks": NodeWords(
        gpu="nvidia.com/gpu.product",
        spot=("kubernetes.azure.com/scalesetpriority", "spot"),
        spot_taint=("kubernetes.azure.com/scalesetpriority", "spot"),
        more=(("kubernetes.azure.com/accelerator", "nvidia"),),
        gpu_taints=(("sku", "gpu"),),
    ),
    "doks": NodeWords(
        gpu="doks.digitalocean.com/gpu-model", spot=None, more=(("doks.digitalocean.com/gpu-brand", "nvidia"),)
    ),
    "other": NodeWords(gpu="nvidia.com/gpu.product", spot=("tonnage.dev/spot", "true")),
}


def node_selector(
    kind: ClusterKind, *, gpu: str | None, gpus: int, spot: bool, instance_type: str | None
) -> dict[str, str]:
    """Labels that a node must have.

    >>> node_selector("gke", gpu="nvidia-h100-80gb", gpus=8, spot=True, instance_type=None)
    {'cloud.google.com/gke-accelerator': 'nvidia-h100-80gb', 'cloud.google.com/gke-spot': 'true'}
    """
    words, chosen = WORDS[kind], {}
    if gpu is not None and gpus:
        chosen[words.gpu] = gpu
    if instance_type is not None:
        chosen[INSTANCE_TYPE] = instance_type
    if gpus or kind == "gke-flex-start":
        chosen |= dict(words.more)
    mode = words.spot if spot else words.on_demand
    return chosen | (dict([mode]) if mode else {})


def tolerations(kind: ClusterKind, *, gpus: int, spot: bool) -> list[dict[str, Any]]:
    """Taints that such nodes have, or may have: one that is not there is borne without harm."""
    words = WORDS[kind]
    taints = [*(words.gpu_taints if gpus else ()), *([words.spot_taint] if spot and words.spot_taint else [])]
    found: list[dict[str, Any]] = [GPU_TAINT] if gpus else []
    found += ({"key": key, "operator": "Equal", "value": value, "effect": "NoSchedule"} for key, value in taints)
    return found
