"""Jobs: the specification, its pod failure policy, its success policy, and what an update may change.

Source of the rules: https://kubernetes.io/docs/concepts/workloads/controllers/job/ and
k8s.io/kubernetes/pkg/apis/batch/validation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tonnage.places.kubernetes.checking.formats import SUFFIX_LENGTH, is_label, is_label_value, is_subdomain, matches
from tonnage.places.kubernetes.checking.formats import selector as check_selector
from tonnage.places.kubernetes.checking.job_policies import failure_policy, success_policy
from tonnage.places.kubernetes.checking.pods import template as check_template
from tonnage.places.kubernetes.checking.refusals import (
    Found,
    ObjectRefusal,
    at_least,
    invalid,
    one_of,
    part,
    required,
)

MODES: Final = ("NonIndexed", "Indexed")
PARALLELISM_LIMIT: Final = 100_000  # Indexed
BACKOFF_LIMIT: Final = 6  # where the Job says none
PAIRS: Final = frozenset({"job-name", "batch.kubernetes.io/job-name"})  # labels that name the Job on its pods
OWN: Final = PAIRS | {"controller-uid", "batch.kubernetes.io/controller-uid"}


def job(given: Mapping[str, Any]) -> Found:
    """A Job as it is created."""
    name, spec = name_of(given), part(given, "spec")
    yield from job_spec(spec, "spec", name=name)
    if spec.get("completionMode") == "Indexed" and spec.get("completions"):
        longest = f"{name}-{spec['completions'] - 1}"
        if not is_label(longest):
            yield invalid("metadata.name", f"its pods cannot be named: {longest} is no DNS label of 63 characters")


def name_of(given: Mapping[str, Any]) -> str:
    """The name of an object; of one whose name the server makes, one as long."""
    head = part(given, "metadata")
    return head.get("name") or (f"{head['generateName']}{'x' * SUFFIX_LENGTH}" if head.get("generateName") else "")


def job_spec(given: Mapping[str, Any], path: str, *, name: str) -> Found:
    """Without what depends on the Job's name as a hostname."""
    yield from _counts(given, path)
    yield from _indexed(given, path)
    yield from one_of(f"{path}.completionMode", given.get("completionMode"), MODES)
    yield from _selector(given, path, name)
    yield from _template(given, path)
    policy = given.get("podFailurePolicy")
    if policy is not None:
        yield from failure_policy(policy, given, f"{path}.podFailurePolicy")
    yield from success_policy(given, path)
    replaced = ("Failed",) if policy is not None else ("Failed", "TerminatingOrFailed")
    yield from one_of(f"{path}.podReplacementPolicy", given.get("podReplacementPolicy"), replaced)
    yield from _managed_by(given.get("managedBy"), f"{path}.managedBy")


def _counts(given: Mapping[str, Any], path: str) -> Found:
    for key in ("parallelism", "completions", "activeDeadlineSeconds", "backoffLimit", "backoffLimitPerIndex",
                "maxFailedIndexes", "ttlSecondsAfterFinished"):  # fmt: skip
        yield from at_least(f"{path}.{key}", given.get(key))


def _indexed(given: Mapping[str, Any], path: str) -> Found:
    indexed, completions = given.get("completionMode") == "Indexed", given.get("completions")
    each, most = given.get("backoffLimitPerIndex"), given.get("maxFailedIndexes")
    if indexed:
        if completions is None:
            yield required(f"{path}.completions", "when completion mode is Indexed")
        parallel = given.get("parallelism")
        if parallel is not None and parallel > PARALLELISM_LIMIT:
            yield invalid(f"{path}.parallelism", f"must be less than or equal to {PARALLELISM_LIMIT} when Indexed")
        if most is not None and completions is not None and most > completions:
            yield invalid(f"{path}.maxFailedIndexes", "must be less than or equal to completions")
        if completions is not None and completions > PARALLELISM_LIMIT and each is not None:
            yield from _very_many(given, path)
    else:
        if each is not None:
            yield invalid(f"{path}.backoffLimitPerIndex", "requires indexed completion mode")
        if most is not None:
            yield invalid(f"{path}.maxFailedIndexes", "requires indexed completion mode")
    if most is not None and each is None:
        yield required(f"{path}.backoffLimitPerIndex", "when maxFailedIndexes is specified")


def _very_many(given: Mapping[str, Any], path: str) -> Found:
    if given.get("maxFailedIndexes") is None:
        yield required(f"{path}.maxFailedIndexes", f"must be specified when completions is above {PARALLELISM_LIMIT}")
    elif given["maxFailedIndexes"] > 10_000:
        yield invalid(f"{path}.maxFailedIndexes", "must be less than or equal to 10000 with so many completions")
    if (given.get("parallelism") or 1) > 10_000:
        yield invalid(f"{path}.parallelism", "must be less than or equal to 10000 with so many completions")


def _selector(given: Mapping[str, Any], path: str, name: str) -> Found:
    """The server makes the selector and the labels it takes, unless `manualSelector` says otherwise."""
    chosen, found = given.get("selector"), part(part(given, "template"), "metadata").get("labels") or {}
    if given.get("manualSelector"):
        if chosen is None:
            yield required(f"{path}.selector")
        else:
            yield from check_selector(f"{path}.selector", chosen)
            if not matches(chosen, found):
                yield invalid(f"{path}.template.metadata.labels", "`selector` does not match template `labels`")
        return
    if chosen is not None:
        yield invalid(f"{path}.selector", "`selector` is made by the server: leave it out")
        if not matches(chosen, {**found, **dict.fromkeys(PAIRS, name)}):
            yield invalid(f"{path}.template.metadata.labels", "`selector` does not match template `labels`")
    for label in sorted(PAIRS & set(found)):
        if found[label] != name:
            yield invalid(f"{path}.template.metadata.labels[{label}]", f"must be '{name}'")
    for label in sorted((OWN - PAIRS) & set(found)):
        yield invalid(f"{path}.template.metadata.labels[{label}]", "is made by the server")
    if name and not is_label_value(name):
        yield invalid(f"{path}.template.labels", f"'{name}' becomes a label of the pods: at most 63 characters")


def _template(given: Mapping[str, Any], path: str) -> Found:
    pods = given.get("template")
    if pods is None:
        yield required(f"{path}.template.spec.containers")
        pods = {}
    else:
        yield from check_template(pods, f"{path}.template")
    at, restart = f"{path}.template.spec.restartPolicy", part(pods, "spec").get("restartPolicy")
    if restart in (None, "", "Always"):
        yield required(at, "OnFailure or Never: a Job's pods end")
    else:
        yield from one_of(at, restart, ("OnFailure", "Never"))
        if given.get("podFailurePolicy") is not None and restart == "OnFailure":
            yield invalid(at, "only Never is supported when podFailurePolicy is specified")


def _managed_by(given: str | None, field: str) -> Found:
    if given is None:
        return
    domain, slash, rest = given.partition("/")
    if not (slash and rest and is_subdomain(domain)):
        yield invalid(field, f"'{given}' must be a domain-prefixed path, such as acme.io/foo")
    elif len(given) > 63:
        yield ObjectRefusal(field=field, reason="too long", message="at most 63 characters")


FIXED: Final = ("selector", "completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy", "successPolicy")
# of the template, as long as the Job is suspended and has not started: `scheduling directives`
DIRECTIVES: Final = ("nodeSelector", "tolerations", "affinity", "schedulingGates")


def stored_job(given: Mapping[str, Any], before: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """A Job with what the server fills in when it is created; `before`: what it filled in then stays at an update."""
    spec = dict(part(before or given, "spec"))
    replaced = "TerminatingOrFailed" if spec.get("podFailurePolicy") is None else "Failed"
    filled = {"completionMode": "NonIndexed", "podReplacementPolicy": replaced, "parallelism": 1}
    own = {key: spec.get(key, value) for key, value in filled.items()} if before is None else {
        key: value for key, value in filled.items() if key not in spec}  # fmt: skip
    return {**given, "spec": {**own, **part(given, "spec")}}


def job_update(old: Mapping[str, Any], new: Mapping[str, Any]) -> Found:
    """What may not change once a Job is there. Both as the server stores them (`stored_job`)."""
    before, after = part(old, "spec"), part(new, "spec")
    for key in FIXED:
        if before.get(key) != after.get(key):
            yield invalid(f"spec.{key}", "field is immutable")
    yield from _completions(before, after)
    yield from _template_update(before, after)


def _completions(before: Mapping[str, Any], after: Mapping[str, Any]) -> Found:
    """Only an Indexed Job may change them, together with its parallelism."""
    if before.get("completions") == after.get("completions"):
        return
    if after.get("completionMode") == "Indexed" and after.get("completions") == after.get("parallelism"):
        return
    yield invalid("spec.completions", "field is immutable, unless an Indexed Job changes parallelism with it")


def _template_update(before: Mapping[str, Any], after: Mapping[str, Any]) -> Found:
    was, now = part(before, "template"), part(after, "template")
    free = bool(before.get("suspend"))
    if free:
        was, now = _without(was), _without(now)
    if was == now:
        return
    if free:
        yield invalid("spec.template.spec", "field is immutable, except where pods may go and what they get")
    else:
        yield invalid("spec.template", "field is immutable")


def _without(given: Mapping[str, Any]) -> dict[str, Any]:
    spec = {key: value for key, value in part(given, "spec").items() if key not in DIRECTIVES}
    for key in ("containers", "initContainers"):
        if key in spec:
            spec[key] = [{name: value for name, value in one.items() if name != "resources"} for one in spec[key]]
    return {"spec": spec}
