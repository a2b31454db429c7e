"""The pods of a run: what they run, on which nodes, with which rights, and how long they may take to end. Pure."""

from __future__ import annotations

from typing import Any, Final

from tonnage.places.kubernetes.clouds import WORDS, node_selector, tolerations
from tonnage.places.kubernetes.names import HOME, PLACE, TOKEN, RunNames, dns_label
from tonnage.places.kubernetes.place import KubernetesPlace
from tonnage.runs.job import Job
from tonnage.runs.secrets import SECRETS
from tonnage.values import dataclass

Document = dict[str, Any]
CONTAINER: Final = "run"
SENT: Final = "/etc/tonnage/run"  # where the submission's files are in the pod
SAVE_MARGIN_S: Final = 5  # of the grace, for the processes themselves
ACCOUNT: Final = "tonnage-run"
PORT: Final = 29500  # torchrun's rendezvous
SHM_SHARE: Final = 0.25  # of the pod's memory
POD_PROGRAM: Final = "tonnage.supervisor.pod"
TOPOLOGY_REQUIRED: Final = "kueue.x-k8s.io/podset-required-topology"
MIB: Final = 1024  # of a GiB


@dataclass(frozen=True, slots=True, kw_only=True)
class PodWork:
    """What one submission asks of its pods."""

    names: RunNames
    job: Job
    run: str  # the run's folder in the pods
    host: str | None = None  # where pod 0 is found by the others; None: there is one pod


def command(place: KubernetesPlace, work: PodWork) -> list[str]:
    """What the container starts: the run's supervisor in the first pod, its workers in the others."""
    words = [place.python, "-m", POD_PROGRAM, "--run", work.run, "--sent", SENT]
    words += ["--notice-s", str(max(1, place.grace_s - SAVE_MARGIN_S))]
    if work.host is not None:
        words += ["--nodes", str(place.nodes), "--host", work.host, "--port", str(PORT)]
        words += ["--token", work.names.labels[TOKEN]]
    return words


def resources(place: KubernetesPlace) -> Document:
    """Devices are asked for as limits; requests of cores and memory are the limits, so that the pod goes last."""
    amounts = {"cpu": str(place.cores), "memory": f"{round(place.memory_gib * MIB)}Mi"}
    found: Document = {"requests": dict(amounts), "limits": dict(amounts)}
    if place.gpus and place.device_class is not None:
        found["claims"] = [{"name": "devices"}]
    elif place.gpus:
        name = "nvidia.com/gpu" if place.mig is None else f"nvidia.com/mig-{place.mig}"
        found["requests"][name] = found["limits"][name] = str(place.gpus)
    return found


def environment(place: KubernetesPlace, job: Job) -> list[Document]:
    """Secrets are named, never written: the cluster has them, where the place names a Secret."""
    plain = {
        "TONNAGE_HOME": place.mount, "HOME": "/tmp", "HF_HOME": f"{place.mount}/cache/huggingface",
        "PYTHONUNBUFFERED": "1",
    }  # fmt: skip
    found: list[Document] = [{"name": name, "value": value} for name, value in plain.items()]
    for name in job.secrets if place.secret is not None else ():
        found.append({"name": name, "valueFrom": {"secretKeyRef": _key(place.secret, name)}})
    return found


def _key(secret: str | None, name: str) -> Document:
    """A key that the run surely needs has to be there; of others that are set here the Secret may have none."""
    return {"name": secret, "key": name, **({"optional": True} if name in SECRETS else {})}


def volumes(place: KubernetesPlace, work: PodWork) -> tuple[list[Document], list[Document]]:
    """(volumes, their mounts)."""
    shm_gib = place.shm_gib or place.memory_gib * SHM_SHARE
    data = [("data", place.data_volume)] if place.data_volume else []
    made: list[Document] = [
        {"name": "work", "persistentVolumeClaim": {"claimName": place.volume or claim_of(work.names)}},
        *({"name": name, "persistentVolumeClaim": {"claimName": claim, "readOnly": True}} for name, claim in data),
        {"name": "sent", "configMap": {"name": work.names.name}},
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": f"{round(shm_gib * MIB)}Mi"}},
        {"name": "tmp", "emptyDir": {}},
    ]
    mounts: list[Document] = [
        {"name": "work", "mountPath": place.mount},
        *({"name": name, "mountPath": place.data_mount, "readOnly": True} for name, _ in data),
        {"name": "sent", "mountPath": SENT, "readOnly": True},
        {"name": "shm", "mountPath": "/dev/shm"},
        {"name": "tmp", "mountPath": "/tmp"},
    ]
    return made, mounts


def claim_name(place: str, home: str) -> str:
    """Of the storage that is ours: one for all runs of a home at a place, so that `resume` finds what was saved."""
    return dns_label(f"tonnage-{place}-{home}")


def claim_of(names: RunNames) -> str:
    return claim_name(names.labels[PLACE], names.labels[HOME])


def security(place: KubernetesPlace) -> Document:
    """Of a pod: not root, and what is written is its group's."""
    return {
        "runAsNonRoot": True, "runAsUser": place.user, "runAsGroup": place.user, "fsGroup": place.user,
        "fsGroupChangePolicy": "OnRootMismatch", "seccompProfile": {"type": "RuntimeDefault"},
    }  # fmt: skip


CONTAINED: Final = {
    "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
}  # fmt: skip


def pod_template(place: KubernetesPlace, work: PodWork) -> Document:
    """Metadata and specification."""
    words = WORDS[place.cluster]
    notes = dict(work.names.annotations) | dict(words.annotations)
    if place.topology is not None and place.queue is not None:
        notes[TOPOLOGY_REQUIRED] = place.topology
    return {
        "metadata": {"labels": dict(work.names.labels), "annotations": notes},
        "spec": pod_spec(place, work),
    }


def pod_spec(place: KubernetesPlace, work: PodWork) -> Document:
    made, mounts = volumes(place, work)
    spec: Document = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": place.grace_s,
        "serviceAccountName": place.service_account or ACCOUNT,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": security(place),
        "containers": [container(place, work, mounts)],
        "volumes": made,
    }  # fmt: skip
    chosen = node_selector(
        place.cluster, gpu=place.gpu, gpus=place.gpus, spot=place.spot, instance_type=place.instance_type
    )
    optional: Document = {
        "nodeSelector": chosen | place.node_labels,
        "tolerations": tolerations(place.cluster, gpus=place.gpus, spot=place.spot),
        "priorityClassName": place.priority_class,
        "runtimeClassName": place.runtime_class,
        "imagePullSecrets": [{"name": place.pull_secret}] if place.pull_secret else None,
        "resourceClaims": _claims(place, work),
        **_together(place, work),
    }
    return spec | {key: value for key, value in optional.items() if value}


def container(place: KubernetesPlace, work: PodWork, mounts: list[Document]) -> Document:
    """The one container; its first signal comes from the hook, the second by Kubernetes finds it saving."""
    hook = [place.python, "-m", POD_PROGRAM, "--save"]
    made: Document = {
        "name": CONTAINER,
        "image": place.image,
        "command": command(place, work),
        "env": environment(place, work.job),
        "resources": resources(place),
        "volumeMounts": mounts,
        "lifecycle": {"preStop": {"exec": {"command": hook}}},
        "securityContext": CONTAINED,
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }  # fmt: skip
    if work.host is not None:
        made["ports"] = [{"name": "rendezvous", "containerPort": PORT}]
    return made


def _claims(place: KubernetesPlace, work: PodWork) -> list[Document] | None:
    if not place.gpus or place.device_class is None:
        return None
    return [{"name": "devices", "resourceClaimTemplateName": work.names.name}]


def _together(place: KubernetesPlace, work: PodWork) -> Document:
    """Several pods: one on a node, and close to each other where that is asked for; Kueue does that by annotation."""
    if place.nodes == 1:
        return {}
    own = {"matchLabels": {TOKEN: work.names.labels[TOKEN]}}
    apart = {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule",
             "labelSelector": own}  # fmt: skip
    found: Document = {"topologySpreadConstraints": [apart]}
    if place.topology is not None and place.queue is None:
        near = {"labelSelector": own, "topologyKey": place.topology}
        found["affinity"] = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [near]}}
    return found
