"""Which members, types and values DigitalOcean takes of a droplet and a Spaces key, recorded from its OpenAPI document.

    git clone --depth 1 https://github.com/digitalocean/openapi
    python benchmarks/record_digitalocean_schema.py openapi/specification

Writes `src/tonnage/places/digitalocean/schema.json`: names, types, enums, patterns and lengths alone.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import yaml

FILE = Path(__file__).parents[1] / "src" / "tonnage" / "places" / "digitalocean" / "schema.json"
ROOTS = {
    "Droplet": "resources/droplets/models/droplet_single_create.yml",
    "SpacesKey": "resources/spaces/models/key.yml",
}
KEPT = ("type", "enum", "pattern", "maxLength", "minItems")


def shape_of(value: dict[str, Any], file: Path) -> dict[str, Any]:
    """A part of the document with what it refers to in place; `readOnly` members are left out."""
    if "$ref" in value:
        name, _, inside = value["$ref"].partition("#/")
        path = (file.parent / name).resolve()
        found: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
        for key in filter(None, inside.split("/")):
            found = found[key]
        return shape_of(found, path)
    if "allOf" in value:
        made: dict[str, Any] = {}
        for one in value["allOf"]:
            part = shape_of(one, file)
            made["properties"] = {**made.get("properties", {}), **part.pop("properties", {})}
            made["*required"] = sorted({*made.get("*required", ()), *part.pop("*required", ())})
            made |= part
        return {key: one for key, one in made.items() if one}
    for word in ("anyOf", "oneOf"):
        if word in value:
            return {"anyOf": [shape_of(one, file) for one in value[word]]}
    found = {key: value[key] for key in KEPT if key in value}
    if "items" in value:
        found["items"] = shape_of(value["items"], file)
    if "properties" in value:
        members = {key: one for key, one in value["properties"].items() if not one.get("readOnly")}
        found["properties"] = {key: shape_of(one, file) for key, one in sorted(members.items())}
    if "required" in value:
        found["*required"] = value["required"]
    return found


def excerpt(specification: Path) -> dict[str, Any]:
    """The schemas of what is sent, by name."""
    schemas = {}
    for name, path in ROOTS.items():
        shape = shape_of({"$ref": path}, specification / "root.yml")
        schemas[name] = {**shape["properties"], "*required": shape.get("*required", [])}
    return {"service": "DigitalOcean API v2", "schemas": schemas}


if __name__ == "__main__":
    FILE.write_text(json.dumps(excerpt(Path(sys.argv[1])), indent=1) + "\n", encoding="utf-8")
    sys.stdout.write(f"{FILE}: {FILE.stat().st_size} bytes\n")
