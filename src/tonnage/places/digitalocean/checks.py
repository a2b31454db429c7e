"""Obstacles to runs on droplets, asked of the account before a cent is spent."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import quote

from tonnage.errors import TonnageError
from tonnage.places.bucket.cloud import refused, unasked
from tonnage.places.contract import PlaceFinding
from tonnage.places.digitalocean.client import SIGN_IN, DigitalOceanClient, DigitalOceanError
from tonnage.places.digitalocean.place import DigitalOceanPlace

MIB_PER_GIB: Final = 1024
TAG: Final = "tonnage"
CLOSE: Final = (
    "`doctl compute firewall create --name tonnage --tag-names tonnage --outbound-rules "
    '"protocol:tcp,ports:all,address:0.0.0.0/0 protocol:udp,ports:53,address:0.0.0.0/0"`'
)


def questions_of(client: DigitalOceanClient, place: DigitalOceanPlace, *, name: str) -> Iterator[PlaceFinding]:
    """The account first: without it nothing else can be asked."""
    try:
        account = client.call("GET", client.address("account"))["account"]
    except TonnageError as error:
        yield refused(error.message, error.hint or SIGN_IN)
        return
    yield from _account(client, account)
    yield from _size(client, place, name)
    yield from _image(client, place)
    yield from _keys(client, place)
    yield from _network(client, place)
    yield from _registry(client, place)
    if place.token_file is None:
        hint = f"`tonnage places collect RUN`, or places.{name}.token_file: a token on the image that may delete"
        yield PlaceFinding(
            kind="doubtful", message="a droplet whose run has ended is billed until a client deletes it", hint=hint
        )
    if place.secret is not None:
        yield PlaceFinding(kind="unchecked", message=f"whether the boot image has {place.secret}",
                           hint="only the machine tells")  # fmt: skip


def _account(client: DigitalOceanClient, account: dict[str, Any]) -> Iterator[PlaceFinding]:
    if account.get("status") == "locked":
        yield refused(f"the account is locked: {account.get('status_message') or ''}",
                      "cloud.digitalocean.com/support")  # fmt: skip
    limit = account.get("droplet_limit")
    try:
        there = sum(1 for kind in ("droplets", "gpus") for _ in client.listed("droplets", "droplets", type=kind))
    except TonnageError as error:
        yield unasked("how many droplets there are", error)
        return
    if limit is not None and there >= int(limit):
        hint = "ask for more at cloud.digitalocean.com/account/team/droplet_limit_increase"
        yield refused(f"the account may have {limit} droplets, and has {there}", hint)


def _size(client: DigitalOceanClient, place: DigitalOceanPlace, name: str) -> Iterator[PlaceFinding]:
    try:
        sizes = {str(one["slug"]): one for one in client.listed("sizes", "sizes")}
    except TonnageError as error:
        yield unasked("the sizes of droplets", error)
        return
    found = sizes.get(place.instance_type)
    if found is None:
        yield refused(f"there is no size {place.instance_type}, or the account may not have it",
                      "`doctl compute size list`")  # fmt: skip
        return
    regions = [str(one) for one in found["regions"]]
    if not found["available"] or place.region not in regions:
        where = ", ".join(regions) if found["available"] and regions else "nowhere now"
        yield refused(f"{place.region} has no {place.instance_type}: it is to be had {where}",
                      f"places.{name}.region, or `doctl compute size list`")  # fmt: skip
    cores, memory_gib = int(found["vcpus"]), found["memory"] / MIB_PER_GIB
    gpus = int((found.get("gpu_info") or {}).get("count") or 0)
    if place.cores > cores or place.memory_gib > memory_gib or place.gpus > gpus:
        yield refused(f"{place.instance_type} has {cores} cores, {memory_gib:g} GiB and {gpus} GPUs",
                      f"places.{name}.cores = {cores}, memory_gib = {memory_gib:g}, gpus = {gpus}")  # fmt: skip


def _image(client: DigitalOceanClient, place: DigitalOceanPlace) -> Iterator[PlaceFinding]:
    try:
        found = client.call("GET", client.address(f"images/{place.boot_image}"))["image"]
    except DigitalOceanError as error:
        if error.status == 404:
            yield refused(f"there is no image {place.boot_image}", "`doctl compute image list --public`")
        else:
            yield unasked(f"the image {place.boot_image}", error)
        return
    if place.region not in found.get("regions", ()):
        hint = f"`doctl compute image-action transfer {found['id']} --region {place.region}`"
        yield refused(f"the image {place.boot_image} is not in {place.region}", hint)


def _keys(client: DigitalOceanClient, place: DigitalOceanPlace) -> Iterator[PlaceFinding]:
    for key in place.ssh_keys:
        try:
            client.call("GET", client.address(f"account/keys/{quote(key, safe=':')}"))
        except DigitalOceanError as error:
            if error.status == 404:
                yield refused(f"the account has no SSH key {key}", "`doctl compute ssh-key list`")
            else:
                yield unasked(f"the SSH key {key}", error)


def _network(client: DigitalOceanClient, place: DigitalOceanPlace) -> Iterator[PlaceFinding]:
    """Whether the VPC is there, whether a private machine has a way out, and whether a public one is closed."""
    if place.vpc is not None:
        try:
            region = client.call("GET", client.address(f"vpcs/{place.vpc}"))["vpc"]["region"]
        except DigitalOceanError as error:
            if error.status != 404:
                yield unasked(f"the VPC {place.vpc}", error)
            else:
                yield refused(f"there is no VPC {place.vpc}", "`doctl vpcs list`")
            return
        if region != place.region:
            yield refused(f"the VPC {place.vpc} is in {region}, not in {place.region}", "`doctl vpcs list`")
    try:
        if place.public_address:
            yield from _is_closed(client)
        else:
            yield from _leads_out(client, place)
    except DigitalOceanError as error:
        yield unasked("the network", error)


def _is_closed(client: DigitalOceanClient) -> Iterator[PlaceFinding]:
    walls = [one for one in client.listed("firewalls", "firewalls") if TAG in (one.get("tags") or ())]
    if not walls or any(one.get("inbound_rules") for one in walls):
        what = "lets somebody in" if walls else "is not there"
        yield PlaceFinding(kind="doubtful", hint=CLOSE,
                           message=f"the firewall of droplets with the tag {TAG} {what}")  # fmt: skip


def _leads_out(client: DigitalOceanClient, place: DigitalOceanPlace) -> Iterator[PlaceFinding]:
    gateways = list(client.listed("vpc_nat_gateways", "vpc_nat_gateways"))
    ways = [one for one in gateways if one.get("region") == place.region and (
        place.vpc is None or place.vpc in {vpc.get("vpc_uuid") for vpc in one.get("vpcs") or ()}
    )]  # fmt: skip
    if not ways:
        hint = "`doctl compute vpc-nat-gateway create`, or public_address = true"
        yield refused("a droplet without a public address has no way out: its VPC has no NAT gateway", hint)


def _registry(client: DigitalOceanClient, place: DigitalOceanPlace) -> Iterator[PlaceFinding]:
    if place.registry is None:
        yield PlaceFinding(kind="unchecked", message=f"the image of {place.image.partition('/')[0]} is not looked for",
                           hint=f"`skopeo inspect docker://{place.image}`")  # fmt: skip
        return
    name, _, digest = place.image.partition("/")[2].partition("/")[2].partition("@")
    path = f"registries/{place.registry}/repositories/{quote(name, safe='')}/digests"
    try:
        digests = {str(one["digest"]) for one in client.listed(path, "manifests")}
    except DigitalOceanError as error:
        if error.status != 404:
            yield unasked(f"the image {place.image}", error)
            return
        digests = set()
    if digest not in digests:
        yield refused(f"the image {place.image} is not in its registry",
                      f"`doctl registry repository list-manifests {name}`")  # fmt: skip
