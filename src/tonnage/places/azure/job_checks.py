"""Obstacles to runs in an Azure ML workspace, asked of it before a cent is spent."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from tonnage.errors import TonnageError
from tonnage.places.azure.checks import Call, group_questions, image_unchecked, right_questions, vault_questions
from tonnage.places.azure.place import AzureMLPlace
from tonnage.places.bucket.azure import AzureError
from tonnage.places.bucket.cloud import refused, unasked
from tonnage.places.contract import PlaceFinding

V_ML: Final = "2025-12-01"  # of Microsoft.MachineLearningServices: that of the recorded models
RIGHTS: Final = tuple(
    f"Microsoft.MachineLearningServices/workspaces/{one}" for one in (
        "read", "computes/read", "environments/versions/read", "environments/versions/write", "jobs/read", "jobs/write",
        "jobs/cancel/action",
    )
)  # fmt: skip
TIERS: Final = {"LowPriority": True, "Dedicated": False}  # of a cluster: whether it is spot


def questions_of(call: Call, place: AzureMLPlace, *, name: str) -> Iterator[PlaceFinding]:
    """Resource group and workspace first: without them nothing else can be asked."""
    against = list(group_questions(call, place)) or list(_workspace(call, place))
    yield from against
    if against:
        return
    yield from right_questions(call, place.group, RIGHTS)
    yield from _cluster(call, place, name)
    yield from _size(call, place, name)
    yield from vault_questions(call, place)
    yield image_unchecked(place.image)


def _workspace(call: Call, place: AzureMLPlace) -> Iterator[PlaceFinding]:
    try:
        found = call("GET", place.workspace_path, version=V_ML)
    except AzureError as error:
        if error.status == 404:
            words = f"--name {place.workspace} --resource-group {place.resource_group} --location {place.region}"
            yield refused(f"there is no workspace {place.workspace}", f"`az ml workspace create {words}`")
        else:
            yield refused(error.message, error.hint or "")
        return
    if str(found.get("location", place.region)).lower() != place.region.lower():
        yield refused(f"the workspace {place.workspace} is in {found['location']}",
                      f'region = "{found["location"]}" in places.toml')  # fmt: skip


def _cluster(call: Call, place: AzureMLPlace, name: str) -> Iterator[PlaceFinding]:
    """The compute cluster: size, tier, how many nodes it may have, and whether the identity is one of its own."""
    if place.compute is None:
        return
    words = f"--workspace-name {place.workspace} --resource-group {place.resource_group}"
    try:
        found = call("GET", f"{place.workspace_path}/computes/{place.compute}", version=V_ML)
    except AzureError as error:
        if error.status == 404:
            tier = "low_priority" if place.spot else "dedicated"
            make = f"--type AmlCompute --size {place.instance_type} --max-instances {place.nodes} --tier {tier}"
            yield refused(f"there is no compute {place.compute}",
                          f"`az ml compute create --name {place.compute} {make} {words}`")  # fmt: skip
        else:
            yield unasked(f"the compute {place.compute}", error)
        return
    compute: dict[str, Any] = found.get("properties") or {}
    if compute.get("computeType") != "AmlCompute":
        yield refused(f"the compute {place.compute} is {compute.get('computeType')}, no cluster",
                      "`az ml compute list --type AmlCompute`")  # fmt: skip
        return
    yield from _nodes(place, compute.get("properties") or {}, name, f"--name {place.compute} {words}")
    known = ((found.get("identity") or {}).get("userAssignedIdentities") or {}).values()
    if place.identity not in {str((one or {}).get("clientId")) for one in known}:
        yield refused(f"the compute {place.compute} has no identity {place.identity}",
                      f"`az ml compute update --identity-type UserAssigned --user-assigned-identities ID "
                      f"--name {place.compute} {words}`")  # fmt: skip


def _nodes(place: AzureMLPlace, has: dict[str, Any], name: str, words: str) -> Iterator[PlaceFinding]:
    size, scale = str(has.get("vmSize") or ""), has.get("scaleSettings") or {}
    if size.lower() != place.instance_type.lower():
        yield refused(f"the nodes of {place.compute} are {size}", f'places.{name}.instance_type = "{size}"')
    spot = TIERS.get(str(has.get("vmPriority")))
    if spot is not None and spot is not place.spot:
        yield refused(
            f"the nodes of {place.compute} are {has['vmPriority']}", f"places.{name}.spot = {str(spot).lower()}"
        )
    most = int(scale.get("maxNodeCount") or 0)
    if most < place.nodes:
        yield refused(f"{place.compute} has {most} nodes at most, a run needs {place.nodes}",
                      f"`az ml compute update --max-instances {place.nodes} {words}`")  # fmt: skip
    least = int(scale.get("minNodeCount") or 0)
    if least:
        yield PlaceFinding(
            kind="doubtful", message=f"{place.compute} keeps {least} nodes, which are billed while nothing runs",
            hint=f"`az ml compute update --min-instances 0 {words}`",
        )  # fmt: skip


def _size(call: Call, place: AzureMLPlace, name: str) -> Iterator[PlaceFinding]:
    """The size: whether Azure ML has it in the region, what it has, and the quota of it."""
    here = f"/subscriptions/{place.subscription}/providers/Microsoft.MachineLearningServices/locations/{place.region}"
    listing = f"`az ml compute list-sizes --location {place.region}`"
    try:
        sizes = call("GET", f"{here}/vmSizes", version=V_ML).get("value") or ()
    except TonnageError as error:
        yield unasked(f"the size {place.instance_type}", error)
        return
    found = next((one for one in sizes if str(one["name"]).lower() == place.instance_type.lower()), None)
    if found is None:
        yield refused(f"Azure ML has no {place.instance_type} in {place.region}", listing)
        return
    cores, memory_gib, gpus = (
        int(found.get("vCPUs") or 0),
        float(found.get("memoryGB") or 0),
        int(found.get("gpus") or 0),
    )
    if place.cores > cores or place.memory_gib > memory_gib or place.gpus > gpus:
        yield refused(f"{place.instance_type} has {cores} cores, {memory_gib:g} GiB and {gpus} GPUs",
                      f"places.{name}.cores = {cores}, memory_gib = {memory_gib:g}, gpus = {gpus}")  # fmt: skip
    if place.spot and found.get("lowPriorityCapable") is False:
        yield refused(f"{place.instance_type} is not sold with low priority", f"places.{name}.spot = false")
    yield from _quota(call, place, here, str(found.get("family") or ""), cores * place.nodes)


def _quota(call: Call, place: AzureMLPlace, here: str, family: str, needed: int) -> Iterator[PlaceFinding]:
    """Azure ML's own, in vCPUs. Nodes that the cluster has already are counted as used: too few free are doubted."""
    listing = f"`az ml compute list-usage --location {place.region}`"
    try:
        usages = call("GET", f"{here}/usages", version=V_ML).get("value") or ()
    except TonnageError as error:
        yield unasked("the quota", error)
        return
    named = {str((one.get("name") or {}).get("value") or "").replace(" ", "").lower(): one for one in usages}
    wanted = next((key for key in named if "lowpriority" in key), "") if place.spot else family.lower()
    if wanted not in named:
        words = "quota of low priority" if place.spot else f"quota {family}"
        yield PlaceFinding(kind="unchecked", message=f"{place.region} lists no {words}", hint=listing)
        return
    limit, used = int(named[wanted]["limit"]), int(named[wanted]["currentValue"])
    hint = "ask for it in the studio (Quota), or at portal.azure.com (Quotas, Machine learning)"
    said = f"Azure ML's quota {named[wanted]['name']['value']} of {place.region} is {limit} vCPUs"
    if limit < needed:
        yield refused(f"{said}: {needed} are needed", hint)
    elif limit - used < needed:
        yield PlaceFinding(kind="doubtful", message=f"{said}, {used} of it used: {needed} are needed", hint=hint)
