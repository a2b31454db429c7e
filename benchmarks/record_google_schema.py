"""Which members, types and values Compute Engine takes of instances and disks, and Vertex AI of jobs, as documented.

    pip install google-api-python-client
    python benchmarks/record_google_schema.py

Writes `instance_schema.json`, `disk_schema.json` and `custom_job_schema.json` of `src/tonnage/places/google`, from the
discovery documents: names, types and enums alone, without what the API fills in.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "src" / "tonnage" / "places" / "google"
FILE = FOLDER / "instance_schema.json"
ROOTS = ("Instance", "BulkInsertInstanceResource")
DISKS_FILE = FOLDER / "disk_schema.json"
DISK_ROOTS = ("Disk", "Snapshot", "ZoneSetLabelsRequest")
JOBS_FILE = FOLDER / "custom_job_schema.json"
JOB_ROOT = "GoogleCloudAiplatformV1CustomJob"


def document(name: str = "compute.v1.json") -> dict[str, Any]:
    """A discovery document of the installed client library. SystemExit where there is none."""
    found = find_spec("googleapiclient")
    if found is None or found.origin is None:
        raise SystemExit("pip install google-api-python-client")
    path = Path(found.origin).parent / "discovery_cache" / "documents" / name
    told: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return told


def excerpt(told: dict[str, Any], *roots: str, service: str = "compute v1") -> dict[str, Any]:
    """The schemas that instances, or other roots, are made of, by name."""
    found: dict[str, Any] = {}
    left = [*(roots or ROOTS)]
    while left:
        name = left.pop()
        if name in found:
            continue
        members = told["schemas"][name].get("properties", {})
        taken = {
            key: _part(one) for key, one in members.items()
            if "[Output Only]" not in one.get("description", "") and not one.get("readOnly")
        }  # fmt: skip
        found[name] = dict(sorted(taken.items()))
        left += list(_references(list(taken.values())))
    return {"service": service, "revision": told["revision"], "schemas": dict(sorted(found.items()))}


def _part(member: dict[str, Any]) -> dict[str, Any]:
    kept = {key: member[key] for key in ("$ref", "type", "format", "enum") if key in member}
    kept |= {key: _part(member[key]) for key in ("items", "additionalProperties") if key in member}
    if "properties" in member:
        kept["properties"] = {key: _part(one) for key, one in member["properties"].items()}
    return kept


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for one in value.values():
            yield from _references(one)
    elif isinstance(value, list):
        for one in value:
            yield from _references(one)


if __name__ == "__main__":
    jobs = excerpt(document("aiplatform.v1.json"), JOB_ROOT, service="aiplatform v1")
    disks = excerpt(document(), *DISK_ROOTS)
    for file, told in ((FILE, excerpt(document())), (DISKS_FILE, disks), (JOBS_FILE, jobs)):
        file.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
        sys.stdout.write(f"{file}: {file.stat().st_size} bytes\n")
