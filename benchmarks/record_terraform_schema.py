"""Which arguments and blocks the Terraform providers of Google and Azure take of what our files name.

    pip download --no-deps --dest FOLDER cdktf-cdktf-provider-google cdktf-cdktf-provider-azurerm
    python benchmarks/record_terraform_schema.py FOLDER

The prebuilt bindings of Terraform's CDK are written from the providers' own schemas: each class of arguments is one of
a resource or a block. Writes `tests/places/terraform/providers.json`: names, which of them have to be there, and which
are blocks. It says neither which values a provider takes nor what its services refuse.
"""

from __future__ import annotations

import ast
import json
import re
import sys
import zipfile
from pathlib import Path
from typing import Any

FILE = Path(__file__).parents[1] / "tests" / "places" / "terraform" / "providers.json"
NAMES = {  # Terraform's name of a provider: the package, and the types that our files name
    "google": ("google", (
        "google_artifact_registry_repository_iam_member", "google_compute_firewall", "google_compute_network",
        "google_compute_router", "google_compute_router_nat", "google_compute_subnetwork",
        "google_project_iam_custom_role", "google_project_iam_member", "google_project_service",
        "google_secret_manager_secret_iam_member", "google_service_account", "google_service_account_iam_member",
        "google_storage_bucket", "google_storage_bucket_iam_member",
    )),
    "azurerm": ("azurerm", (
        "azurerm_nat_gateway", "azurerm_nat_gateway_public_ip_association", "azurerm_network_security_group",
        "azurerm_public_ip", "azurerm_resource_group", "azurerm_role_assignment", "azurerm_role_definition",
        "azurerm_storage_account", "azurerm_storage_container", "azurerm_storage_management_policy", "azurerm_subnet",
        "azurerm_subnet_nat_gateway_association", "azurerm_subnet_network_security_group_association",
        "azurerm_user_assigned_identity", "azurerm_virtual_network",
    )),
}  # fmt: skip
META = {"connection", "count", "depends_on", "for_each", "lifecycle", "provider", "provisioners"}


def shape(module: ast.Module, name: str) -> dict[str, Any]:
    """Arguments of a class: `required`, `plain` names, and `blocks` with their own shapes."""
    classes = {one.name: one for one in module.body if isinstance(one, ast.ClassDef)}
    start = next(one for one in classes[name].body if isinstance(one, ast.FunctionDef) and one.name == "__init__")
    found: dict[str, Any] = {"required": [], "plain": [], "blocks": {}}
    for argument, default in zip(start.args.kwonlyargs, start.args.kw_defaults, strict=True):
        if argument.arg in META:
            continue
        told = ast.unparse(argument.annotation) if argument.annotation else ""
        inner = next((one for one in re.findall(r"\b[A-Z]\w+", told) if one in classes), None)
        key = argument.arg.rstrip("_")
        if default is None:
            found["required"].append(key)
        if inner is None:
            found["plain"].append(key)
        else:
            found["blocks"][key] = shape(module, inner)
    return found


def recorded(folder: Path) -> dict[str, Any]:
    """All types by their names, with the package that told them."""
    told: dict[str, Any] = {"packages": {}, "types": {}}
    for provider, (package, types) in NAMES.items():
        [wheel] = folder.glob(f"cdktf_cdktf_provider_{package}-*.whl")
        told["packages"][provider] = wheel.name.split("-")[1]
        with zipfile.ZipFile(wheel) as file:
            for one in types:
                short = one.removeprefix(f"{provider}_")
                path = f"cdktf_cdktf_provider_{package}/{short}/__init__.py"
                module = ast.parse(file.read(path))
                name = "".join(part.capitalize() for part in short.split("_"))
                told["types"][one] = shape(module, f"{name}Config")
    return told


if __name__ == "__main__":
    FILE.write_text(json.dumps(recorded(Path(sys.argv[1])), indent=1, sort_keys=True) + "\n", encoding="utf-8")
    sys.stdout.write(f"{FILE}: {FILE.stat().st_size} bytes\n")
