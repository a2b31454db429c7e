"""Obstacles to runs in a Databricks workspace, asked of it before a cent is spent."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import Any, Final
from urllib.parse import quote

from tonnage.errors import TonnageError
from tonnage.places.bucket.cloud import refused, unasked
from tonnage.places.bucket.volume import Missing
from tonnage.places.contract import PlaceFinding
from tonnage.places.databricks.place import DatabricksPlace

Call = Callable[..., dict[str, Any]]
UNUSABLE: Final = {
    "NotEnabledOnSubscription": "is not enabled in the cloud's subscription",
    "NotAvailableInRegion": "is not available in the workspace's region",
}
MIB_PER_GIB: Final = 1024


def questions_of(call: Call, place: DatabricksPlace, *, name: str, body: Mapping[str, Any]) -> Iterator[PlaceFinding]:
    """The sign-in first: without it nothing else can be asked. `body`: what a submission would send."""
    try:
        call("GET", "/api/2.0/preview/scim/v2/Me")
    except TonnageError as error:
        yield refused(error.message, error.hint or "")
        return
    for fault in body_faults(body):
        yield refused(f"the SDK knows no such part of a run: {fault}", f"places.{name}.patch.SubmitRun")
    yield from _runtime(call, place, name)
    yield from _node_type(call, place, name)
    yield from _policy(call, place)
    for path in (*place.wheels, *place.init_scripts):
        yield from _file(call, path)
    yield from _instance_profile(call, place)
    yield from _secret(call, place)


def body_faults(body: Mapping[str, Any]) -> list[str]:
    """The parts of a request that the SDK's own models do not know: names, and values of its enums."""
    jobs = import_module("databricks.sdk.service.jobs")
    known = set(inspect.signature(jobs.JobsAPI.submit).parameters)
    found = [key for key in body if key not in known]
    for number, task in enumerate(body.get("tasks", ())):
        found += _lost(task, jobs.SubmitTask.from_dict(task).as_dict(), f"tasks[{number}]")
    models = {"queue": jobs.QueueSettings, "run_as": jobs.JobRunAs}
    for key, model in models.items():
        if key in body:
            found += _lost(body[key], model.from_dict(body[key]).as_dict(), key)
    return found


def _lost(given: Any, kept: Any, where: str) -> list[str]:
    """What a model has dropped. Empty lists and maps are kept by none of them."""
    if isinstance(given, Mapping) and isinstance(kept, Mapping):
        return [
            fault
            for key, value in given.items()
            for fault in (
                _lost(value, kept[key], f"{where}.{key}")
                if key in kept
                else [f"{where}.{key}"]
                if value not in ([], {})
                else []
            )
        ]
    if isinstance(given, list) and isinstance(kept, list) and len(given) == len(kept):
        pairs = enumerate(zip(given, kept, strict=True))
        return [fault for at, (one, other) in pairs for fault in _lost(one, other, f"{where}[{at}]")]
    return [] if given == kept else [f"{where} = {given!r}"]


def _runtime(call: Call, place: DatabricksPlace, name: str) -> Iterator[PlaceFinding]:
    try:
        found = [one["key"] for one in call("GET", "/api/2.1/clusters/spark-versions").get("versions") or ()]
    except TonnageError as error:
        yield unasked(f"the runtime {place.runtime}", error)
        return
    if place.runtime not in found:
        kind = "-gpu-ml-" if place.gpus else "-cpu-ml-"
        newest = next((one for one in sorted(found, reverse=True) if kind in one), None)
        hint = (
            "`databricks clusters spark-versions` lists them"
            if newest is None
            else f'places.{name}.runtime = "{newest}"'
        )
        yield refused(f"the workspace has no runtime {place.runtime}", hint)
    elif place.gpus and "-gpu-" not in place.runtime and place.image is None:
        yield refused(f"{place.runtime} has no driver of GPUs", f"places.{name}.runtime: one with -gpu-ml- in its name")


def _node_type(call: Call, place: DatabricksPlace, name: str) -> Iterator[PlaceFinding]:
    try:
        types = call("GET", "/api/2.1/clusters/list-node-types").get("node_types") or ()
    except TonnageError as error:
        yield unasked(f"the node type {place.instance_type}", error)
        return
    found = next((one for one in types if one["node_type_id"] == place.instance_type), None)
    if found is None:
        yield refused(f"the workspace has no node type {place.instance_type}", "`databricks clusters list-node-types`")
        return
    for word in (found.get("node_info") or {}).get("status") or ():
        yield refused(
            f"{place.instance_type} {UNUSABLE.get(word, word)}", "another `instance_type`, or ask the cloud for it"
        )
    if found.get("is_deprecated"):
        yield PlaceFinding(kind="doubtful", message=f"Databricks is about to drop {place.instance_type}",
                           hint="`databricks clusters list-node-types`")  # fmt: skip
    cores, memory_gib, gpus = int(found["num_cores"]), found["memory_mb"] / MIB_PER_GIB, int(found.get("num_gpus") or 0)
    if place.cores > cores or place.memory_gib > memory_gib or place.gpus > gpus:
        yield refused(f"{place.instance_type} has {cores} cores, {memory_gib:g} GiB and {gpus} GPUs",
                       f"places.{name}.cores = {cores}, memory_gib = {memory_gib:g}, gpus = {gpus}")  # fmt: skip
    disks = (found.get("node_instance_type") or {}).get("local_disks")
    if place.cloud == "aws" and disks == 0 and place.ebs_gib is None:
        yield refused(f"{place.instance_type} has no disk of its own", f"places.{name}.ebs_gib = 200")


def _policy(call: Call, place: DatabricksPlace) -> Iterator[PlaceFinding]:
    if place.policy is None:
        return
    try:
        call("GET", "/api/2.0/policies/clusters/get", query={"policy_id": place.policy})
    except Missing:
        yield refused(f"there is no cluster policy {place.policy}", "`databricks cluster-policies list`")
    except TonnageError as error:
        yield unasked(f"the cluster policy {place.policy}", error)


def _file(call: Call, path: str) -> Iterator[PlaceFinding]:
    """A file of a volume or of the workspace; what lies in a bucket only the cluster sees."""
    try:
        if path.startswith("/Volumes/"):
            call("HEAD", f"/api/2.0/fs/files{quote(path)}")
        elif path.startswith("/"):
            call("GET", "/api/2.0/workspace/get-status", query={"path": path.removeprefix("/Workspace")})
        else:
            hint = "the cluster's own rights lead to it"
            yield PlaceFinding(kind="unchecked", message=f"{path} is not looked for", hint=hint)
    except Missing:
        file = path.rpartition("/")[2]
        copy = (
            f"`databricks fs cp {file} dbfs:{path}`"
            if path.startswith("/Volumes/")
            else f"`databricks workspace import {path}`"
        )
        yield refused(f"there is no {path}", copy)
    except TonnageError as error:
        yield unasked(path, error)


def _instance_profile(call: Call, place: DatabricksPlace) -> Iterator[PlaceFinding]:
    if place.instance_profile is None:
        return
    try:
        found = call("GET", "/api/2.0/instance-profiles/list").get("instance_profiles") or ()
    except TonnageError as error:
        yield unasked(f"the instance profile {place.instance_profile}", error)
        return
    if place.instance_profile not in {one["instance_profile_arn"] for one in found}:
        yield refused(f"the workspace does not know {place.instance_profile}, or you may not use it",
                       f"`databricks instance-profiles add {place.instance_profile}`")  # fmt: skip


def _secret(call: Call, place: DatabricksPlace) -> Iterator[PlaceFinding]:
    if place.secret is None:
        return
    try:
        call("GET", "/api/2.0/secrets/list", query={"scope": place.secret})
    except Missing:
        yield refused(f"there is no secret scope {place.secret}", f"`databricks secrets create-scope {place.secret}`")
    except TonnageError as error:
        yield unasked(f"the secret scope {place.secret}", error)
