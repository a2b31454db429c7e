"""Every obstacle to a run in a cluster, asked of the cluster itself; nothing is started.

A Job that names a class, an account or a claim that is not there is accepted and never gets a pod: each is looked up.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

from tonnage.errors import TonnageError
from tonnage.places.contract import PlaceFinding
from tonnage.places.kubernetes.checking.formats import quantity
from tonnage.places.kubernetes.client import ApiError, KubernetesClient
from tonnage.places.kubernetes.clouds import node_selector
from tonnage.places.kubernetes.names import group_path, path_of
from tonnage.places.kubernetes.place import KubernetesPlace
from tonnage.places.kubernetes.pod_template import resources
from tonnage.values import dataclass

DRIVER_LABEL: Final = "nvidia.com/cuda.driver-version.full"  # k8s-device-plugin, gpu-feature-discovery

Document = dict[str, Any]
RIGHTS: Final = (  # group, resource, verbs: what sending, following, stopping and ending a run takes
    ("", "pods", ("get", "list", "create", "delete")), ("", "pods/log", ("get",)), ("", "pods/exec", ("create",)),
    ("", "configmaps", ("create", "list", "delete")), ("", "services", ("create", "list", "delete")),
    ("", "serviceaccounts", ("create", "get")), ("", "events", ("list",)),
    ("networking.k8s.io", "networkpolicies", ("create", "list", "delete")),
)  # fmt: skip
FORMS: Final = {
    "job": ("batch", "v1", "jobs"), "jobset": ("jobset.x-k8s.io", "v1alpha2", "jobsets"),
    "trainjob": ("trainer.kubeflow.org", "v1alpha1", "trainjobs"), "rayjob": ("ray.io", "v1", "rayjobs"),
}  # fmt: skip
INSTALL: Final = {
    "jobset": "JobSet: https://jobset.sigs.k8s.io/docs/installation/",
    "trainjob": "Kubeflow Trainer: https://www.kubeflow.org/docs/components/trainer/operator-guides/installation/",
    "rayjob": "KubeRay: https://docs.ray.io/en/latest/cluster/kubernetes/getting-started.html",
}
GROWS: Final = frozenset({"gke-autopilot", "gke-flex-start", "karpenter"})  # a node comes for a pod that waits
KUEUE: Final = "kueue.x-k8s.io/v1beta2"


@dataclass(frozen=True, slots=True, kw_only=False)
class Asking:
    """One look at one place."""

    api: KubernetesClient
    place: KubernetesPlace
    name: str

    def findings(self) -> Iterator[PlaceFinding]:
        """All; only access where that is refused, since nothing else can be asked then."""
        try:
            self.api.ask("GET", "/version")
            missing = list(self._rights())
        except TonnageError as error:
            yield _refused(error.message, error.hint or "")
            return
        yield from missing
        for question in (
            self._namespace, self._form, self._volume, self._data, self._classes, self._queue, self._secret,
            self._nodes, self._quota,
        ):  # fmt: skip
            yield from self._answered(question)

    def _answered(self, question: Any) -> Iterator[PlaceFinding]:
        """A question that may not be asked is reported as refused, never counted as a yes."""
        try:
            yield from question()
        except ApiError as error:
            if error.code != 403:
                raise
            words = question.__name__.strip("_")
            yield PlaceFinding(
                kind="unchecked", message=f"{words}: {error.message}", hint="ask for the right to read it"
            )

    def _rights(self) -> Iterator[PlaceFinding]:
        group, _, kind = FORMS[self.place.form]
        wanted = [*RIGHTS, (group, kind, ("create", "get", "list", "delete"))]
        if self.place.volume is None:
            wanted.append(("", "persistentvolumeclaims", ("create", "get")))
        if self.place.device_class is not None:
            wanted.append(("resource.k8s.io", "resourceclaimtemplates", ("create", "list", "delete")))
        for group, resource, verbs in wanted:
            lacking = [verb for verb in verbs if not self.api.allowed(self.place.namespace, verb, group, resource)]
            if lacking:
                full = f"{resource}.{group}" if group else resource
                role = f"tonnage-{resource.replace('/', '-')}"
                yield _refused(
                    f"you may not {', '.join(lacking)} {full} in {self.place.namespace}",
                    f"an administrator: `kubectl -n {self.place.namespace} create role {role}"
                    f" --verb={','.join(lacking)} --resource={full}`, and a rolebinding to you",
                )

    def _namespace(self) -> Iterator[PlaceFinding]:
        if self.api.get(path_of("v1", "Namespace", "", self.place.namespace)) is None:
            name = self.place.namespace
            yield _refused(f"there is no namespace '{name}'", f"`kubectl create namespace {name}`")

    def _form(self) -> Iterator[PlaceFinding]:
        group, version, kind = FORMS[self.place.form]
        found = self.api.get(group_path(f"{group}/{version}"))
        if found is None or kind not in {one["name"] for one in found.get("resources") or ()}:
            yield _refused(
                f"the cluster has no {kind} of {group}/{version}", INSTALL.get(self.place.form, "upgrade it")
            )

    def _volume(self) -> Iterator[PlaceFinding]:
        if self.place.volume is not None:
            yield from self._claim(self.place.volume, "volume", writes=True)
        elif self.place.storage_class is not None:
            path = f"/apis/storage.k8s.io/v1/storageclasses/{self.place.storage_class}"
            if self.api.get(path) is None:
                yield _refused(f"there is no storage class '{self.place.storage_class}'",
                               f"places.{self.name}.storage_class: `kubectl get storageclass`")  # fmt: skip

    def _data(self) -> Iterator[PlaceFinding]:
        if self.place.data_volume is not None:
            yield from self._claim(self.place.data_volume, "data_volume", writes=False)

    def _claim(self, claim: str, key: str, *, writes: bool) -> Iterator[PlaceFinding]:
        there = self.api.get(path_of("v1", "PersistentVolumeClaim", self.place.namespace, claim))
        if there is None:
            yield _refused(f"there is no claim '{claim}'", f"places.{self.name}.{key}: `kubectl get pvc`")
            return
        phase, modes = (there.get("status") or {}).get("phase"), there["spec"].get("accessModes") or []
        if phase == "Lost":
            yield _refused(f"the claim '{claim}' has lost its volume", f"`kubectl describe pvc {claim}`")
        elif phase != "Bound":
            words = f"the claim '{claim}' is {phase}: it is bound with its first pod, or never"
            yield PlaceFinding(kind="doubtful", message=words, hint=f"`kubectl describe pvc {claim}`")
        shared = {"ReadWriteMany"} if writes else {"ReadWriteMany", "ReadOnlyMany"}
        if self.place.nodes > 1 and not shared & set(modes):
            yield _refused(f"{self.place.nodes} pods cannot share the claim '{claim}' ({', '.join(modes)})",
                           "a claim with ReadWriteMany, such as Filestore, EFS, Azure Files")  # fmt: skip

    def _classes(self) -> Iterator[PlaceFinding]:
        for key, path in (
            ("priority_class", "/apis/scheduling.k8s.io/v1/priorityclasses"),
            ("runtime_class", "/apis/node.k8s.io/v1/runtimeclasses"),
            ("device_class", "/apis/resource.k8s.io/v1/deviceclasses"),
            ("service_account", f"/api/v1/namespaces/{self.place.namespace}/serviceaccounts"),
        ):
            wanted = getattr(self.place, key)
            if wanted is not None and self.api.get(f"{path}/{wanted}") is None:
                what = key.replace("_", " ")
                yield _refused(f"there is no {what} '{wanted}': the Job would be taken and never get a pod",
                               f"places.{self.name}.{key}: `kubectl get {path.rsplit('/', 1)[-1]}`")  # fmt: skip

    def _queue(self) -> Iterator[PlaceFinding]:
        if self.place.queue is None:
            return
        there = self.api.get(path_of(KUEUE, "LocalQueue", self.place.namespace, self.place.queue))
        if there is None:
            yield _refused(f"there is no LocalQueue '{self.place.queue}' in {self.place.namespace}: the run would wait "
                           "forever", f"places.{self.name}.queue: `kubectl get localqueues`")  # fmt: skip
            return
        for one in (there.get("status") or {}).get("conditions") or ():
            if one["type"] == "Active" and one["status"] == "False":
                yield _refused(f"the queue '{self.place.queue}' is not active: {one.get('message', '')}",
                               f"`kubectl describe localqueue {self.place.queue}`")  # fmt: skip

    def _secret(self) -> Iterator[PlaceFinding]:
        if self.place.secret is None:
            return
        if self.api.get(path_of("v1", "Secret", self.place.namespace, self.place.secret)) is None:
            yield _refused(f"there is no secret '{self.place.secret}'",
                           f"`kubectl -n {self.place.namespace} create secret generic {self.place.secret} "
                           "--from-literal=NAME=...`")  # fmt: skip

    def _nodes(self) -> Iterator[PlaceFinding]:
        """Whether nodes are such as the run asks for; in a cluster that gets them for pods that wait, a doubt."""
        terms = self.place
        wanted = terms.node_labels | node_selector(
            terms.cluster, gpu=terms.gpu, gpus=terms.gpus, spot=terms.spot, instance_type=terms.instance_type
        )
        nodes = self.api.list("/api/v1/nodes")
        for label, value in wanted.items():
            there = sorted({(one["metadata"].get("labels") or {}).get(label, "") for one in nodes} - {""})
            if value not in there:
                yield self._without(f"no node has {label}={value}", f"nodes have {', '.join(there) or 'no such label'}")
                return
        fits = [one for one in nodes if _labelled(one, wanted) and _holds(one, resources(terms)["requests"])]
        if len(fits) < terms.nodes:
            asked = ", ".join(f"{name} {amount}" for name, amount in resources(terms)["requests"].items())
            yield self._without(
                f"{len(fits)} nodes have {asked}, {terms.nodes} are needed", "`kubectl get nodes -L gpu`"
            )
        if terms.gpus:
            yield from self._software(fits)

    def _software(self, nodes: Sequence[Mapping[str, Any]]) -> Iterator[PlaceFinding]:
        """By the labels of NVIDIA's feature discovery, where nodes have them."""
        from tonnage.places.gpu_software import oldest_driver, software_at

        said = [(one["metadata"].get("labels") or {}).get(DRIVER_LABEL) for one in nodes]
        driver = oldest_driver(said, source=f"the nodes' label {DRIVER_LABEL}")
        yield from software_at(self.place, self.name, driver=driver)

    def _without(self, message: str, hint: str) -> PlaceFinding:
        if self.place.cluster in GROWS:
            return PlaceFinding(kind="doubtful", message=f"{message} now; one may come", hint=hint)
        return _refused(f"{message}: the pods would wait forever", hint)

    def _quota(self) -> Iterator[PlaceFinding]:
        path = path_of("v1", "ResourceQuota", self.place.namespace)
        needs = {f"requests.{name}": quantity(amount) * self.place.nodes
                 for name, amount in resources(self.place)["requests"].items()}  # fmt: skip
        needs |= {name: needs[f"requests.{name}"] for name in ("cpu", "memory")} | {"pods": Decimal(self.place.nodes)}
        for one in self.api.list(path):
            status = one.get("status") or {}
            used = status.get("used") or {}
            for name, hard in (status.get("hard") or one["spec"].get("hard") or {}).items():
                left = quantity(hard) - quantity(used.get(name, 0))
                if name in needs and needs[name] > left:
                    over = needs[name] > quantity(hard)
                    words = f"the quota {one['metadata']['name']} has {_plain(left)} of {name} left"
                    words += f", {_plain(needs[name])} are needed"
                    hint = f"`kubectl -n {self.place.namespace} describe quota`; ask for more"
                    yield _refused(words, hint) if over else PlaceFinding(kind="doubtful", message=words, hint=hint)


def _labelled(node: Mapping[str, Any], wanted: Mapping[str, str]) -> bool:
    labels = node["metadata"].get("labels") or {}
    return all(labels.get(name) == value for name, value in wanted.items())


def _holds(node: Mapping[str, Any], wanted: Mapping[str, str]) -> bool:
    has = (node.get("status") or {}).get("allocatable") or {}
    return all(quantity(has.get(name, 0)) >= quantity(amount) for name, amount in wanted.items())


def _plain(amount: Decimal) -> str:
    return f"{amount.normalize():f}"


def _refused(message: str, hint: str) -> PlaceFinding:
    return PlaceFinding(kind="refused", message=message, hint=hint)
