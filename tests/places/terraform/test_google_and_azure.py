"""Terraform files of Google's and Azure's places: closed, least rights, and the arguments that their providers take."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.places.terraform.reading import references

from tonnage.places.azure.checks import RIGHTS as AZURE_RIGHTS
from tonnage.places.azure.place import AzurePlace
from tonnage.places.google.checks import RIGHTS as COMPUTE_RIGHTS
from tonnage.places.google.filling import RIGHTS as FILL_RIGHTS
from tonnage.places.google.place import GCEPlace, VertexPlace
from tonnage.places.google.vertex import RIGHTS as VERTEX_RIGHTS
from tonnage.places.terraform.azure import azure_blocks
from tonnage.places.terraform.files import terraform_files
from tonnage.places.terraform.google import google_blocks
from tonnage.places.terraform.hcl import Block, Expression

SECRET = "gcp:projects/my-project/secrets/keys"
DIGEST = f"sha256:{'0' * 64}"
SIZE: dict[str, Any] = {"cores": 208, "memory_gib": 1800, "gpus": 8, "gpu": "h100", "time_limit_minutes": 60}
GCE: dict[str, Any] = {
    **SIZE, "kind": "gce", "project": "my-project", "region": "us-central1", "zones": ["us-central1-a"],
    "bucket": "gs://my-runs/tonnage", "image": f"us-central1-docker.pkg.dev/my-project/team/tonnage@{DIGEST}",
    "boot_image": "projects/p/global/images/family/f", "instance_type": "a3-highgpu-8g",
    "service_account": "tonnage-run@my-project.iam.gserviceaccount.com",
}  # fmt: skip
VERTEX: dict[str, Any] = {
    **{key: GCE[key] for key in GCE if key not in {"zones", "boot_image"}}, "kind": "vertex",
    "accelerator": "NVIDIA_H100_80GB",
}  # fmt: skip
AZURE: dict[str, Any] = {
    **SIZE, "kind": "azure", "subscription": "11111111-2222-3333-4444-555555555555", "resource_group": "ml",
    "region": "eastus", "bucket": "az://runs@myaccount.blob.core.windows.net/tonnage", "subnet": "net/runs",
    "instance_type": "Standard_ND96isr_H100_v5", "image": f"team.azurecr.io/tonnage@{DIGEST}",
    "boot_image": "microsoft-dsvm:ubuntu-hpc:2204:latest", "ssh_public_key": "ssh-ed25519 AAAA",
    "identity": "/subscriptions/s/resourceGroups/ml/providers/Microsoft.ManagedIdentity/userAssignedIdentities/runs-id",
}  # fmt: skip
FILL = {"weights": {"sources": ["hf://a/b@" + "0" * 40], "size_gib": 100}}
ULTRA = {"instance_type": "a3-ultragpu-8g", "zones": ["us-central1-a"], "nodes": 2, "second_subnet": "second",
         "gpu_subnets": [f"rdma-{at}" for at in range(8)]}  # fmt: skip
OTHER = f"registry.example/t@{DIGEST}"
FORMS: list[dict[str, Any]] = [
    GCE, GCE | {"secret": SECRET, "spot": True, "grace_s": 20, "labels": {"team": "ml"}}, GCE | {"fill": FILL},
    GCE | {"image": OTHER, "bucket": "gs://my-runs", "gpu_subnets": ["g0", "g1", "g2", "g3"], "subnet": "ml"},
    GCE | ULTRA,
    VERTEX, VERTEX | {"secret": SECRET},
    AZURE,
    AZURE | {"secret": f"azure:vault/keys/{32 * '0'}", "spot": True, "grace_s": 20, "image": OTHER,
             "labels": {"team": "ml"}},
]  # fmt: skip
ALL = pytest.mark.parametrize("terms", FORMS)
ON_GOOGLE = pytest.mark.parametrize("terms", FORMS[:7])
MODELS: dict[str, Any] = {"gce": GCEPlace, "vertex": VertexPlace, "azure": AzurePlace}
PROVIDERS: dict[str, Any] = json.loads((Path(__file__).parent / "providers.json").read_text())["types"]
META = {"depends_on", "for_each"}


def blocks(terms: dict[str, Any], *, nat: bool = False) -> dict[str, Block]:
    place = MODELS[terms["kind"]](**terms)
    made = azure_blocks("gpu", place) if isinstance(place, AzurePlace) else google_blocks("gpu", place, nat=nat)
    return {(f"var.{one.labels[0]}" if one.kind == "variable" else one.address): one for one in made}


def faults(block: Block, shape: dict[str, Any], where: str) -> Iterator[str]:
    """What a provider's schema does not have, or misses."""
    given = {*block.attributes, *(one.kind for one in block.inside)}
    yield from (f"{where}: {name} is missing" for name in shape["required"] if name not in given)
    for name in block.attributes:
        if name not in shape["plain"] and name not in META:
            yield f"{where}: no argument {name}"
    for one in block.inside:
        inner = shape["blocks"].get(one.kind)
        if inner is None:
            yield f"{where}: no block {one.kind}"
        else:
            yield from faults(one, inner, f"{where}.{one.kind}")


@ALL
def test_the_providers_know_every_argument_and_block(terms: dict[str, Any]) -> None:
    """By the schemas of hashicorp/google 6.50 and hashicorp/azurerm 4.55, as the bindings made from them have them."""
    resources = [one for one in blocks(terms).values() if one.kind == "resource"]
    assert [said for one in resources for said in faults(one, PROVIDERS[one.labels[0]], one.address)] == []


def test_a_misspelt_argument_would_be_found() -> None:
    """The check itself is not empty."""
    wrong = Block("resource", "google_compute_network", "a", mtuu=1, inside=[Block("labels")])
    assert list(faults(wrong, PROVIDERS["google_compute_network"], "a")) == [
        "a: name is missing", "a: no argument mtuu", "a: no block labels"
    ]  # fmt: skip


@ALL
def test_every_reference_is_to_something_that_is_there(terms: dict[str, Any]) -> None:
    """And the same bytes come twice."""
    found = blocks(terms)
    assert set(references(list(found.values()))) <= set(found)
    place = MODELS[terms["kind"]](**terms)
    assert terraform_files("gpu", place) == terraform_files("gpu", place)


@ON_GOOGLE
def test_googles_bucket_and_network_are_closed(terms: dict[str, Any]) -> None:
    """No public object, no way in from outside, large frames, and a way out to the internet only where it is wanted."""
    found = blocks(terms)
    bucket = found["google_storage_bucket.runs"].attributes
    assert (bucket["public_access_prevention"], bucket["uniform_bucket_level_access"]) == ("enforced", True)
    if terms["kind"] == "vertex":
        assert not any("compute" in address for address in found)
        return
    for address, one in found.items():
        if address.startswith("google_compute_network."):
            profile = str(one.attributes.get("network_profile", ""))
            assert one.attributes["auto_create_subnetworks"] is False
            assert one.attributes.get("mtu") == 8896 or profile.endswith("/networkProfiles/us-central1-a-vpc-roce")
        if address.startswith("google_compute_firewall.") and one.attributes["direction"] == "INGRESS":
            denied = any(inner.kind == "deny" for inner in one.inside)
            assert denied or one.attributes.get("source_ranges") != ["0.0.0.0/0"]
    assert found["google_compute_subnetwork.runs"].attributes["private_ip_google_access"] is True
    assert ("google_compute_router_nat.out" in found) == (terms["image"] == OTHER or "fill" in terms)
    assert "google_compute_router_nat.out" in blocks(terms, nat=True)
    cards = [one for one in found if one.startswith("google_compute_subnetwork.gpu_")]
    assert len(cards) == len(terms.get("gpu_subnets", ())) + ("second_subnet" in terms)
    assert ("google_compute_network.rdma" in found) == ("second_subnet" in terms)


@ON_GOOGLE
def test_googles_roles_have_what_is_needed_and_no_more(terms: dict[str, Any]) -> None:
    """The client's role has every right that `check` asks for; the machine's role deletes our machines alone."""
    found = blocks(terms)
    rights = set(found["google_project_iam_custom_role.client"].attributes["permissions"])
    wanted = set(VERTEX_RIGHTS if terms["kind"] == "vertex" else COMPUTE_RIGHTS)
    assert wanted <= rights
    assert (set(FILL_RIGHTS) <= rights) == ("fill" in terms)
    assert not any("*" in one or one.endswith("setIamPolicy") for one in rights)
    roles = {one.attributes["role"] for one in found.values() if isinstance(one.attributes.get("role"), str)}
    assert not roles & {"roles/owner", "roles/editor", "roles/storage.admin", "roles/compute.admin"}
    assert ("roles/secretmanager.secretAccessor" in roles) == ("secret" in terms)
    kept = found["google_storage_bucket_iam_member.run"]
    conditions = [one.attributes["expression"] for one in kept.inside]
    assert bool(conditions) == terms["bucket"].endswith("/tonnage")
    assert all('startsWith("projects/_/buckets/my-runs/objects/tonnage/")' in one for one in conditions)
    if terms["kind"] == "gce":
        assert found["google_project_iam_custom_role.end"].attributes["permissions"] == ["compute.instances.delete"]
        [ours] = found["google_project_iam_member.end"].inside
        assert 'extract("/instances/{name}").startsWith("t-")' in ours.attributes["expression"]
    for address in ("google_project_iam_member.client", "google_service_account_iam_member.client"):
        assert found[address].attributes["for_each"].text == "var.members"
    assert found["var.members"].attributes["default"] == []


@pytest.mark.parametrize("terms", FORMS[7:])
def test_azures_files_are_closed_and_their_roles_small(terms: dict[str, Any]) -> None:
    """No key, no public object, no way in; a machine may end machines of its group, and reach one container."""
    found = blocks(terms)
    account = found["azurerm_storage_account.runs"].attributes
    assert (account["shared_access_key_enabled"], account["allow_nested_items_to_be_public"]) == (False, False)
    assert (account["name"], found["azurerm_storage_container.runs"].attributes["name"]) == ("myaccount", "runs")
    rules = [one.attributes for one in found["azurerm_network_security_group.runs"].inside]
    inward = [one for one in rules if one["direction"] == "Inbound"]
    assert [(one["access"], one["source_address_prefix"]) for one in inward] == [
        ("Allow", "10.80.0.0/20"), ("Deny", "*")
    ]  # fmt: skip
    assert found["azurerm_subnet.runs"].attributes["default_outbound_access_enabled"] is False
    roles = {
        name: set(found[f"azurerm_role_definition.{name}"].inside[0].attributes["actions"])
        for name in ("client", "end", "look")
    }
    assert set(AZURE_RIGHTS) <= roles["client"]
    assert not any("*" in one or "roleAssignments/write" in one for actions in roles.values() for one in actions)
    assert all(one.endswith("/read") for one in roles["look"])
    given = {one.attributes.get("role_definition_name") for one in found.values()} - {None}
    registry, secret = "azurecr.io" in terms["image"], "secret" in terms
    assert given == {"Storage Blob Data Contributor", *(["AcrPull"] if registry else []),
                     *(["Key Vault Secrets User"] if secret else [])}  # fmt: skip
    scopes = [
        one.attributes["scope"] for address, one in found.items() if address.startswith("azurerm_role_assignment")
    ]
    assert all(isinstance(one, Expression) for one in scopes)
    assert ("var.secret_id" in found) == secret
    if secret:
        assert found["var.secret_id"].attributes["default"].endswith("/vaults/vault/secrets/keys")


@ALL
def test_quotas_that_have_to_be_asked_for_are_said(terms: dict[str, Any]) -> None:
    text = terraform_files("gpu", MODELS[terms["kind"]](**terms))["main.tf"]
    notes = re.findall(r"^# Ask for before: (.*)", text, re.MULTILINE)
    gpus = 8 * terms.get("nodes", 1)
    wanted = {
        "gce": f"NVIDIA_H100_GPUS of us-central1: {gpus} a run",
        "vertex": "NVIDIA_H100_80GB",
        "azure": "208 a run",
    }
    assert any(wanted[terms["kind"]] in one for one in notes), notes


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("terraform"), reason="install terraform")
@ALL
def test_terraform_reads_them_and_finds_them_well_laid_out(terms: dict[str, Any], tmp_path: Path) -> None:
    """`terraform fmt`, which needs no provider, parses all of it."""
    for file, text in terraform_files("gpu", MODELS[terms["kind"]](**terms)).items():
        (tmp_path / file).write_text(text)
    done = subprocess.run(["terraform", "fmt", "-check", "-diff"], cwd=tmp_path, capture_output=True, text=True,
                          check=False)  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
