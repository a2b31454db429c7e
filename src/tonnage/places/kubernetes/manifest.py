"""Everything that a submission creates, in the order of its creation, as one YAML stream: a Job, a JobSet, a TrainJob
of Kubeflow Trainer or a RayJob, and what it needs. Pure.

The object that spends comes last: a client that dies before it has started nothing.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any, Final

import yaml

from tonnage.errors import InputError
from tonnage.places.kubernetes.names import HOME, MANAGED, PLACE, RunNames
from tonnage.places.kubernetes.place import Form, KubernetesPlace
from tonnage.places.kubernetes.pod_template import ACCOUNT, CONTAINER, PORT, PodWork, claim_of, pod_template
from tonnage.places.record import PlaceRecord
from tonnage.places.terms import merged
from tonnage.runs.job import Job, dump_job
from tonnage.runs.secrets import named_secrets
from tonnage.runs.spec import RunSpec, dump_spec
from tonnage.runs.states import WorkerExit

Document = dict[str, Any]
LASTING: Final = frozenset({"ServiceAccount", "PersistentVolumeClaim"})  # stay when the run goes
QUEUE, PRIORITY = "kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/priority-class"
MAX_EXEC: Final = "kueue.x-k8s.io/max-exec-time-seconds"
NODE: Final = "node"  # the replicated job of a JobSet, and what Kubeflow Trainer calls its own
# exit codes of the run's end after which it does not start again by itself
FINAL_CODES: Final = sorted({1, WorkerExit.BAD_INPUT, WorkerExit.STOPPED})


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
