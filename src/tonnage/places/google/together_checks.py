"""Obstacles to several machines of a run on Compute Engine: reservation, placement, their network."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterator
from typing import Any, Final

from tonnage.errors import TonnageError
from tonnage.places.bucket.cloud import refused, unasked
from tonnage.places.bucket.google import GoogleError
from tonnage.places.contract import PlaceFinding
from tonnage.places.google.gpudirect import OF_TYPES
from tonnage.places.google.place import GCEPlace

Call = Callable[..., dict[str, Any]]
TCP: Final = frozenset({"tcp", "6", "all"})
EVERY_PORT: Final = "0-65535"


def together_questions(call: Call, place: GCEPlace) -> Iterator[PlaceFinding]:
    """Of the reservation for one machine too; the others of several alone."""
    if place.reservation is not None:
        yield from _reserved(call, place, place.reservation)
    if place.placement_policy is not None:
        yield from _placement(call, place, place.placement_policy)
    if place.nodes == 1:
        return
    kind = OF_TYPES.get(place.instance_type)
    walled = place.gpudirect and (kind is None or kind.nic == "GVNIC")  # RoCE networks have no such rules of theirs
    for subnet in (place.subnet, *(place.gpu_subnets if walled else ())):
        yield from _lets_in(call, place, subnet)
    if kind is not None and place.direct is None:
        own = f"{kind.cards} subnets, each of a network of its own with an MTU of 8896"
        roce = f"{kind.cards} subnets of one network with the profile ZONE-vpc-roce, and `second_subnet`"
        hint = f"`gpu_subnets`: {own if kind.nic == 'GVNIC' else roce}"
        said = (
            f"{kind.cards} cards beside the GPUs of {place.instance_type} are not used: NCCL goes over the first alone"
        )
        yield PlaceFinding(kind="doubtful", message=said, hint=hint)


def _reserved(call: Call, place: GCEPlace, name: str) -> Iterator[PlaceFinding]:
    """Whether a zone has the reservation, with enough left in it."""
    if "/" in name:  # of another project: whether it can be read is that project's
        yield PlaceFinding(kind="unchecked", message=f"the reservation {name} is another project's",
                           hint="`gcloud compute reservations describe` there")  # fmt: skip
        return
    most: int | None = None
    for zone in place.zones:
        try:
            found = call("GET", f"projects/{place.project}/zones/{zone}/reservations/{name}")
        except GoogleError as error:
            if error.status != 404:
                yield unasked(f"the reservation {name} in {zone}", error)
                return
            continue
        reserved = found.get("specificReservation") or {}
        left = int(reserved.get("count") or 0) - int(reserved.get("inUseCount") or 0)
        most = left if most is None else max(most, left)
    if most is None:
        hint = f"`gcloud compute reservations list --filter=name={name}`, and its zone in `zones`"
        yield refused(f"there is no reservation {name} in {', '.join(place.zones)}", hint)
    elif most < place.nodes:
        hint = f"`nodes = {most}`" if most else "another reservation, or wait until its machines have ended"
        yield refused(f"the reservation {name} has {most} machines left: {place.nodes} are needed", hint)


def _placement(call: Call, place: GCEPlace, name: str) -> Iterator[PlaceFinding]:
    made = f"create group-placement {name} --collocation=collocated --region {place.region}"
    hint = f"`gcloud compute resource-policies {made}`"
    try:
        found = call("GET", f"projects/{place.project}/regions/{place.region}/resourcePolicies/{name}")
    except GoogleError as error:
        if error.status == 404:
            yield refused(f"there is no placement policy {name} in {place.region}", hint)
        else:
            yield unasked(f"the placement policy {name}", error)
        return
    policy = found.get("groupPlacementPolicy")
    if policy is None or policy.get("collocation") != "COLLOCATED":
        yield refused(f"the policy {name} does not place machines close to each other", hint)
    elif (count := int(policy.get("vmCount") or 0)) and count != place.nodes:
        yield refused(f"the placement policy {name} is of {count} machines alone: a run has {place.nodes}",
                      f"`nodes = {count}`, or one without a count: {hint}")  # fmt: skip


def _lets_in(call: Call, place: GCEPlace, name: str) -> Iterator[PlaceFinding]:
    """Whether a rule of the network lets the subnet's machines reach each other at every port of TCP."""
    path = name if "/" in name else f"projects/{place.project}/regions/{place.region}/subnetworks/{name}"
    try:
        subnet = call("GET", path)
        network = str(subnet.get("network") or "")
        project = network.partition("/projects/")[2].partition("/")[0] or place.project
        rules = call("GET", f"projects/{project}/global/firewalls").get("items") or ()
    except TonnageError as error:
        yield unasked(f"whether machines reach each other in {name}", error)
        return
    own = subnet.get("ipCidrRange")
    if own is None:
        hint = f"`gcloud compute networks subnets describe {name} --region {place.region}`"
        yield PlaceFinding(kind="unchecked", message=f"the subnet {name} tells no range of addresses", hint=hint)
        return
    there = [one for one in rules if str(one.get("network")).rpartition("/")[2] == network.rpartition("/")[2]]
    if not any(_opens(one, str(own)) for one in there):
        short = network.rpartition("/")[2]
        rule = f"create {short}-inside --network {short} --allow tcp,udp,icmp --source-ranges {own}"
        yield PlaceFinding(
            kind="doubtful", message=f"no firewall rule of {short} lets the machines of {name} reach each other",
            hint=f"`gcloud compute firewall-rules {rule}`, or one of a policy of the organisation",
        )  # fmt: skip


def _opens(rule: dict[str, Any], own: str) -> bool:
    """Whether a rule lets all TCP from the subnet's own addresses in, on every machine or by an account or tag."""
    if rule.get("direction", "INGRESS") != "INGRESS" or rule.get("disabled"):
        return False
    inside = ipaddress.ip_network(own)
    sources = (ipaddress.ip_network(str(one)) for one in rule.get("sourceRanges") or ())
    if not any(inside.version == one.version and inside.subnet_of(one) for one in sources):  # type: ignore[arg-type]
        return False
    return any(
        str(one.get("IPProtocol")) in TCP and (not one.get("ports") or EVERY_PORT in one["ports"])
        for one in rule.get("allowed") or ()
    )
