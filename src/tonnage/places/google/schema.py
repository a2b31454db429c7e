"""What Compute Engine would refuse of an instance, by the members, types and values of its discovery document.

`instance_schema.json` has them; `benchmarks/record_google_schema.py` wrote it. What the service checks beyond them
(that a network is there, that two members agree) only the service knows.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Any, Final

from tonnage.errors import InputError

ROOT: Final = "Instance"
NUMBERS: Final = {"integer": int, "number": (int, float)}


def check_instance(body: Mapping[str, Any]) -> None:
    """InputError with every fault."""
    found = list(faults(body, {"$ref": ROOT}, ""))
    if found:
        raise InputError(f"instances.insert would refuse the request: {'; '.join(found)}", hint="correct what is named")


@cache
def _schemas() -> dict[str, Any]:
    text = files(__package__).joinpath("instance_schema.json").read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text)["schemas"]
    return found


def faults(value: Any, told: Mapping[str, Any], where: str) -> Iterator[str]:
    """Each thing that the document does not know, with the path of its member."""
    if "$ref" in told or told.get("type") == "object":
        if not isinstance(value, Mapping):
            yield f"{where}: an object, not {value!r}"
        elif "additionalProperties" in told:
            for key, one in value.items():
                yield from faults(one, told["additionalProperties"], f"{where}.{key}")
        else:
            members = _schemas()[told["$ref"]] if "$ref" in told else told.get("properties", {})
            yield from _members(value, members, where)
    elif told.get("type") == "array":
        if not isinstance(value, list | tuple):
            yield f"{where}: a list, not {value!r}"
            return
        for at, one in enumerate(value):
            yield from faults(one, told["items"], f"{where}[{at}]")
    else:
        yield from _scalar(value, told, where)


def _members(value: Mapping[str, Any], members: Mapping[str, Any], where: str) -> Iterator[str]:
    for key, one in value.items():
        inside = f"{where}.{key}".lstrip(".")
        if key not in members:
            yield f"{inside}: there is no such member"
        else:
            yield from faults(one, members[key], inside)


def _scalar(value: Any, told: Mapping[str, Any], where: str) -> Iterator[str]:
    kind = told.get("type")
    if kind == "boolean":
        if not isinstance(value, bool):
            yield f"{where}: true or false, not {value!r}"
    elif kind in NUMBERS:
        if isinstance(value, bool) or not isinstance(value, NUMBERS[kind]):  # type: ignore[arg-type]
            yield f"{where}: a number, not {value!r}"
    elif kind == "string":
        if not isinstance(value, str):
            yield f"{where}: a text, not {value!r}"
        elif "enum" in told and value not in told["enum"]:
            yield f"{where}: {value!r} is none of {', '.join(told['enum'])}"
        elif told.get("format") in {"int64", "uint64"} and not value.lstrip("-").isdigit():
            yield f"{where}: digits as a text, not {value!r}"
