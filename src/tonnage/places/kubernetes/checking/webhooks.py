"""What Kueue and JobSet refuse by their webhooks, where they are installed.

Sources: https://kueue.sigs.k8s.io/docs/tasks/run/ (labels, annotations, quotas) and https://jobset.sigs.k8s.io/docs/concepts/.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any, Final

from tonnage.places.kubernetes.checking.formats import is_label_1035, is_subdomain, quantity
from tonnage.places.kubernetes.checking.refusals import Found, ObjectRefusal, duplicate, invalid, many, not_found, part

QUEUE: Final = "kueue.x-k8s.io/queue-name"
MIN_PARALLELISM: Final = "kueue.x-k8s.io/job-min-parallelism"
MAX_EXEC: Final = "kueue.x-k8s.io/max-exec-time-seconds"
PREBUILT: Final = "kueue.x-k8s.io/prebuilt-workload-name"
TOPOLOGY: Final = tuple(
    f"kueue.x-k8s.io/podset-{kind}-topology" for kind in ("required", "preferred", "unconstrained")
)  # fmt: skip
QUEUED_KINDS: Final = ("Job", "JobSet", "RayJob", "RayCluster", "TrainJob")
FAILURE_REASONS: Final = (
    "BackoffLimitExceeded", "DeadlineExceeded", "FailedIndexes", "MaxFailedIndexesExceeded", "PodFailurePolicy",
)  # fmt: skip


def refused(code: int, found: Found) -> Found:
    """The same with the code that a webhook answers with."""
    for one in found:
        yield ObjectRefusal(field=one.field, reason=one.reason, message=one.message, code=code)


def kueue(given: Mapping[str, Any], *, runtimes: Collection[str] | None) -> Found:
    """Of every kind that Kueue knows. `runtimes`: `KIND/name` of the training runtimes there are; None: not known."""
    kind = given.get("kind") or ""
    if kind in QUEUED_KINDS:
        yield from refused(403, _queued(given))
    if kind == "Job":
        yield from refused(403, _job(given))
    if kind == "RayJob":
        yield from refused(403, _ray_job(given))
    if kind == "TrainJob" and runtimes is not None:
        target = part(part(given, "spec"), "runtimeRef")
        name, of = target.get("name") or "", target.get("kind") or "ClusterTrainingRuntime"
        if f"{of}/{name}" not in runtimes:
            yield ObjectRefusal(field="", reason="not found", message=f"runtime '{name}' not found", code=403)
    if kind == "ClusterQueue":
        yield from refused(403, _cluster_queue(given))


def _queued(given: Mapping[str, Any]) -> Found:
    found = part(part(given, "metadata"), "labels")
    for label in (QUEUE, PREBUILT):
        if found.get(label) is not None and not is_subdomain(found[label]):
            yield invalid(f"metadata.labels[{label}]", f"'{found[label]}' is no name of a queue")
    limit = found.get(MAX_EXEC)
    if limit is None:
        return
    at = f"metadata.labels[{MAX_EXEC}]"
    try:
        if int(limit) <= 0:
            yield invalid(at, "should be greater than 0")
    except ValueError:
        yield invalid(at, f"'{limit}' is no whole number of seconds")


def _job(given: Mapping[str, Any]) -> Found:
    head, spec = part(given, "metadata"), part(given, "spec")
    least, parallel = part(head, "annotations").get(MIN_PARALLELISM), spec.get("parallelism") or 1
    at = f"metadata.annotations[{MIN_PARALLELISM}]"
    if least is not None:
        try:
            if not 0 < int(least) < parallel:
                yield invalid(at, f"should be between 0 and {parallel - 1}")
        except ValueError:
            yield invalid(at, f"'{least}' is no whole number")
    yield from topology(part(part(spec, "template"), "metadata"), "spec.template.metadata")


def topology(head: Mapping[str, Any], path: str) -> Found:
    """Where the pods of one set may lie together."""
    found = part(head, "annotations")
    chosen = [name for name in TOPOLOGY if name in found]
    if len(chosen) > 1:
        yield invalid(f"{path}.annotations", f"must not contain more than one topology annotation: {', '.join(chosen)}")


def _ray_job(given: Mapping[str, Any]) -> Found:
    spec = part(given, "spec")
    if QUEUE not in part(part(given, "metadata"), "labels"):
        return
    if not spec.get("shutdownAfterJobFinishes"):
        yield invalid("spec.shutdownAfterJobFinishes", "a kueue managed job should delete the cluster after finishing")
    if spec.get("clusterSelector"):
        yield invalid("spec.clusterSelector", "a kueue managed job should not use an existing cluster")
    cluster = part(spec, "rayClusterSpec")
    if cluster.get("enableInTreeAutoscaling"):
        yield invalid("spec.rayClusterSpec.enableInTreeAutoscaling", "a kueue managed job should not use autoscaling")
    if len(many(cluster, "workerGroupSpecs")) > 7:
        most = ObjectRefusal(
            field="spec.rayClusterSpec.workerGroupSpecs", reason="too many", message="at most 7 groups"
        )
        yield most


def _cluster_queue(given: Mapping[str, Any]) -> Found:
    resources: list[str] = []
    flavors: list[str] = []
    for place, group in enumerate(many(part(given, "spec"), "resourceGroups")):
        at, covered = f"spec.resourceGroups[{place}]", many(group, "coveredResources")
        for number, name in enumerate(covered):
            if name in resources:
                yield duplicate(f"{at}.coveredResources[{number}]", name)
            resources.append(name)
        for number, flavor in enumerate(many(group, "flavors")):
            here = f"{at}.flavors[{number}]"
            if flavor.get("name") in flavors:
                yield duplicate(f"{here}.name", flavor.get("name"))
            flavors.append(flavor.get("name"))
            for index, one in enumerate(many(flavor, "resources")):
                yield from _quota(one, f"{here}.resources[{index}]", covered[index : index + 1])


def _quota(given: Mapping[str, Any], path: str, expected: list[str]) -> Found:
    if expected != [given.get("name")]:
        yield invalid(f"{path}.name", "must match the name in coveredResources")
    for key in ("nominalQuota", "borrowingLimit", "lendingLimit"):
        if given.get(key) is not None and quantity(given[key]) < 0:
            yield invalid(f"{path}.{key}", "must be greater than or equal to 0")
    lent, nominal = given.get("lendingLimit"), given.get("nominalQuota")
    if lent is not None and nominal is not None and quantity(lent) > quantity(nominal):
        yield invalid(f"{path}.lendingLimit", "must be less than or equal to the nominalQuota")


def job_set(given: Mapping[str, Any]) -> Found:
    """Names of the Jobs and pods that come of it, and what policies refer to."""
    name, spec = part(given, "metadata").get("name") or "", part(given, "spec")
    jobs = many(spec, "replicatedJobs")
    yield from _names(name, jobs)
    subdomain = part(spec, "network").get("subdomain")
    if subdomain and not is_label_1035(subdomain):
        yield invalid("spec.network.subdomain", f"'{subdomain}' is no DNS label that begins with a letter")
    yield from _policies(spec, {one.get("name") for one in jobs})
    for place, one in enumerate(jobs):
        yield from _order(one, place, [other.get("name") for other in jobs[:place]])
    yield from _coordinator(part(spec, "coordinator"), jobs)


def _names(name: str, jobs: list[dict[str, Any]]) -> Found:
    for place, one in enumerate(jobs):
        at = f"spec.replicatedJobs[{place}].name"
        replicas, spec = one.get("replicas"), part(part(one, "template"), "spec")
        longest = f"{name}-{one.get('name')}-{max(1 if replicas is None else replicas, 1) - 1}"
        if not is_label_1035(longest):
            yield invalid(at, f"its Job {longest} is no DNS label of 63 characters that begins with a letter")
        if spec.get("completionMode", "Indexed") == "Indexed" and spec.get("completions"):
            pod = f"{longest}-{spec['completions'] - 1}-aaaaa"
            if not is_label_1035(pod):
                yield invalid(at, f"its pod {pod} is no DNS label of 63 characters")


def _policies(spec: Mapping[str, Any], names: set[str | None]) -> Found:
    for rule in many(part(spec, "failurePolicy"), "rules"):
        for target in many(rule, "targetReplicatedJobs"):
            if target not in names:
                yield not_found("", f"the failure policy names the replicated job '{target}', which is not there")
        for reason in many(rule, "onJobFailureReasons"):
            if reason not in FAILURE_REASONS:
                yield invalid("", f"'{reason}' is no reason why a Job fails: {', '.join(FAILURE_REASONS)}")
    for target in many(part(spec, "successPolicy"), "targetReplicatedJobs"):
        if target not in names:
            yield not_found("", f"the success policy names the replicated job '{target}', which is not there")


def _order(given: Mapping[str, Any], place: int, before: list[Any]) -> Found:
    depends = many(given, "dependsOn")
    if depends and place == 0:
        yield invalid("", "dependsOn can't be set for the first replicated job")
    for one in depends:
        if one.get("name") not in before:
            yield invalid("", f"the replicated job '{given.get('name')}' cannot depend on '{one.get('name')}'")


def _coordinator(given: Mapping[str, Any], jobs: list[dict[str, Any]]) -> Found:
    if not given:
        return
    target = next((one for one in jobs if one.get("name") == given.get("replicatedJob")), None)
    if target is None:
        yield not_found("", f"the coordinator's replicated job '{given.get('replicatedJob')}' is not there")
        return
    spec, replicas = part(part(target, "template"), "spec"), target.get("replicas")
    if not 0 <= (given.get("jobIndex") or 0) < (1 if replicas is None else replicas):
        yield invalid("", f"the coordinator's job index {given.get('jobIndex')} is not there")
    elif spec.get("completionMode", "Indexed") != "Indexed":
        yield invalid("", "the coordinator's Job must be Indexed")
    elif not 0 <= (given.get("podIndex") or 0) < (spec.get("completions") or 1):
        yield invalid("", f"the coordinator's pod index {given.get('podIndex')} is not there")


def job_set_update(old: Mapping[str, Any], new: Mapping[str, Any]) -> Found:
    """The webhook keeps the Jobs of a JobSet as they are; while it is suspended their pods may go elsewhere."""
    before, after = part(old, "spec"), part(new, "spec")
    free = bool(before.get("suspend"))
    was, now = many(before, "replicatedJobs"), many(after, "replicatedJobs")
    if json.dumps([_kept(one, free) for one in was]) != json.dumps([_kept(one, free) for one in now]):
        yield invalid("spec.replicatedJobs", "field is immutable")


def _kept(given: Mapping[str, Any], free: bool) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(json.dumps(given, sort_keys=True))
    if free:
        template = made.get("template", {}).get("spec", {}).get("template", {})
        template.pop("metadata", None)
        for key in ("nodeSelector", "tolerations", "affinity", "schedulingGates"):
            template.get("spec", {}).pop(key, None)
    return made
