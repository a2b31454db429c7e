"""What Compute Engine instances and Vertex AI's jobs need: network, bucket, service account, roles of least privilege.

Sources: the provider hashicorp/google 6; Google, «IAM roles for Cloud Storage», «Resource attributes for IAM
Conditions», «Configure Private Google Access», «GPU machine types: network bandwidth».
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from tonnage.places.bucket.secrets import google_secret, secret_of
from tonnage.places.google.checks import READS_DISKS, quotas_of
from tonnage.places.google.checks import RIGHTS as COMPUTE_RIGHTS
from tonnage.places.google.filling import RIGHTS as FILL_RIGHTS
from tonnage.places.google.gpudirect import OF_TYPES
from tonnage.places.google.place import MTU, GCEPlace, VertexPlace
from tonnage.places.google.vertex import RIGHTS as VERTEX_RIGHTS
from tonnage.places.terraform.hcl import Block, Expression

PROVIDER: Final = "~> 6.50"
KEPT_DAYS: Final = 90  # inputs that no run has sent again
CUT_DAYS: Final = 7  # of uploads
NETWORK, GPU_NETWORK = "10.80.0.0/20", "10.81.{}.0/24"
ANYWHERE: Final = "0.0.0.0/0"
MACHINES: Final = "t-"  # how the names of all our machines begin
REGISTRY: Final = re.compile(r"(?P<location>[a-z0-9-]+)-docker\.pkg\.dev/(?P<project>[^/]+)/(?P<repository>[^/]+)/.*")
APIS: Final = ("artifactregistry", "cloudresourcemanager", "iam", "secretmanager", "storage")
ASKED: Final = (  # by `places check`
    "artifactregistry.dockerimages.get", "iam.serviceAccounts.get", "resourcemanager.projects.get",
)  # fmt: skip
COMPUTE_ASKED: Final = (
    "compute.acceleratorTypes.get", "compute.disks.get", "compute.images.get", "compute.images.useReadOnly",
    "compute.machineTypes.get", "compute.networks.get", "compute.projects.get", "compute.regions.get",
    "compute.routers.list", "compute.subnetworks.get",
)  # fmt: skip
ENABLED: Final = [Expression("google_project_service.runs")]  # the APIs come first
GooglePlace = GCEPlace | VertexPlace


def google_blocks(name: str, place: GooglePlace, *, nat: bool) -> list[Block]:
    """All blocks of a place, in their order; `nat`: its machines reach the internet."""
    network = _network(place, nat=nat) if isinstance(place, GCEPlace) else ()
    return [*_provider(name, place), *_apis(place), *_bucket(place), *network, *_account(place), *_rights(place),
            *_outputs(place)]  # fmt: skip


def quota_notes(place: GooglePlace) -> list[str]:
    """The quotas that Terraform cannot raise, one a line."""
    if isinstance(place, VertexPlace):
        return [f"the quota of custom training for {place.accelerator or place.instance_type} in {place.region}"]
    wanted = quotas_of(place, [(f"nvidia-{place.gpu or place.accelerator or ''}", place.gpus)])
    return [f"the quota {quota} of {place.region}: {count} a run" for quota, count in wanted.items() if place.gpus]


def _provider(name: str, place: GooglePlace) -> Iterator[Block]:
    source = {"source": "hashicorp/google", "version": PROVIDER}
    yield Block("terraform", required_version=">= 1.5", inside=[Block("required_providers", google=source)])
    labels = {"tonnage-place": name.lower(), **place.labels}
    yield Block("provider", "google", project=place.project, region=place.region, default_labels=labels)
    yield Block("variable", "members", type=Expression("set(string)"), default=[],
                description="who starts runs: user:A@B, group:A@B, serviceAccount:A@B")  # fmt: skip


def _apis(place: GooglePlace) -> Iterator[Block]:
    own = "compute" if isinstance(place, GCEPlace) else "aiplatform"
    names = ", ".join(f'"{one}.googleapis.com"' for one in sorted((*APIS, own)))
    yield Block("resource", "google_project_service", "runs", for_each=Expression(f"toset([{names}])"),
                service=Expression("each.value"), disable_on_destroy=False)  # fmt: skip


def _bucket(place: GooglePlace) -> Iterator[Block]:
    """Reached by its own roles alone, never public."""
    bucket, prefix = _bucket_of(place)
    old = Block("condition", age=KEPT_DAYS, matches_prefix=[f"{prefix}objects/"])
    cut = Block("condition", age=CUT_DAYS)
    yield Block(
        "resource", "google_storage_bucket", "runs", name=bucket, location=place.region, force_destroy=False,
        uniform_bucket_level_access=True, public_access_prevention="enforced", depends_on=ENABLED,
        inside=[
            Block("lifecycle_rule", inside=[Block("action", type="Delete"), old]),
            Block("lifecycle_rule", inside=[Block("action", type="AbortIncompleteMultipartUpload"), cut]),
        ],
    )  # fmt: skip


def _network(place: GCEPlace, *, nat: bool) -> Iterator[Block]:
    """A network without a way in; its machines reach Google, and the internet by NAT where that is wanted."""
    yield Block("resource", "google_compute_network", "runs", name=f"{subnet_name(place)}-net", mtu=MTU,
                auto_create_subnetworks=False, routing_mode="REGIONAL", depends_on=ENABLED)  # fmt: skip
    yield Block(
        "resource", "google_compute_subnetwork", "runs", name=subnet_name(place), ip_cidr_range=NETWORK,
        region=place.region, network=Expression("google_compute_network.runs.id"), private_ip_google_access=True,
    )  # fmt: skip
    yield from _walls(place)
    kind = OF_TYPES.get(place.instance_type)
    if kind is not None and kind.nic == "MRDMA" and place.second_subnet is not None:
        yield from _gpu_network(place, len(place.gpu_subnets), place.second_subnet.rpartition("/")[2])
        yield from _rdma_network(place)
    else:
        for at, name in enumerate(place.gpu_subnets):
            yield from _gpu_network(place, at, name.rpartition("/")[2])
    if nat or place.fill or REGISTRY.fullmatch(place.image) is None:
        router = Expression("google_compute_router.out.name")
        yield Block("resource", "google_compute_router", "out", name="tonnage-out", region=place.region,
                    network=Expression("google_compute_network.runs.id"))  # fmt: skip
        yield Block(
            "resource", "google_compute_router_nat", "out", name="tonnage-out", router=router, region=place.region,
            nat_ip_allocate_option="AUTO_ONLY",
            source_subnetwork_ip_ranges_to_nat="ALL_SUBNETWORKS_ALL_PRIMARY_IP_RANGES",
        )  # fmt: skip


def _walls(place: GCEPlace) -> Iterator[Block]:
    """Machines of runs reach each other; nothing else comes in; TLS alone goes out."""
    network, account = Expression("google_compute_network.runs.id"), [Expression("google_service_account.run.email")]
    each: Any = {"network": network}
    yield Block("resource", "google_compute_firewall", "among_machines", name=f"{subnet_name(place)}-among", **each,
                direction="INGRESS", priority=1000, source_service_accounts=account, target_service_accounts=account,
                inside=[Block("allow", protocol="all")])  # fmt: skip
    yield Block("resource", "google_compute_firewall", "to_machines", name=f"{subnet_name(place)}-to", **each,
                direction="EGRESS", priority=1000, destination_ranges=[NETWORK],
                inside=[Block("allow", protocol="all")])  # fmt: skip
    yield Block("resource", "google_compute_firewall", "tls_out", name=f"{subnet_name(place)}-tls", **each,
                direction="EGRESS", priority=1000, destination_ranges=[ANYWHERE],
                inside=[Block("allow", protocol="tcp", ports=["443"])])  # fmt: skip
    yield Block("resource", "google_compute_firewall", "nothing_out", name=f"{subnet_name(place)}-out", **each,
                direction="EGRESS", priority=65000, destination_ranges=[ANYWHERE],
                inside=[Block("deny", protocol="all")])  # fmt: skip
    yield Block("resource", "google_compute_firewall", "nothing_in", name=f"{subnet_name(place)}-in", **each,
                direction="INGRESS", priority=65000, source_ranges=[ANYWHERE],
                inside=[Block("deny", protocol="all")])  # fmt: skip


def _gpu_network(place: GCEPlace, at: int, name: str) -> Iterator[Block]:
    """Of one card beside GPUs: a network of its own with large frames, without a way in or out."""
    label, addresses = f"gpu_{at}", GPU_NETWORK.format(at)
    network = Expression(f"google_compute_network.{label}.id")
    yield Block("resource", "google_compute_network", label, name=f"{name}-net", mtu=MTU,
                auto_create_subnetworks=False, depends_on=ENABLED)  # fmt: skip
    yield Block("resource", "google_compute_subnetwork", label, name=name, ip_cidr_range=addresses,
                region=place.region, network=network)  # fmt: skip
    yield Block("resource", "google_compute_firewall", label, name=f"{name}-among", network=network,
                direction="INGRESS", source_ranges=[addresses], inside=[Block("allow", protocol="all")])  # fmt: skip


def _rdma_network(place: GCEPlace) -> Iterator[Block]:
    """Of all RDMA cards: one network with the RoCE profile of the zone, and a subnet for each card."""
    [zone] = place.zones
    profile = f"projects/{place.project}/global/networkProfiles/{zone}-vpc-roce"
    names = [name.rpartition("/")[2] for name in place.gpu_subnets]
    yield Block("resource", "google_compute_network", "rdma", name=f"{names[0]}-net", network_profile=profile,
                auto_create_subnetworks=False, depends_on=ENABLED)  # fmt: skip
    network = Expression("google_compute_network.rdma.id")
    for at, name in enumerate(names):
        yield Block("resource", "google_compute_subnetwork", f"gpu_{at}", name=name, region=place.region,
                    ip_cidr_range=GPU_NETWORK.format(at), network=network)  # fmt: skip


def _account(place: GooglePlace) -> Iterator[Block]:
    """What a machine may: its part of the bucket, its image, its secret, and to delete itself."""
    short = place.service_account.partition("@")[0]
    yield Block(
        "resource", "google_service_account", "run", account_id=short, display_name="machines of tonnage's runs"
    )
    member = "serviceAccount:${google_service_account.run.email}"
    yield from _reads_and_writes(place, "run", member)
    found = REGISTRY.fullmatch(place.image)
    if found is not None:
        yield Block(
            "resource", "google_artifact_registry_repository_iam_member", "run", project=found["project"],
            location=found["location"], repository=found["repository"], role="roles/artifactregistry.reader",
            member=member,
        )  # fmt: skip
    if (asked := secret_of(place.secret)) is not None:
        _, project, secret = google_secret(asked)
        yield Block("resource", "google_secret_manager_secret_iam_member", "run", project=project,
                    secret_id=secret, role="roles/secretmanager.secretAccessor", member=member)  # fmt: skip
    if isinstance(place, GCEPlace):
        yield Block(
            "resource", "google_project_iam_custom_role", "end", role_id=f"{_role_id(place)}End",
            title="End machines of tonnage's runs", permissions=["compute.instances.delete"],
        )  # fmt: skip
        ours = Block(
            "condition", title="machines of runs",
            expression='resource.type == "compute.googleapis.com/Instance" && '
                       f'resource.name.extract("/instances/{{name}}").startsWith("{MACHINES}")',
        )  # fmt: skip
        yield Block("resource", "google_project_iam_member", "end", project=place.project, member=member,
                    role=Expression("google_project_iam_custom_role.end.id"), inside=[ours])  # fmt: skip


def _reads_and_writes(place: GooglePlace, label: str, member: Any, **more: Any) -> Iterator[Block]:
    """Objects below the place's prefix; the bucket itself is asked for their list alone."""
    bucket, prefix = _bucket_of(place)
    inside = []
    if prefix:
        objects = f"projects/_/buckets/{bucket}/objects/{prefix}"
        inside.append(Block(
            "condition", title="objects of runs",
            expression='resource.type == "storage.googleapis.com/Bucket" || '
                       f'resource.name.startsWith("{objects}")',
        ))  # fmt: skip
    bucket_name = Expression("google_storage_bucket.runs.name")
    yield Block("resource", "google_storage_bucket_iam_member", label, **more, bucket=bucket_name,
                role="roles/storage.objectUser", member=member, inside=inside)  # fmt: skip


def _rights(place: GooglePlace) -> Iterator[Block]:
    """What whoever starts runs may: nobody is one until `members` names them."""
    each: dict[str, Any] = {"for_each": Expression("var.members")}
    member = Expression("each.value")
    yield Block(
        "resource", "google_project_iam_custom_role", "client", role_id=f"{_role_id(place)}Client",
        title="Start runs of tonnage", permissions=sorted(client_rights(place)),
    )  # fmt: skip
    yield Block("resource", "google_project_iam_member", "client", **each, project=place.project, member=member,
                role=Expression("google_project_iam_custom_role.client.id"))  # fmt: skip
    yield Block(
        "resource", "google_service_account_iam_member", "client", **each, member=member,
        service_account_id=Expression("google_service_account.run.name"), role="roles/iam.serviceAccountUser",
    )  # fmt: skip
    yield from _reads_and_writes(place, "client", member, **each)


def client_rights(place: GooglePlace) -> set[str]:
    """What starting, following and ending runs needs, and what `places check` asks."""
    found = {*ASKED, *(["secretmanager.secrets.get"] if place.secret else [])}
    if isinstance(place, VertexPlace):
        return found | set(VERTEX_RIGHTS)
    found |= {*COMPUTE_RIGHTS, *COMPUTE_ASKED}
    if place.public_address:
        found.add("compute.subnetworks.useExternalIp")
    if place.read_disks:
        found.add(READS_DISKS)
    return found | (set(FILL_RIGHTS) if place.fill else set())


def _outputs(place: GooglePlace) -> Iterator[Block]:
    """The lines of places.toml that are known once all of it is there."""
    if isinstance(place, GCEPlace):
        yield Block("output", "subnet", value=Expression("google_compute_subnetwork.runs.name"))
        if place.gpu_subnets:
            names = [Expression(f"google_compute_subnetwork.gpu_{at}.name") for at in range(len(place.gpu_subnets))]
            yield Block("output", "gpu_subnets", value=names)
        if place.second_subnet is not None:
            second = Expression(f"google_compute_subnetwork.gpu_{len(place.gpu_subnets)}.name")
            yield Block("output", "second_subnet", value=second)
    yield Block("output", "service_account", value=Expression("google_service_account.run.email"))


def subnet_name(place: GCEPlace) -> str:
    """The subnet's name in places.toml; that of Google's own network is not taken."""
    name = place.subnet.rpartition("/")[2]
    return "tonnage-runs" if name == "default" else name


def _role_id(place: GooglePlace) -> str:
    """Of custom roles: letters and digits.

    >>> _role_id(GCEPlace.model_construct(service_account="tonnage-run@p.iam.gserviceaccount.com"))
    'tonnageRun'
    """
    first, *rest = re.split(r"[^a-z0-9]+", place.service_account.partition("@")[0])
    return first + "".join(one.capitalize() for one in rest)


def _bucket_of(place: GooglePlace) -> tuple[str, str]:
    bucket, _, prefix = place.bucket.removeprefix("gs://").partition("/")
    return bucket, f"{prefix.strip('/')}/" if prefix.strip("/") else ""
