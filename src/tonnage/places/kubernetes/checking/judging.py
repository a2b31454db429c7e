"""Whether an API server would take an object, and if not, which fields it would name.

The order is the server's: the type, the namespace, strict decoding, mutating webhooks, the rules of the kind, webhooks
that check, admission. A stage that refuses ends the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from tonnage.places.kubernetes.checking import jobs, network, others, pods, services
from tonnage.places.kubernetes.checking.custom import against_rules, against_schema, can_evaluate, with_defaults
from tonnage.places.kubernetes.checking.decoding import ObjectKind, find_kind, object_meta, undecodable, unknown_fields
from tonnage.places.kubernetes.checking.formats import is_label, is_subdomain, metadata, quantity
from tonnage.places.kubernetes.checking.refusals import Found, ObjectRefusal, forbidden, invalid, part
from tonnage.places.kubernetes.checking.webhooks import job_set, job_set_update, kueue
from tonnage.values import dataclass

RULES: Final[dict[str, Callable[[Mapping[str, Any]], Found]]] = {
    "Job": jobs.job, "Pod": pods.pod, "Deployment": services.deployment, "StatefulSet": services.stateful_set,
    "Service": network.service, "HorizontalPodAutoscaler": services.autoscaler,
    "PodDisruptionBudget": services.disruption_budget, "NetworkPolicy": network.network_policy,
    "Ingress": network.ingress, "Role": others.role, "RoleBinding": others.role_binding,
    "ResourceQuota": others.resource_quota, "LimitRange": others.limit_range, "Secret": others.secret,
    "ConfigMap": others.config_map, "PersistentVolumeClaim": others.volume_claim,
    "PriorityClass": others.priority_class, "ResourceClaim": others.resource_claim,
    "ResourceClaimTemplate": others.resource_claim_template, "DeviceClass": others.device_class,
    "ValidatingAdmissionPolicy": others.admission_policy,
}  # fmt: skip
NAMES: Final[dict[str, Callable[[str], bool]]] = {
    "Service": is_label, "Namespace": is_label,
    "Role": lambda name: name not in {".", ".."} and "/" not in name and "%" not in name,
    "RoleBinding": lambda name: name not in {".", ".."} and "/" not in name and "%" not in name,
}  # fmt: skip
MUTATED: Final = frozenset(
    {"Job", "JobSet", "RayJob", "RayCluster", "TrainJob", "ClusterQueue", "ResourceFlavor", "Workload"}
)
RULE_CODE: Final = 422
ACCOUNTS: Final = frozenset({"default"})
CLASSES: Final = frozenset({"system-cluster-critical", "system-node-critical"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """What is known of the cluster. None: not known, and then nothing is refused for its sake."""

    namespaces: frozenset[str] | None = None
    priority_classes: frozenset[str] | None = None
    runtime_classes: frozenset[str] | None = None
    service_accounts: frozenset[str] | None = None
    training_runtimes: frozenset[str] | None = None  # KIND/name
    kueue: bool = True
    jobset: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectVerdict:
    """What a server would say. `unchecked`: what could not be found out here."""

    refusals: tuple[ObjectRefusal, ...]
    unchecked: tuple[str, ...] = ()

    @property
    def accepted(self) -> bool:
        return not self.refusals


def judge(given: Mapping[str, Any], server: Server | None = None, *, namespace: str = "default") -> ObjectVerdict:
    """The verdict on an object that is created in `namespace`."""
    known = server or Server()
    kind = find_kind(str(given.get("apiVersion")), str(given.get("kind")))
    if kind is None:
        words = f"no type {given.get('apiVersion')} {given.get('kind')} is known here"
        return ObjectVerdict(refusals=(ObjectRefusal(field="", reason="no such resource", message=words, code=404),))
    for stage in _stages(given, kind, known, namespace):
        found = tuple(stage)
        if found:
            return ObjectVerdict(refusals=found)
    return ObjectVerdict(refusals=(), unchecked=_unchecked(kind))


def judge_update(
    old: Mapping[str, Any], new: Mapping[str, Any], server: Server | None = None, *, same_manager: bool = True
) -> ObjectVerdict:
    """The verdict on a server-side apply over an object that is there.

    `same_manager`: by the one who applied it before; another one's changes are conflicts.
    """
    known, namespace = server or Server(), part(old, "metadata").get("namespace") or "default"
    if not same_manager and (found := tuple(_conflicts(old, new, ""))):
        return ObjectVerdict(refusals=found)
    kind = find_kind(str(new.get("apiVersion")), str(new.get("kind")))
    if kind is None:
        return judge(new, server, namespace=namespace)
    before, after = _stored(old, None, kind), _stored(new, old, kind)
    fresh = judge(after, known, namespace=namespace)
    if any(one.code != RULE_CODE for one in fresh.refusals):
        return fresh
    found = _changes(before, after, kind, known, fresh.accepted)
    return ObjectVerdict(refusals=(*fresh.refusals, *found), unchecked=fresh.unchecked)


def _stored(given: Mapping[str, Any], before: Mapping[str, Any] | None, kind: ObjectKind) -> Mapping[str, Any]:
    if kind.custom:
        filled: Mapping[str, Any] = with_defaults(given, kind.schema)
        return filled
    return jobs.stored_job(given, before) if kind.name == "Job" else given


def _changes(
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    kind: ObjectKind,
    known: Server,
    sound: bool,
) -> tuple[ObjectRefusal, ...]:
    if not kind.custom:
        return tuple(UPDATES.get(kind.name, _no_rules)(before, after))
    if not sound:
        return ()
    found = tuple(against_rules(after, kind.schema, old=before)) if can_evaluate() else ()
    if not found and kind.name == "JobSet" and known.jobset:
        return tuple(job_set_update(before, after))
    return found


def _conflicts(old: Any, new: Any, path: str) -> Found:
    """Fields that both state, with other values."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for name in old.keys() & new.keys():
            yield from _conflicts(old[name], new[name], f"{path}.{name}")
    elif old != new:
        yield ObjectRefusal(field=path, reason="conflict", message="another manager has set it", code=409)


def _stages(given: Mapping[str, Any], kind: ObjectKind, known: Server, namespace: str) -> Iterator[Found]:
    yield _namespace(given, kind, known, namespace)
    types = undecodable(part(given, "metadata"), object_meta(), "metadata")
    mutating = known.kueue and kind.name in MUTATED
    if not kind.custom:
        yield undecodable(given, kind.schema)
        yield unknown_fields(given, kind.schema)
        yield _rules(given, kind)
    else:
        yield types
        yield _custom_unknown(given, kind)
        if mutating:
            yield undecodable(given, kind.schema)
        filled = with_defaults(given, kind.schema)
        yield _schema(filled, kind)
        if known.jobset and kind.name == "JobSet":
            yield job_set(filled)
        given = filled
    if known.kueue:
        yield kueue(given, runtimes=known.training_runtimes)
    if kind.name == "Pod":
        yield _admitted(part(given, "spec"), known)


def _namespace(given: Mapping[str, Any], kind: ObjectKind, known: Server, namespace: str) -> Found:
    own = part(given, "metadata").get("namespace")
    if not kind.namespaced:
        return
    if own and own != namespace:
        yield ObjectRefusal(field="metadata.namespace", reason="invalid", code=400,
                      message=f"'{own}' is not the namespace of the request, '{namespace}'")  # fmt: skip
    elif known.namespaces is not None and namespace not in known.namespaces:
        yield ObjectRefusal(field="", reason="not found", message=f"there is no namespace '{namespace}'", code=404)


def _custom_unknown(given: Mapping[str, Any], kind: ObjectKind) -> Found:
    rest = {key: value for key, value in given.items() if key not in {"apiVersion", "kind", "metadata"}}
    yield from unknown_fields(part(given, "metadata"), object_meta(), "metadata")
    yield from unknown_fields(rest, kind.schema)


def _rules(given: Mapping[str, Any], kind: ObjectKind) -> Found:
    yield from metadata(part(given, "metadata"), named=NAMES.get(kind.name, is_subdomain))
    if kind.name in RULES:
        yield from RULES[kind.name](given)


def _schema(given: Mapping[str, Any], kind: ObjectKind) -> Found:
    """Schema first; the rules in CEL only of an object that has its shape, as the server does."""
    named = is_subdomain
    yield from metadata(part(given, "metadata"), named=named)
    wrong = tuple(against_schema(given, kind.schema))
    yield from wrong
    if not wrong and can_evaluate():
        yield from against_rules(given, kind.schema)


def _unchecked(kind: ObjectKind) -> tuple[str, ...]:
    if kind.custom and not can_evaluate():
        return (f"the rules of {kind.name} in CEL: pip install 'tonnage[kubernetes]' checks them",)
    return ()


def _admitted(spec: Mapping[str, Any], known: Server) -> Found:
    """Admission looks up what a pod refers to; a Job with the same names is taken and never gets a pod."""
    checks = (
        ("priorityClassName", known.priority_classes, CLASSES, "PriorityClass"),
        ("runtimeClassName", known.runtime_classes, frozenset[str](), "RuntimeClass"),
        ("serviceAccountName", known.service_accounts, ACCOUNTS, "service account"),
    )
    for key, there, always, words in checks:
        name = spec.get(key)
        if name and there is not None and name not in there | always:
            yield ObjectRefusal(
                field=f"spec.{key}", reason="not found", message=f"there is no {words} '{name}'", code=403
            )
    if spec.get("priority") and not spec.get("priorityClassName"):
        words = f"{spec['priority']} is not 0, which the server computes: name a priorityClassName"
        yield ObjectRefusal(field="spec.priority", reason="forbidden", message=words, code=403)


def _no_rules(old: Mapping[str, Any], new: Mapping[str, Any]) -> Found:  # noqa: ARG001
    yield from ()


def _fixed(*paths: str) -> Callable[[Mapping[str, Any], Mapping[str, Any]], Found]:
    """A kind whose fields at these paths never change."""

    def check(old: Mapping[str, Any], new: Mapping[str, Any]) -> Found:
        for path in paths:
            before, after = _at(old, path), _at(new, path)
            if before != after:
                yield invalid(path, "field is immutable")

    return check


def _at(given: Any, path: str) -> Any:
    for name in path.split("."):
        given = given.get(name) if isinstance(given, Mapping) else None
    return given


def _kept_values(old: Mapping[str, Any], new: Mapping[str, Any]) -> Found:
    """Secrets and ConfigMaps that say so."""
    yield from _fixed("type")(old, new) if old.get("kind") == "Secret" else ()
    if not old.get("immutable"):
        return
    if new.get("immutable") is False:
        yield forbidden("immutable", "field is immutable when `immutable` is set")
    for key in ("data", "stringData", "binaryData"):
        if old.get(key) != new.get(key):
            yield forbidden("data" if key == "stringData" else key, "field is immutable when `immutable` is set")


def _claim_update(old: Mapping[str, Any], new: Mapping[str, Any]) -> Found:
    """A claim may grow once it is bound."""
    before, after = dict(part(old, "spec")), dict(part(new, "spec"))
    if part(old, "status").get("phase") == "Bound":
        sizes = [part(part(spec, "resources"), "requests").get("storage") for spec in (before, after)]
        for spec in (before, after):
            spec.pop("resources", None)
            spec.pop("volumeAttributesClassName", None)
        if quantity(sizes[1]) < quantity(sizes[0]):
            yield forbidden("spec.resources.requests.storage", "field can not be less than status.capacity")
    if before != after:
        yield forbidden("spec", "is immutable after creation, except that a bound claim may grow")


def _stateful_update(old: Mapping[str, Any], new: Mapping[str, Any]) -> Found:
    before, after = dict(part(old, "spec")), dict(part(new, "spec"))
    for key in STATEFUL:
        before.pop(key, None)
        after.pop(key, None)
    if before != after:
        yield forbidden("spec", f"only {', '.join(STATEFUL)} may change")


def _service_update(old: Mapping[str, Any], new: Mapping[str, Any]) -> Found:
    """Its address is given once; where none was asked for the server gave one."""
    before, after = part(old, "spec"), part(new, "spec")
    asked = after.get("clusterIP")
    if before.get("type") != "ExternalName" and asked is not None and asked != before.get("clusterIP"):
        yield invalid("spec.clusterIPs[0]", "may not change once set")


STATEFUL: Final = ("replicas", "ordinals", "template", "updateStrategy", "revisionHistoryLimit",
                   "persistentVolumeClaimRetentionPolicy", "minReadySeconds")  # fmt: skip
UPDATES: Final[dict[str, Callable[[Mapping[str, Any], Mapping[str, Any]], Found]]] = {
    "Job": jobs.job_update, "Deployment": _fixed("spec.selector"), "Secret": _kept_values, "ConfigMap": _kept_values,
    "ResourceClaim": _fixed("spec"), "PersistentVolumeClaim": _claim_update, "RoleBinding": _fixed("roleRef"),
    "PriorityClass": _fixed("value", "preemptionPolicy"), "StatefulSet": _stateful_update, "Service": _service_update,
}  # fmt: skip
