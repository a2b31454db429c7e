"""What a run is sent as: a Job, a JobSet, a TrainJob of Kubeflow Trainer, a RayJob. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import Any, Final

from tonnage.places.kubernetes.names import RunNames
from tonnage.places.kubernetes.place import Form, KubernetesPlace
from tonnage.places.kubernetes.pod_template import CONTAINER, PodWork, pod_template
from tonnage.runs.states import WorkerExit

Document = dict[str, Any]
QUEUE, PRIORITY = "kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/priority-class"
MAX_EXEC: Final = "kueue.x-k8s.io/max-exec-time-seconds"
NODE: Final = "node"  # the replicated job of a JobSet, and what Kubeflow Trainer calls its own
# exit codes of the run's end after which it does not start again by itself
FINAL_CODES: Final = sorted({1, WorkerExit.BAD_INPUT, WorkerExit.STOPPED})


def failure_policy() -> Document:
    """A run that saved because its machine goes, and a pod that was taken away, are no failures."""
    saved = {"containerName": CONTAINER, "operator": "In", "values": [WorkerExit.PREEMPTED]}
    ended = {"containerName": CONTAINER, "operator": "In", "values": FINAL_CODES}
    return {
        "rules": [
            {"action": "FailJob", "onExitCodes": ended},
            {"action": "Ignore", "onExitCodes": saved},
            {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
        ]
    }


def job_spec(place: KubernetesPlace, work: PodWork) -> Document:
    """Of a Job, by itself or in a JobSet."""
    return {
        "completionMode": "Indexed", "completions": place.nodes, "parallelism": place.nodes,
        "backoffLimit": place.retries, "podReplacementPolicy": "Failed", "podFailurePolicy": failure_policy(),
        "template": pod_template(place, work),
    }  # fmt: skip


def job(place: KubernetesPlace, work: PodWork) -> Document:
    """An Indexed Job; its pods have the name of the Service beside it as their subdomain."""
    spec = job_spec(place, work)
    if place.nodes > 1:
        spec["template"]["spec"]["subdomain"] = work.names.name
    limits = {
        "activeDeadlineSeconds": place.time_limit_minutes * 60,
        "ttlSecondsAfterFinished": place.keep_minutes * 60,
    }
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": _metadata(place, work.names),
            "spec": {**_suspended(place), **limits, **spec}}  # fmt: skip


def job_set(place: KubernetesPlace, work: PodWork) -> Document:
    """One replicated Job; JobSet makes the Service. Its life is that of the Job inside."""
    inner = {"activeDeadlineSeconds": place.time_limit_minutes * 60, **job_spec(place, work)}
    ended = {"name": "ended", "action": "FailJobSet", "onJobFailureReasons": ["PodFailurePolicy", "DeadlineExceeded"]}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": _metadata(place, work.names),
        "spec": {
            **_suspended(place), "ttlSecondsAfterFinished": place.keep_minutes * 60,
            "network": {"enableDNSHostnames": True, "subdomain": work.names.name, "publishNotReadyAddresses": True},
            "failurePolicy": {"maxRestarts": place.retries, "rules": [ended]},
            "replicatedJobs": [{"name": NODE, "replicas": 1, "template": {"spec": inner}}],
        },
    }  # fmt: skip


def train_job(place: KubernetesPlace, work: PodWork) -> Document:
    """Its pods are the runtime's, with ours merged in by a patch of it."""
    pods = pod_template(place, work)
    [main] = pods["spec"]["containers"]
    trainer = {"image": main["image"], "command": main["command"], "numNodes": place.nodes,
               "resourcesPerNode": main["resources"], "env": main["env"]}  # fmt: skip
    kept = ("nodeSelector", "tolerations", "serviceAccountName", "securityContext", "affinity", "schedulingGates",
            "imagePullSecrets", "volumes", "terminationGracePeriodSeconds")  # fmt: skip
    spec: Document = {key: pods["spec"][key] for key in kept if key in pods["spec"]}
    spec["containers"] = [{"name": NODE, "volumeMounts": main["volumeMounts"],
                           "securityContext": main["securityContext"]}]  # fmt: skip
    patch = {"spec": {"replicatedJobs": [{"name": NODE, "template": {"spec": {"template": {
        "metadata": pods["metadata"], "spec": spec}}}}]}}  # fmt: skip
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": _metadata(place, work.names),
        "spec": {
            **_suspended(place), "activeDeadlineSeconds": place.time_limit_minutes * 60,
            "runtimeRef": {"name": place.runtime}, "trainer": trainer,
            "runtimePatches": [{"manager": "tonnage.dev/run", "trainingRuntimeSpec": {"template": patch}}],
        },
    }  # fmt: skip


def ray_job(place: KubernetesPlace, work: PodWork) -> Document:
    """A cluster of its own, which goes with the run; the head has what a node has, the others join it."""
    pods = pod_template(place, work)
    [main] = pods["spec"]["containers"]
    spec = {key: value for key, value in pods["spec"].items() if key != "restartPolicy"}
    plain = {key: value for key, value in main.items() if key not in {"command", "lifecycle"}}
    template = {"metadata": pods["metadata"], "spec": {**spec, "containers": [plain]}}
    others = place.nodes - 1
    group = {"groupName": NODE, "replicas": others, "minReplicas": others, "maxReplicas": others,
             "rayStartParams": {}, "template": template}  # fmt: skip
    return {
        "apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": _metadata(place, work.names),
        "spec": {
            **_suspended(place), "entrypoint": shlex.join(main["command"]), "shutdownAfterJobFinishes": True,
            "ttlSecondsAfterFinished": place.keep_minutes * 60, "backoffLimit": place.retries,
            "activeDeadlineSeconds": place.time_limit_minutes * 60,
            "rayClusterSpec": {
                "rayVersion": place.ray_version,
                "headGroupSpec": {"rayStartParams": {"dashboard-host": "0.0.0.0"}, "template": template},
                **({"workerGroupSpecs": [group]} if others else {}),
            },
        },
    }  # fmt: skip


def _metadata(place: KubernetesPlace, names: RunNames) -> Document:
    made = names.metadata()
    if place.queue is not None:
        made["labels"] |= {QUEUE: place.queue, MAX_EXEC: str(place.time_limit_minutes * 60)}
        if place.priority is not None:
            made["labels"][PRIORITY] = place.priority
    return made


def _suspended(place: KubernetesPlace) -> Document:
    """Kueue lets it go when its quota has room."""
    return {"suspend": True} if place.queue is not None else {}


FORMS: Final[dict[Form, Callable[[KubernetesPlace, PodWork], Document]]] = {
    "job": job, "jobset": job_set, "trainjob": train_job, "rayjob": ray_job
}  # fmt: skip
