"""Which members, types and values Azure takes of virtual machines and of Azure ML's jobs, by its own Python models.

    pip install azure-mgmt-compute azure-ai-ml
    python benchmarks/record_azure_schema.py

Writes `vm_schema.json` and `job_schema.json` of `src/tonnage/places/azure`: names, types and enums alone, without what
the services fill in.
"""

from __future__ import annotations

import enum
import json
import sys
import types
import typing
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "src" / "tonnage" / "places" / "azure"
SCALARS = {str: "string", bool: "boolean", int: "integer", float: "number"}


@dataclass(frozen=True, kw_only=True)
class Record:
    """One file: of which library, from which models on."""

    file: Path
    library: str  # as PyPI names it
    package: str  # with its models
    version: str  # the module that says its version
    service: str
    roots: tuple[str, ...]
    growing: tuple[str, ...] = ()  # members whose list of values the models do not keep up with
    instead: tuple[tuple[str, str], ...] = ()  # of a base class the one that is sent


MACHINES = Record(
    file=FOLDER / "vm_schema.json", library="azure-mgmt-compute", package="azure.mgmt.compute",
    version="azure.mgmt.compute._version", service="Microsoft.Compute", growing=("vm_size",),
    roots=("VirtualMachine", "VirtualMachineScaleSet"),
)  # fmt: skip
JOBS = Record(
    file=FOLDER / "job_schema.json", library="azure-ai-ml", package="azure.ai.ml._restclient.arm_ml_service",
    version="azure.ai.ml._version", service="Microsoft.MachineLearningServices",
    roots=("JobBase", "EnvironmentVersion"),
    instead=(("JobBaseProperties", "CommandJob"), ("DistributionConfiguration", "PyTorch"),
             ("IdentityConfiguration", "ManagedIdentity")),
)  # fmt: skip


def excerpt(record: Record = MACHINES) -> dict[str, Any]:
    """The schemas that the roots are made of, by name. SystemExit where the library is not installed."""
    try:
        models = import_module(f"{record.package}.models")
        version = import_module(record.version).VERSION
    except ImportError:
        raise SystemExit(f"pip install {record.library}") from None
    found: dict[str, Any] = {}
    left = [getattr(models, root) for root in record.roots]
    while left:
        model = left.pop()
        if model.__name__ in found:
            continue
        members: dict[str, Any] = {}
        found[model.__name__] = members
        for name, hint in _hints(model, record).items():
            field = model.__dict__.get(name) or next(
                (base.__dict__[name] for base in model.__mro__ if name in base.__dict__), None
            )
            if field is None or not hasattr(field, "_rest_name_input") or field._visibility == ["read"]:
                continue
            shape = _shape(hint, left, record)
            if name in record.growing:
                shape.pop("enum", None)
            members[field._rest_name_input or name] = shape
    return {
        "service": f"{record.service}, {record.library} {version}",
        "schemas": {name: dict(sorted(members.items())) for name, members in sorted(found.items())},
    }


def _hints(model: Any, record: Record) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for base in reversed(model.__mro__):
        if record.package in base.__module__ and base.__module__.endswith("_models"):
            scope = {**vars(sys.modules[base.__module__]), "_models": import_module(f"{record.package}.models")}
            found |= typing.get_type_hints(base, scope)
    return {name: hint for name, hint in found.items() if not name.startswith("_")}


def _shape(hint: Any, left: list[Any], record: Record) -> dict[str, Any]:
    origin, inside = typing.get_origin(hint), typing.get_args(hint)
    if origin in {typing.Union, types.UnionType}:
        some = [one for one in inside if one is not type(None)]
        listed = next((one for one in some if isinstance(one, type) and issubclass(one, enum.Enum)), None)
        if listed is not None:
            return {"type": "string", "enum": [str(one.value) for one in listed]}
        return _shape(some[0], left, record)
    if origin is typing.Literal:
        return {"type": "string", "enum": [str(getattr(one, "value", one)) for one in inside]}
    if origin is list:
        return {"type": "array", "items": _shape(inside[0], left, record)}
    if origin is dict:
        return {"type": "object", "additionalProperties": _shape(inside[1], left, record)}
    if hint in SCALARS:
        return {"type": SCALARS[hint]}
    if isinstance(hint, type) and record.package in hint.__module__:
        name = dict(record.instead).get(hint.__name__, hint.__name__)
        left.append(getattr(import_module(f"{record.package}.models"), name))
        return {"$ref": name}
    return {"type": "string"} if getattr(hint, "__module__", "") == "datetime" else {}


if __name__ == "__main__":
    for one in (MACHINES, JOBS):
        one.file.write_text(json.dumps(excerpt(one), indent=1) + "\n", encoding="utf-8")
        sys.stdout.write(f"{one.file}: {one.file.stat().st_size} bytes\n")
