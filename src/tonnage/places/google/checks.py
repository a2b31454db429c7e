"""Obstacles to runs on Compute Engine, asked of the project before a cent is spent."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, Final

from tonnage.errors import TonnageError
from tonnage.places.bucket.cloud import refused, unasked
from tonnage.places.bucket.google import GoogleError
from tonnage.places.bucket.secrets import google_secret, secret_of, storing
from tonnage.places.contract import PlaceFinding
from tonnage.places.google.disks import HYPERDISK_ML, READ_BY_MANY, is_whole
from tonnage.places.google.gpudirect import OF_TYPES
from tonnage.places.google.place import MTU, GCEPlace, VertexPlace
from tonnage.places.google.together_checks import together_questions

Call = Callable[..., dict[str, Any]]
RIGHTS: Final = (
    "compute.instances.create", "compute.instances.delete", "compute.instances.get", "compute.instances.list",
    "compute.instances.setLabels", "compute.instances.setMetadata", "compute.instances.setServiceAccount",
    "compute.disks.create", "compute.disks.setLabels", "compute.subnetworks.use", "compute.zoneOperations.get",
    "compute.zoneOperations.list", "compute.instances.getSerialPortOutput",
)  # fmt: skip
READS_DISKS: Final = "compute.disks.useReadOnly"
USES_POLICIES: Final = "compute.resourcePolicies.use"
GPU_QUOTAS: Final = {  # «GPU quota»: a part of the accelerator's name: the quota's
    "h100-mega": "NVIDIA_H100_MEGA_GPUS", "h100": "NVIDIA_H100_GPUS", "h200": "NVIDIA_H200_GPUS",
    "b200": "NVIDIA_B200_GPUS",
    "a100-80gb": "NVIDIA_A100_80GB_GPUS", "a100": "NVIDIA_A100_GPUS", "l4": "NVIDIA_L4_GPUS", "t4": "NVIDIA_T4_GPUS",
    "v100": "NVIDIA_V100_GPUS", "p100": "NVIDIA_P100_GPUS", "p4": "NVIDIA_P4_GPUS",
}  # fmt: skip
MIB_PER_GIB: Final = 1024


def questions_of(call: Call, place: GCEPlace, *, name: str) -> Iterator[PlaceFinding]:
    """The project first: without it nothing else can be asked."""
    project = f"projects/{place.project}"
    try:
        call("GET", project)
    except TonnageError as error:
        missing = isinstance(error, GoogleError) and error.status == 404
        yield (
            refused(f"there is no project {place.project}", "`gcloud projects list`")
            if missing
            else refused(error.message, error.hint or "")
        )
        return
    yield from _rights(call, place)
    accelerators: list[tuple[str, int]] = []
    for zone in place.zones:
        yield from _zone(call, place, zone, name, accelerators)
        yield from _data_disks(call, place, zone, name=name)
    yield from _quota(call, place, accelerators)
    yield from _boot_image(call, place)
    yield from _network(call, place)
    yield from together_questions(call, place)
    yield from account_questions(call, place)
    yield from image_questions(call, place)
    yield from secret_questions(call, place)


def _rights(call: Call, place: GCEPlace) -> Iterator[PlaceFinding]:
    path = f"v1/projects/{place.project}:testIamPermissions"
    wanted = [*RIGHTS, *([READS_DISKS] if place.read_disks else [])]
    wanted += [USES_POLICIES] if place.placement_policy is not None else []
    try:
        answer = call("POST", path, service="cloudresourcemanager", body={"permissions": wanted})
    except TonnageError as error:
        yield unasked("your rights", error)
        return
    lacking = sorted(set(wanted) - set(answer.get("permissions") or ()))
    if lacking:
        role = "--member user:YOU --role roles/compute.instanceAdmin.v1"
        hint = f"`gcloud projects add-iam-policy-binding {place.project} {role}`"
        yield refused(f"you may not: {', '.join(lacking)}", hint)


def _zone(
    call: Call, place: GCEPlace, zone: str, name: str, accelerators: list[tuple[str, int]]
) -> Iterator[PlaceFinding]:
    """The machine type in a zone, with what it has; its accelerators are added to the list."""
    here, kind = f"projects/{place.project}/zones/{zone}", place.instance_type
    try:
        found = call("GET", f"{here}/machineTypes/{kind}")
    except GoogleError as error:
        if error.status == 404:
            yield refused(f"{zone} has no {kind}", f"`gcloud compute machine-types list --filter=name={kind}`")
        else:
            yield unasked(f"the machine type {kind} in {zone}", error)
        return
    cores, memory_gib = int(found["guestCpus"]), found["memoryMb"] / MIB_PER_GIB
    own = [
        (str(one["guestAcceleratorType"]), int(one["guestAcceleratorCount"])) for one in found.get("accelerators") or ()
    ]
    gpus = sum(count for _, count in own) if place.accelerator is None else place.gpus
    if place.cores > cores or place.memory_gib > memory_gib or place.gpus > gpus:
        yield refused(f"{kind} has {cores} cores, {memory_gib:g} GiB and {gpus} GPUs",
                       f"places.{name}.cores = {cores}, memory_gib = {memory_gib:g}, gpus = {gpus}")  # fmt: skip
    if place.accelerator is not None:
        own = [(place.accelerator, place.gpus)]
        try:
            call("GET", f"{here}/acceleratorTypes/{place.accelerator}")
        except GoogleError as error:
            if error.status == 404:
                hint = f"`gcloud compute accelerator-types list --filter=name={place.accelerator}`"
                yield refused(f"{zone} has no {place.accelerator}", hint)
            else:
                yield unasked(f"{place.accelerator} in {zone}", error)
    accelerators[:] = accelerators or own


def _data_disks(call: Call, place: GCEPlace, zone: str, *, name: str) -> Iterator[PlaceFinding]:
    """Whether each is in the zone, and whether many machines may read it at once."""
    for disk in place.read_disks:
        filled = disk.filled_with is not None
        try:
            found = call("GET", f"projects/{place.project}/zones/{zone}/disks/{disk.name}")
        except GoogleError as error:
            if error.status != 404:
                yield unasked(f"the disk {disk.name} in {zone}", error)
            elif filled:
                yield refused(f"{zone} has no disk with the content of fill.{disk.device}", _fill_it(name))
            else:
                made = f"{disk.name} --zone {zone} --type hyperdisk-ml --size ..."
                yield refused(f"{zone} has no disk {disk.name}", f"`gcloud compute disks create {made}`, and fill it")
            continue
        if filled:
            if not is_whole(found):
                yield refused(f"the disk {disk.name} in {zone} is not filled yet", _fill_it(name))
            continue
        yield from _read_by_many(disk.name, zone, found)


def _fill_it(name: str) -> str:
    return f"`tonnage places fill {name}`"


def _read_by_many(name: str, zone: str, found: dict[str, Any]) -> Iterator[PlaceFinding]:
    kind = str(found.get("type") or "").rpartition("/")[2]
    if kind == HYPERDISK_ML and found.get("accessMode") != READ_BY_MANY:
        hint = f"`gcloud compute disks update {name} --zone {zone} --access-mode={READ_BY_MANY}`"
        yield refused(f"the disk {name} in {zone} is not one that many read: {found.get('accessMode')}", hint)
    elif kind != HYPERDISK_ML and (users := found.get("users")):
        said = f"the disk {name} in {zone} ({kind}) is attached to {len(users)} machines already"
        yield PlaceFinding(kind="doubtful", message=said, hint=f"one of the type {HYPERDISK_ML} is read by thousands")


def quotas_of(place: GCEPlace, accelerators: list[tuple[str, int]]) -> dict[str, int]:
    """The regional quotas that count the machines of a run, with how much of each they take.

    Processors of machine types with GPUs of their own are counted by quotas of their family, which are no part of a
    region's list.
    """
    found: dict[str, int] = {}
    for kind, count in accelerators:
        short = re.sub(r"^nvidia-(tesla-)?", "", kind)
        quota = next((quota for part, quota in GPU_QUOTAS.items() if short.startswith(part)), None)
        if quota is not None:
            found[f"PREEMPTIBLE_{quota}" if place.spot or place.flex_start else quota] = count * place.nodes
    return found


def _quota(call: Call, place: GCEPlace, accelerators: list[tuple[str, int]]) -> Iterator[PlaceFinding]:
    if place.reservation is not None:
        return
    try:
        quotas = call("GET", f"projects/{place.project}/regions/{place.region}").get("quotas") or ()
    except TonnageError as error:
        yield unasked("the region's quotas", error)
        return
    limits = {str(one["metric"]): (float(one["limit"]), float(one.get("usage") or 0)) for one in quotas}
    for metric, wanted in quotas_of(place, accelerators).items():
        if metric not in limits:
            yield PlaceFinding(kind="unchecked", message=f"{place.region} lists no quota {metric}",
                               hint=f"`gcloud compute regions describe {place.region}`")  # fmt: skip
        elif limits[metric][0] - limits[metric][1] < wanted:
            limit, usage = limits[metric]
            hint = f"ask for it at console.cloud.google.com/iam-admin/quotas?project={place.project}, or another region"
            yield refused(
                f"the quota {metric} of {place.region} is {limit:g}, {usage:g} of it used: {wanted} is needed", hint
            )


def _boot_image(call: Call, place: GCEPlace) -> Iterator[PlaceFinding]:
    try:
        found = call("GET", place.boot_image)
    except GoogleError as error:
        if error.status == 404:
            hint = "`gcloud compute images list --project deeplearning-platform-release`"
            yield refused(f"there is no image {place.boot_image}", hint)
        else:
            yield unasked(f"the image {place.boot_image}", error)
        return
    features = [str(one.get("type")) for one in found.get("guestOsFeatures") or ()]
    if features and "GVNIC" not in features:
        yield refused(f"the image {place.boot_image} has no driver of gVNIC",
                      "one whose `guestOsFeatures` have GVNIC: `gcloud compute images describe`")  # fmt: skip


def _network(call: Call, place: GCEPlace) -> Iterator[PlaceFinding]:
    """Whether subnets are there, lead out, and take the frames that cards of GPUs need."""
    kind = OF_TYPES.get(place.instance_type)
    rdma = set(place.gpu_subnets) if kind is not None and kind.nic == "MRDMA" else set()
    second = () if place.second_subnet is None else (place.second_subnet,)
    for name in (place.subnet, *second, *place.gpu_subnets):
        path = name if "/" in name else f"projects/{place.project}/regions/{place.region}/subnetworks/{name}"
        try:
            found = call("GET", path)
        except GoogleError as error:
            if error.status == 404:
                yield refused(f"there is no subnet {name} in {place.region}",
                               f"`gcloud compute networks subnets list --regions {place.region}`")  # fmt: skip
            else:
                yield unasked(f"the subnet {name}", error)
            continue
        if name == place.subnet:
            yield from _way_out(call, place, name, found)
        elif name in rdma:
            yield from _profile(call, place, name, found)
        else:
            yield from _frames(call, name, found)


def _way_out(call: Call, place: GCEPlace, name: str, subnet: dict[str, Any]) -> Iterator[PlaceFinding]:
    if place.public_address:
        return
    if not subnet.get("privateIpGoogleAccess"):
        update = f"update {name.rpartition('/')[2]} --region {place.region} --enable-private-ip-google-access"
        hint = f"`gcloud compute networks subnets {update}`"
        yield refused(f"the subnet {name} does not lead to the bucket: private Google access is off", hint)
    if place.image.partition("/")[0].endswith("-docker.pkg.dev"):
        return
    routers = call("GET", f"projects/{place.project}/regions/{place.region}/routers").get("items") or ()
    network = subnet.get("network")
    if not any(one.get("nats") for one in routers if one.get("network") == network):
        hint = "an image of Artifact Registry, or a Cloud NAT: `gcloud compute routers nats create`"
        yield PlaceFinding(kind="doubtful", message=f"{name} leads to Google and nowhere else", hint=hint)


def _profile(call: Call, place: GCEPlace, name: str, subnet: dict[str, Any]) -> Iterator[PlaceFinding]:
    """RDMA cards are taken by a network with the RoCE profile of the machines' zone alone."""
    network = str(subnet.get("network") or "").partition("/compute/v1/")[2]
    has = str((call("GET", network) if network else {}).get("networkProfile") or "").rpartition("/")[2]
    [zone] = place.zones
    if has != f"{zone}-vpc-roce":
        said = f"the network of {name} has {has or 'no profile'}, and takes no RDMA cards of machines in {zone}"
        made = f"networks create NAME --network-profile={zone}-vpc-roce --subnet-mode=custom"
        yield refused(said, f"`gcloud compute {made}`, and 8 subnets of it")


def _frames(call: Call, name: str, subnet: dict[str, Any]) -> Iterator[PlaceFinding]:
    network = str(subnet.get("network") or "").partition("/compute/v1/")[2]
    mtu = call("GET", network).get("mtu") if network else None
    if mtu != MTU:
        short = network.rpartition("/")[2]
        yield PlaceFinding(kind="doubtful", message=f"the network of {name} has an MTU of {mtu}, not {MTU}",
                           hint=f"`gcloud compute networks update {short} --mtu={MTU}`")  # fmt: skip


def account_questions(call: Call, place: GCEPlace | VertexPlace) -> Iterator[PlaceFinding]:
    """Whether the service account is there and can be used."""
    try:
        found = call("GET", f"v1/projects/-/serviceAccounts/{place.service_account}", service="iam")
    except GoogleError as error:
        if error.status == 404:
            short = place.service_account.partition("@")[0]
            hint = f"`gcloud iam service-accounts create {short} --project {place.project}`"
            yield refused(f"there is no service account {place.service_account}", hint)
        else:
            yield unasked(f"the service account {place.service_account}", error)
        return
    if found.get("disabled"):
        yield refused(f"the service account {place.service_account} is disabled",
                       f"`gcloud iam service-accounts enable {place.service_account}`")  # fmt: skip


def image_questions(call: Call, place: GCEPlace | VertexPlace) -> Iterator[PlaceFinding]:
    """Whether an image of Google's registry is there; of other registries only the machine learns."""
    host, _, rest = place.image.partition("/")
    parts = rest.partition("@")[0].split("/")
    if not host.endswith("-docker.pkg.dev") or len(parts) < 3:
        yield PlaceFinding(kind="unchecked", message=f"the image of {host} is not looked for",
                           hint=f"`skopeo inspect docker://{place.image}`")  # fmt: skip
        return
    location, digest = host.removesuffix("-docker.pkg.dev"), rest.partition("@")[2]
    image = f"{'%2F'.join(parts[2:])}@{digest}"
    path = f"v1/projects/{parts[0]}/locations/{location}/repositories/{parts[1]}/dockerImages/{image}"
    try:
        call("GET", path, service="artifactregistry")
    except GoogleError as error:
        if error.status == 404:
            hint = f"`gcloud artifacts docker images list {host}/{'/'.join(parts[:2])}`"
            yield refused(f"the image {place.image} is not in its registry", hint)
        else:
            yield unasked(f"the image {place.image}", error)


def secret_questions(call: Call, place: GCEPlace | VertexPlace) -> Iterator[PlaceFinding]:
    """Whether the secret of the place is there."""
    asked = secret_of(place.secret)
    if asked is None:
        return
    name, project, short = google_secret(asked)
    try:
        call("GET", f"v1/{name}", service="secretmanager")
    except GoogleError as error:
        if error.status == 404:
            yield refused(f"there is no secret {short} in {project}", f"`{storing(asked)}`")
        else:
            yield unasked(f"the secret {short}", error)
