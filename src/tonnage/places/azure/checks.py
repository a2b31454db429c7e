"""Obstacles to runs on Azure's virtual machines, asked of the subscription before a cent is spent."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from tonnage.errors import TonnageError
from tonnage.places.azure.place import AzurePlace, AzureTerms
from tonnage.places.bucket.azure import AzureError
from tonnage.places.bucket.cloud import refused, unasked
from tonnage.places.bucket.secrets import azure_secret, secret_of
from tonnage.places.contract import PlaceFinding

Call = Callable[..., dict[str, Any]]
RIGHTS: Final = tuple(
    f"Microsoft.{one}" for one in (
        "Compute/virtualMachines/read", "Compute/virtualMachines/write", "Compute/virtualMachines/delete",
        "Compute/virtualMachines/retrieveBootDiagnosticsData/action", "Network/virtualNetworks/subnets/join/action",
        "ManagedIdentity/userAssignedIdentities/assign/action",
    )
)  # fmt: skip
SET_RIGHTS: Final = tuple(f"Microsoft.Compute/virtualMachineScaleSets/{one}" for one in ("read", "write", "delete"))
SPOT_QUOTA: Final = "lowPriorityCores"
V_RESOURCES: Final = "2021-04-01"  # versions of the APIs that are asked
V_SKUS: Final = "2021-07-01"
V_NETWORK: Final = "2023-11-01"
V_IDENTITY: Final = "2023-01-31"
V_RIGHTS: Final = "2022-04-01"


def questions_of(call: Call, place: AzurePlace, *, name: str) -> Iterator[PlaceFinding]:
    """The resource group first: without it nothing else can be asked."""
    against = list(group_questions(call, place))
    yield from against
    if against:
        return
    yield from right_questions(call, place.group, rights_of(place))
    yield from _size(call, place, name)
    yield from _nearness(call, place, name)
    yield from _boot_image(call, place)
    yield from _subnet(call, place)
    yield from _identity(call, place)
    yield from vault_questions(call, place)
    yield image_unchecked(place.image)


def rights_of(place: AzurePlace) -> tuple[str, ...]:
    """What whoever starts runs there has to be allowed: scale sets are those of several machines."""
    return RIGHTS if place.nodes == 1 else (*RIGHTS, *SET_RIGHTS)


def image_unchecked(image: str) -> PlaceFinding:
    """Registries are not asked: only the machine's identity may."""
    host = image.partition("/")[0]
    return PlaceFinding(
        kind="unchecked", message=f"the image of {host} is not looked for", hint=f"`skopeo inspect docker://{image}`"
    )


def group_questions(call: Call, place: AzureTerms) -> Iterator[PlaceFinding]:
    """Whether subscription and resource group are there, and the sign-in is taken."""
    try:
        call("GET", place.group, version=V_RESOURCES)
    except AzureError as error:
        if error.reason == "SubscriptionNotFound":
            yield refused(f"there is no subscription {place.subscription}", "`az account list`")
        elif error.status == 404:
            words = f"--name {place.resource_group} --location {place.region}"
            yield refused(f"there is no resource group {place.resource_group}", f"`az group create {words}`")
        else:
            yield refused(error.message, error.hint or "")
    except TonnageError as error:
        yield refused(error.message, error.hint or "")


def right_questions(call: Call, group: str, wanted: Sequence[str]) -> Iterator[PlaceFinding]:
    """Whether the caller has these rights in a resource group."""
    try:
        permissions = call("GET", f"{group}/providers/Microsoft.Authorization/permissions", version=V_RIGHTS)
    except TonnageError as error:
        yield unasked("your rights", error)
        return
    lacking = [right for right in wanted if not any(grants(one, right) for one in permissions.get("value") or ())]
    if lacking:
        words = f'--assignee YOU --role Contributor --scope "{group}"'
        yield refused(f"you may not: {', '.join(lacking)}", f"`az role assignment create {words}`")


def grants(role: dict[str, Any], right: str) -> bool:
    """Whether a role's actions have a right, and its exceptions do not.

    >>> grants({"actions": ["Microsoft.Compute/*"], "notActions": ["*/delete"]}, "Microsoft.Compute/disks/write")
    True
    """

    def has(patterns: list[str]) -> bool:
        words = (".*".join(map(re.escape, one.split("*"))) for one in patterns)
        return any(re.fullmatch(one, right, re.IGNORECASE) for one in words)

    return has(role.get("actions") or []) and not has(role.get("notActions") or [])


def _size(call: Call, place: AzurePlace, name: str) -> Iterator[PlaceFinding]:
    """The size: whether the region and its zones sell it to this subscription, what it has, and the quota of it."""
    compute = f"/subscriptions/{place.subscription}/providers/Microsoft.Compute"
    try:
        skus = call("GET", f"{compute}/skus", version=V_SKUS, params={"$filter": f"location eq '{place.region}'"})
    except TonnageError as error:
        yield unasked(f"the size {place.instance_type}", error)
        return
    found = next((one for one in skus.get("value") or () if one.get("resourceType") == "virtualMachines"
                  and one["name"] == place.instance_type), None)  # fmt: skip
    listing = f"`az vm list-skus --location {place.region} --size {place.instance_type} --all`"
    if found is None:
        yield refused(f"{place.region} has no {place.instance_type}", listing)
        return
    yield from _restrictions(place, found, listing)
    has = {str(one["name"]): str(one["value"]) for one in found.get("capabilities") or ()}
    cores, memory_gib, gpus = int(has.get("vCPUs", 0)), float(has.get("MemoryGB", 0)), int(has.get("GPUs", 0))
    if place.cores > cores or place.memory_gib > memory_gib or place.gpus > gpus:
        yield refused(f"{place.instance_type} has {cores} cores, {memory_gib:g} GiB and {gpus} GPUs",
                       f"places.{name}.cores = {cores}, memory_gib = {memory_gib:g}, gpus = {gpus}")  # fmt: skip
    if place.spot and has.get("LowPriorityCapable") == "False":
        yield refused(f"{place.instance_type} is not sold as spot", f"places.{name}.spot = false")
    if place.nodes > 1 and has.get("RdmaEnabled") == "True":
        yield PlaceFinding(
            kind="doubtful",
            message="machines of a flexible scale set are not joined by InfiniBand, which "
            f"{place.instance_type} has: they speak over Ethernet (Azure, «Orchestration modes»)",
            hint='kind = "azureml" or "kubernetes" with cluster = "aks": clusters of uniform scale sets have it',
        )
    if place.capacity_reservation is None:
        yield from _quota(call, place, compute, str(found.get("family") or ""), cores * place.nodes)


def _restrictions(place: AzurePlace, found: dict[str, Any], listing: str) -> Iterator[PlaceFinding]:
    zones = {str(zone) for one in found.get("locationInfo") or () for zone in one.get("zones") or ()}
    for one in found.get("restrictions") or ():
        if one.get("type") == "Location":
            yield refused(f"{place.region} does not sell {place.instance_type} to this subscription: "
                          f"{one.get('reasonCode')}", listing)  # fmt: skip
        elif one.get("type") == "Zone":
            zones -= {str(zone) for zone in (one.get("restrictionInfo") or {}).get("zones") or ()}
    outside = [zone for zone in place.zones if zone not in zones]
    if outside:
        has = f"its zones are {', '.join(sorted(zones))}" if zones else "it is in no zone there"
        yield refused(f"zone {', '.join(outside)} of {place.region} has no {place.instance_type}: {has}", listing)


def _quota(call: Call, place: AzurePlace, compute: str, family: str, cores: int) -> Iterator[PlaceFinding]:
    wanted = SPOT_QUOTA if place.spot else family
    try:
        usages = call("GET", f"{compute}/locations/{place.region}/usages").get("value") or ()
    except TonnageError as error:
        yield unasked("the quota", error)
        return
    found = next((one for one in usages if str(one["name"]["value"]).lower() == wanted.lower()), None)
    if found is None:
        yield PlaceFinding(kind="unchecked", message=f"{place.region} lists no quota {wanted}",
                           hint=f"`az vm list-usage --location {place.region}`")  # fmt: skip
    elif found["limit"] - found["currentValue"] < cores:
        hint = "ask for it at portal.azure.com (Quotas, Compute), or take another region"
        yield refused(f"the quota {wanted} of {place.region} is {found['limit']} vCPUs, {found['currentValue']} of it "
                      f"used: {cores} are needed", hint)  # fmt: skip


def _nearness(call: Call, place: AzurePlace, name: str) -> Iterator[PlaceFinding]:
    """Whether machines of a run are near each other."""
    if place.nodes == 1:
        return
    path, group = place.proximity_placement_group, f"tonnage-{name}"
    made = f"`az ppg create --name {group} --resource-group {place.resource_group} --location {place.region}`"
    if path is None:
        yield PlaceFinding(kind="doubtful", message="the machines of a run may be far from each other",
                           hint=f"{made}, and its id as places.{name}.proximity_placement_group")  # fmt: skip
        return
    try:
        call("GET", path)
    except AzureError as error:
        if error.status == 404:
            yield refused(f"there is no proximity placement group {path.rpartition('/')[2]}", made)
        else:
            yield unasked(f"the proximity placement group {path.rpartition('/')[2]}", error)


def _boot_image(call: Call, place: AzurePlace) -> Iterator[PlaceFinding]:
    path = place.boot_image
    if not path.startswith("/"):
        publisher, offer, sku, version = path.split(":")
        path = (f"/subscriptions/{place.subscription}/providers/Microsoft.Compute/locations/{place.region}/publishers/"
                f"{publisher}/artifacttypes/vmimage/offers/{offer}/skus/{sku}/versions")  # fmt: skip
        path += "" if version == "latest" else f"/{version}"
    elif not path.startswith("/subscriptions/"):
        yield PlaceFinding(
            kind="unchecked", message=f"the image {place.boot_image}", hint="`az sig image-version show-shared`"
        )
        return
    try:
        call("GET", path)
    except AzureError as error:
        if error.status == 404:
            hint = f"`az vm image list --location {place.region} --publisher PUBLISHER --all`"
            yield refused(f"there is no image {place.boot_image} in {place.region}", hint)
        else:
            yield unasked(f"the image {place.boot_image}", error)


def _subnet(call: Call, place: AzurePlace) -> Iterator[PlaceFinding]:
    """Whether the subnet is there, lets nobody in, and leads to the bucket and the registry."""
    try:
        found = call("GET", place.subnet_id, version=V_NETWORK).get("properties") or {}
    except AzureError as error:
        if error.status == 404:
            yield refused(f"there is no subnet {place.subnet}", "`az network vnet subnet list`")
        else:
            yield unasked(f"the subnet {place.subnet}", error)
        return
    if place.public_address and not found.get("networkSecurityGroup"):
        yield PlaceFinding(kind="doubtful", message=f"the subnet {place.subnet} has no network security group",
                           hint="`az network vnet subnet update --network-security-group`")  # fmt: skip
    if place.public_address or found.get("natGateway") or found.get("routeTable"):
        return
    if found.get("defaultOutboundAccess") is False or place.nodes > 1:  # a flexible scale set has no default way out
        hint = "`az network vnet subnet update --nat-gateway`, or public_address = true"
        yield refused(f"the subnet {place.subnet} has no way out: no NAT gateway, no route", hint)
    else:
        hint = "`az network vnet subnet update --nat-gateway`"
        yield PlaceFinding(kind="doubtful", hint=hint,
                           message=f"the subnet {place.subnet} leads out by Azure's default alone")  # fmt: skip


def _identity(call: Call, place: AzurePlace) -> Iterator[PlaceFinding]:
    try:
        call("GET", place.identity, version=V_IDENTITY)
    except AzureError as error:
        short = place.identity.rpartition("/")[2]
        if error.status == 404:
            words = f"--name {short} --resource-group {place.resource_group}"
            yield refused(f"there is no identity {short}", f"`az identity create {words}`")
        else:
            yield unasked(f"the identity {short}", error)


def vault_questions(call: Call, place: AzureTerms) -> Iterator[PlaceFinding]:
    """The vault alone: to ask for the secret is to read it."""
    asked = secret_of(place.secret)
    if asked is None:
        return
    vault, _ = azure_secret(asked)
    params = {"$filter": f"resourceType eq 'Microsoft.KeyVault/vaults' and name eq '{vault}'"}
    try:
        resources = call("GET", f"/subscriptions/{place.subscription}/resources", version=V_RESOURCES, params=params)
    except TonnageError as error:
        yield unasked(f"the vault {vault}", error)
        return
    if not resources.get("value"):
        words = f"--name {vault} --resource-group {place.resource_group}"
        yield refused(f"there is no vault {vault}", f"`az keyvault create {words}`")
