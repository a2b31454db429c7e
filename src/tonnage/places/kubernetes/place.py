"""What places.toml says of a Kubernetes cluster."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Annotated, Any, Final, Literal

from pydantic import Field, field_validator, model_validator

from tonnage.places.kubernetes.clouds import WORDS, ClusterKind
from tonnage.places.terms import PlaceTerms

DIGEST: Final = re.compile(r"[^\s@]+@sha256:[0-9a-f]{64}")
HOW_DIGEST: Final = "its digest: `skopeo inspect --format '{{.Name}}@{{.Digest}}' docker://IMAGE`"
Form = Literal["job", "jobset", "trainjob", "rayjob"]
Label = Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", max_length=63)]


class KubernetesPlace(PlaceTerms):
    """A namespace of a cluster. Figures are those of one pod; `nodes` pods make a run."""

    kind: Literal["kubernetes"]
    context: str  # of the kubeconfig: never the current one by chance
    namespace: Label
    kubeconfig: str | None = None  # None: KUBECONFIG, else ~/.kube/config
    image: str  # by digest: NAME@sha256:...; it has tonnage installed
    pull_secret: Label | None = None
    python: str = "python"  # in the image
    form: Form = "job"  # what the run is sent as
    nodes: Annotated[int, Field(ge=1, le=1000)] = 1  # more than one: as many pods, one torchrun over all
    time_limit_minutes: Annotated[int, Field(ge=1)]  # of one submission, from its first pod: activeDeadlineSeconds
    retries: Annotated[int, Field(ge=0, le=1000)] = 6  # starts after a crash without a word; preemptions do not count
    keep_minutes: Annotated[int, Field(ge=0)] = 1440  # after its end the Job goes by itself
    cluster: ClusterKind = "other"
    instance_type: str | None = None
    spot: bool = False
    mig: Annotated[str, Field(pattern=r"^\d+g\.\d+gb$")] | None = None  # a part of a GPU: 1g.10gb
    device_class: str | None = None  # devices by claim (DRA) instead of by resource: gpu.nvidia.com
    queue: Label | None = None  # Kueue's LocalQueue
    priority: Label | None = None  # Kueue's WorkloadPriorityClass
    priority_class: Label | None = None  # of the pods
    topology: str | None = None  # label of nodes whose value all pods of a run share: a rack, a block, a zone
    runtime_class: Label | None = None
    runtime: Label = "torch-distributed"  # of a trainjob: the ClusterTrainingRuntime
    ray_version: str = "2.60.0"  # of a rayjob: that of the image
    shm_gib: Annotated[float, Field(gt=0)] | None = None  # /dev/shm, of the pod's memory; None: a quarter of it
    volume: Label | None = None  # a claim that is there: runs and checkpoints; more nodes need ReadWriteMany
    storage_gib: Annotated[float, Field(gt=0)] | None = None  # instead: a claim of our own, made with the first run
    storage_class: str | None = None
    data_volume: Label | None = None  # a claim with data, mounted read-only
    mount: Annotated[str, Field(pattern=r"^/[^\n]*[^/\n]$")] = "/tonnage"  # where the volume is in the pods
    data_mount: Annotated[str, Field(pattern=r"^/[^\n]*[^/\n]$")] = "/data"
    secret: Label | None = None  # keys are the names of the variables that a run needs
    service_account: Label | None = None  # None: one of ours, without rights and without a token
    user: Annotated[int, Field(ge=1)] = 1000  # never root
    egress: Annotated[tuple[str, ...], Field(strict=False)] = ("0.0.0.0/0",)  # CIDRs that pods may reach on port 443
    labels: dict[str, str] = Field(default_factory=dict)
    node_labels: dict[str, str] = Field(default_factory=dict)  # of nodes, beside those of the cluster
    patch: dict[str, dict[str, Any]] = Field(default_factory=dict)  # by kind, merged into what is sent

    @field_validator("image")
    @classmethod
    def _by_digest(cls, image: str) -> str:
        if not DIGEST.fullmatch(image):
            raise ValueError(f"'{image}' names no digest, and a tag may be another image tomorrow; {HOW_DIGEST}")
        return image

    @model_validator(mode="after")
    def _hang_together(self) -> KubernetesPlace:
        if (self.volume is None) == (self.storage_gib is None):
            raise ValueError("name `volume`, a claim that is there, or `storage_gib`, the size of one to make")
        if self.mig is not None and self.device_class is not None:
            raise ValueError("`mig` and `device_class` are two ways to ask for devices: choose one")
        if self.spot and WORDS[self.cluster].spot is None:
            raise ValueError(f"`spot`: {self.cluster} has no nodes that may be taken away")
        if self.priority is not None and self.queue is None:
            raise ValueError("`priority` is Kueue's: it needs `queue`; `priority_class` is that of the pods")
        if self.form == "rayjob" and self.nodes > 1 and self.volume is None:
            raise ValueError("nodes of a rayjob share `volume`")
        return self

    @property
    def where(self) -> str:
        return f"{self.context}/{self.namespace}"

    @property
    def longest_job_h(self) -> float | None:
        return self.time_limit_minutes / 60

    @property
    def machines(self) -> int:
        return self.nodes

    def holds(self, path: str) -> bool:
        mounts = (PurePosixPath(self.mount), *([PurePosixPath(self.data_mount)] if self.data_volume else []))
        return any(PurePosixPath(path).is_relative_to(mount) for mount in mounts)
