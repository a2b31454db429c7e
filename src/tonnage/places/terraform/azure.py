"""What Azure's virtual machines need: group, network, container, managed identity, roles of least privilege.

Sources: the provider hashicorp/azurerm 4; Azure, «Built-in roles», «Default outbound access», «Prevent Shared Key
authorization», «Assign a role to a container».
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from tonnage.places.azure.checks import SPOT_QUOTA, rights_of
from tonnage.places.azure.place import AzurePlace
from tonnage.places.bucket.secrets import azure_secret, secret_of
from tonnage.places.terraform.hcl import Block, Expression

PROVIDER: Final = "~> 4.55"
KEPT_DAYS: Final = 90  # inputs that no run has sent again
NETWORK, SUBNET = "10.80.0.0/16", "10.80.0.0/20"
BUCKET: Final = re.compile(r"az://(?P<container>[a-z0-9-]+)@(?P<account>[a-z0-9]+)\.blob\.[^/]+(?:/(?P<prefix>.*))?")
ENDS: Final = (  # a machine with its disk and card
    "Microsoft.Compute/disks/delete", "Microsoft.Compute/virtualMachines/deallocate/action",
    "Microsoft.Compute/virtualMachines/delete", "Microsoft.Compute/virtualMachines/read",
    "Microsoft.Network/networkInterfaces/delete",
)  # fmt: skip
STARTS: Final = (  # beside what `places check` names: what a machine is made with, and what is asked before
    "Microsoft.Compute/disks/read", "Microsoft.Compute/disks/write", "Microsoft.Network/networkInterfaces/join/action",
    "Microsoft.Compute/locations/operations/read",
    "Microsoft.Network/networkInterfaces/read", "Microsoft.Network/networkInterfaces/write",
    "Microsoft.Network/virtualNetworks/subnets/read", "Microsoft.ManagedIdentity/userAssignedIdentities/read",
    "Microsoft.Resources/subscriptions/resourceGroups/read", "Microsoft.Authorization/permissions/read",
)  # fmt: skip
LOOKS: Final = (  # of the whole subscription, by `places check`
    "Microsoft.Compute/locations/publishers/artifacttypes/offers/skus/versions/read",
    "Microsoft.Compute/locations/usages/read", "Microsoft.Compute/skus/read",
)  # fmt: skip
WHOLE_GROUP: Final = Expression("azurerm_resource_group.runs.id")
GROUP: Final = Expression("azurerm_resource_group.runs.name")
PLACE: Final = Expression("azurerm_resource_group.runs.location")


def azure_blocks(name: str, place: AzurePlace) -> list[Block]:
    """All blocks of a place, in their order. Its machines go out by NAT: they sign in at Azure itself."""
    return [*_provider(name, place), *_bucket(place), *_network(place), *_identity(place), *_rights(place), *_outputs()]


def quota_notes(place: AzurePlace) -> list[str]:
    """The quotas that Terraform cannot raise, one a line."""
    quota = f"{SPOT_QUOTA} (spot's, of all sizes)" if place.spot else f"the family of {place.instance_type}"
    return [f"the quota of vCPUs of {quota} in {place.region}: {place.cores * place.machines} a run"]


def _provider(name: str, place: AzurePlace) -> Iterator[Block]:
    source = {"source": "hashicorp/azurerm", "version": PROVIDER}
    yield Block("terraform", required_version=">= 1.5", inside=[Block("required_providers", azurerm=source)])
    yield Block("provider", "azurerm", subscription_id=place.subscription, storage_use_azuread=True,
                inside=[Block("features")])  # fmt: skip
    yield Block("variable", "members", type=Expression("set(string)"), default=[],
                description="who starts runs: object identifiers of users, groups, principals")  # fmt: skip
    registry, _, _ = place.image.partition(".azurecr.io/")
    if registry != place.image:
        yield _identifier("registry_id", place, f"Microsoft.ContainerRegistry/registries/{registry}", "of the image")
    if (asked := secret_of(place.secret)) is not None:
        vault, secret = azure_secret(asked)
        yield _identifier("secret_id", place, f"Microsoft.KeyVault/vaults/{vault}/secrets/{secret}",
                          "of the variables of runs")  # fmt: skip
    tags = {"tonnage-place": name, **place.labels}
    yield Block("resource", "azurerm_resource_group", "runs", name=place.resource_group, location=place.region,
                tags=tags)  # fmt: skip


def _identifier(name: str, place: AzurePlace, path: str, what: str) -> Block:
    """Of something that is there already: in the place's resource group, unless it is stated."""
    return Block("variable", name, type=Expression("string"), default=f"{place.group}/providers/{path}",
                 description=f"{what}: its identifier")  # fmt: skip


def _bucket(place: AzurePlace) -> Iterator[Block]:
    """Signed in by identities alone, by TLS, never public."""
    found = _bucket_of(place)
    yield Block(
        "resource", "azurerm_storage_account", "runs", name=found["account"], resource_group_name=GROUP, location=PLACE,
        account_tier="Standard", account_replication_type="LRS", min_tls_version="TLS1_2",
        https_traffic_only_enabled=True, allow_nested_items_to_be_public=False, shared_access_key_enabled=False,
        default_to_oauth_authentication=True, cross_tenant_replication_enabled=False, local_user_enabled=False,
    )  # fmt: skip
    yield Block(
        "resource", "azurerm_storage_container", "runs", name=found["container"], container_access_type="private",
        storage_account_id=Expression("azurerm_storage_account.runs.id"),
    )  # fmt: skip
    prefix = f"{found['prefix'].strip('/')}/" if (found["prefix"] or "").strip("/") else ""
    old = Block("base_blob", delete_after_days_since_modification_greater_than=KEPT_DAYS)
    filters = Block("filters", blob_types=["blockBlob"], prefix_match=[f"{found['container']}/{prefix}objects/"])
    yield Block(
        "resource", "azurerm_storage_management_policy", "runs",
        storage_account_id=Expression("azurerm_storage_account.runs.id"),
        inside=[Block("rule", name="inputs", enabled=True, inside=[filters, Block("actions", inside=[old])])],
    )  # fmt: skip


def _network(place: AzurePlace) -> Iterator[Block]:
    """A subnet without a way in, whose machines go out by TLS through a NAT gateway."""
    network, subnet = _subnet_of(place)
    here: dict[str, Any] = {"resource_group_name": GROUP, "location": PLACE}
    yield Block("resource", "azurerm_virtual_network", "runs", name=network, address_space=[NETWORK], **here)
    yield Block(
        "resource", "azurerm_subnet", "runs", name=subnet, resource_group_name=GROUP, address_prefixes=[SUBNET],
        virtual_network_name=Expression("azurerm_virtual_network.runs.name"), default_outbound_access_enabled=False,
        service_endpoints=["Microsoft.Storage"],
    )  # fmt: skip
    yield Block("resource", "azurerm_network_security_group", "runs", name=f"{subnet}-rules", **here, inside=[
        _rule("among-machines", 100, "Inbound", "Allow", origin=SUBNET, target=SUBNET),
        _rule("nothing-in", 4000, "Inbound", "Deny"),
        _rule("to-machines", 100, "Outbound", "Allow", origin=SUBNET, target=SUBNET),
        _rule("tls-out", 110, "Outbound", "Allow", protocol="Tcp", port="443"),
        _rule("nothing-out", 4000, "Outbound", "Deny"),
    ])  # fmt: skip
    its = Expression("azurerm_subnet.runs.id")
    yield Block("resource", "azurerm_subnet_network_security_group_association", "runs", subnet_id=its,
                network_security_group_id=Expression("azurerm_network_security_group.runs.id"))  # fmt: skip
    yield Block("resource", "azurerm_public_ip", "out", name=f"{subnet}-out", **here, allocation_method="Static",
                sku="Standard")  # fmt: skip
    yield Block("resource", "azurerm_nat_gateway", "out", name=f"{subnet}-out", **here, sku_name="Standard")
    gateway = Expression("azurerm_nat_gateway.out.id")
    yield Block("resource", "azurerm_nat_gateway_public_ip_association", "out", nat_gateway_id=gateway,
                public_ip_address_id=Expression("azurerm_public_ip.out.id"))  # fmt: skip
    yield Block("resource", "azurerm_subnet_nat_gateway_association", "runs", subnet_id=its, nat_gateway_id=gateway)


def _rule(
    name: str, priority: int, direction: str, access: str, *, protocol: str = "*", port: str = "*", origin: str = "*",
    target: str = "*",
) -> Block:  # fmt: skip
    return Block(
        "security_rule", name=name, priority=priority, direction=direction, access=access, protocol=protocol,
        source_port_range="*", destination_port_range=port, source_address_prefix=origin,
        destination_address_prefix=target,
    )  # fmt: skip


def _identity(place: AzurePlace) -> Iterator[Block]:
    """What a machine may: the container, its image, its secret, and to delete itself."""
    yield Block("resource", "azurerm_user_assigned_identity", "run", name=identity_name(place), location=PLACE,
                resource_group_name=GROUP)  # fmt: skip
    yield _given("run_bucket", "Storage Blob Data Contributor", "azurerm_storage_container.runs.id")
    if ".azurecr.io/" in place.image:
        yield _given("run_image", "AcrPull", "var.registry_id")
    if place.secret is not None:
        yield _given("run_secret", "Key Vault Secrets User", "var.secret_id")
    yield _role("end", f"{identity_name(place)} ends machines", ENDS)
    yield _given("run_end", None, "azurerm_resource_group.runs.id", "end")


def _given(label: str, role: str | None, scope: str, own: str = "", *, members: bool = False) -> Block:
    """A role of Azure's, or one of ours, to the machines' identity, or to each of the members."""
    who: dict[str, Any] = (
        {"principal_id": Expression("each.value")} if members else
        {"principal_id": Expression("azurerm_user_assigned_identity.run.principal_id"),
         "principal_type": "ServicePrincipal"}
    )  # fmt: skip
    each: dict[str, Any] = {"for_each": Expression("var.members")} if members else {}
    what: dict[str, Any] = {"role_definition_name": role} if role is not None else {
        "role_definition_id": Expression(f"azurerm_role_definition.{own}.role_definition_resource_id")
    }  # fmt: skip
    return Block("resource", "azurerm_role_assignment", label, **each, scope=Expression(scope), **what, **who)


def _role(label: str, name: str, actions: tuple[str, ...], scope: Any = WHOLE_GROUP) -> Block:
    return Block("resource", "azurerm_role_definition", label, name=name, scope=scope, assignable_scopes=[scope],
                 inside=[Block("permissions", actions=sorted(actions))])  # fmt: skip


def _rights(place: AzurePlace) -> Iterator[Block]:
    """What whoever starts runs may: nobody is one until `members` names them."""
    yield _role("client", f"{identity_name(place)} starts machines", tuple({*rights_of(place), *STARTS, *ENDS}))
    yield _given("client", None, "azurerm_resource_group.runs.id", "client", members=True)
    yield _role("look", f"{identity_name(place)} looks", LOOKS, f"/subscriptions/{place.subscription}")
    yield _given("look", None, f'"/subscriptions/{place.subscription}"', "look", members=True)
    yield _given("client_bucket", "Storage Blob Data Contributor", "azurerm_storage_container.runs.id", members=True)


def _outputs() -> Iterator[Block]:
    """The lines of places.toml that are known once all of it is there."""
    yield Block("output", "subnet", value=Expression("azurerm_subnet.runs.id"))
    yield Block("output", "identity", value=Expression("azurerm_user_assigned_identity.run.id"))


def identity_name(place: AzurePlace) -> str:
    return place.identity.rpartition("/")[2]


def _subnet_of(place: AzurePlace) -> tuple[str, str]:
    """Names of network and subnet."""
    parts = place.subnet_id.split("/")
    return parts[-3], parts[-1]


def _bucket_of(place: AzurePlace) -> dict[str, str]:
    found = BUCKET.fullmatch(place.bucket)
    assert found is not None, place.bucket  # the place's own check takes nothing else
    return found.groupdict()
