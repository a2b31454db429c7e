"""Which members, types and values Azure takes of a virtual machine, recorded from its own Python models.

    pip install azure-mgmt-compute
    python benchmarks/record_azure_schema.py

Writes `src/tonnage/places/azure/vm_schema.json`: names, types and enums alone, without what the service fills in.
"""

from __future__ import annotations

import enum
import json
import sys
import types
import typing
from importlib import import_module
from pathlib import Path
from typing import Any

FILE = Path(__file__).parents[1] / "src" / "tonnage" / "places" / "azure" / "vm_schema.json"
ROOT = "VirtualMachine"
GROWING = {"vm_size"}  # whose list of values the models do not keep up with
SCALARS = {str: "string", bool: "boolean", int: "integer", float: "number"}


def excerpt() -> dict[str, Any]:
    """The schemas that a virtual machine is made of, by name. SystemExit where the library is not installed."""
    try:
        models = import_module("azure.mgmt.compute.models")
        version = import_module("azure.mgmt.compute._version").VERSION
    except ImportError:
        raise SystemExit("pip install azure-mgmt-compute") from None
    found: dict[str, Any] = {}
    left = [getattr(models, ROOT)]
    while left:
        model = left.pop()
        if model.__name__ in found:
            continue
        members: dict[str, Any] = {}
        found[model.__name__] = members
        for name, hint in _hints(model).items():
            field = model.__dict__.get(name) or next(
                (base.__dict__[name] for base in model.__mro__ if name in base.__dict__), None
            )
            if field is None or not hasattr(field, "_rest_name_input") or field._visibility == ["read"]:
                continue
            shape = _shape(hint, left)
            if name in GROWING:
                shape.pop("enum", None)
            members[field._rest_name_input or name] = shape
    return {
        "service": f"Microsoft.Compute, azure-mgmt-compute {version}",
        "schemas": {name: dict(sorted(members.items())) for name, members in sorted(found.items())},
    }


def _hints(model: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for base in reversed(model.__mro__):
        if "azure.mgmt.compute" in base.__module__ and base.__module__.endswith("_models"):
            scope = {**vars(sys.modules[base.__module__]), "_models": import_module("azure.mgmt.compute.models")}
            found |= typing.get_type_hints(base, scope)
    return {name: hint for name, hint in found.items() if not name.startswith("_")}


def _shape(hint: Any, left: list[Any]) -> dict[str, Any]:
    origin, inside = typing.get_origin(hint), typing.get_args(hint)
    if origin in {typing.Union, types.UnionType}:
        some = [one for one in inside if one is not type(None)]
        listed = next((one for one in some if isinstance(one, type) and issubclass(one, enum.Enum)), None)
        if listed is not None:
            return {"type": "string", "enum": [str(one.value) for one in listed]}
        return _shape(some[0], left)
    if origin is list:
        return {"type": "array", "items": _shape(inside[0], left)}
    if origin is dict:
        return {"type": "object", "additionalProperties": _shape(inside[1], left)}
    if hint in SCALARS:
        return {"type": SCALARS[hint]}
    if isinstance(hint, type) and "azure.mgmt.compute" in hint.__module__:
        left.append(hint)
        return {"$ref": hint.__name__}
    return {"type": "string"} if getattr(hint, "__module__", "") == "datetime" else {}


if __name__ == "__main__":
    FILE.write_text(json.dumps(excerpt(), indent=1) + "\n", encoding="utf-8")
    sys.stdout.write(f"{FILE}: {FILE.stat().st_size} bytes\n")
