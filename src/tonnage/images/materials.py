"""The bill of materials of an image: what pip and Debian installed, as CycloneDX 1.6.

Source: CycloneDX v1.6, cyclonedx.org/docs/1.6/json; package URLs: github.com/package-url/purl-spec (pypi, deb).
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping
from typing import Any, Final
from urllib.parse import quote

from tonnage.errors import DataError
from tonnage.images.pins import normal_name

_SPACE: Final = uuid.UUID("5a0cf1b2-6c1e-5d3b-9f52-0d5a9a6c7d11")


def bill_of_materials(image: str, digest: str, pip: Mapping[str, Any], system: str) -> str:
    """JSON of an image's packages. `pip`: what `pip inspect` prints; `system`: lines NAME<tab>VERSION of dpkg-query.

    The same packages in the same image give the same text. Raises DataError where `pip` is not what pip prints.
    """
    try:
        python = [_python_part(one["metadata"]) for one in pip["installed"]]
    except (KeyError, TypeError) as error:
        raise DataError(f"the list of packages in {image} is not what `pip inspect` prints: {error}") from error
    parts = sorted([*python, *_system_parts(system.splitlines())], key=lambda part: str(part["purl"]))
    document = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(_SPACE, json.dumps([image, digest, parts]))}",
        "version": 1,
        "metadata": {"component": {"type": "container", "bom-ref": digest, "name": image, "version": digest}},
        "components": parts,
    }
    return json.dumps(document, indent=1) + "\n"


def _python_part(metadata: Mapping[str, Any]) -> dict[str, Any]:
    name, version = normal_name(metadata["name"]), metadata["version"]
    purl = f"pkg:pypi/{name}@{quote(version, safe='.')}"
    part: dict[str, Any] = {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}
    if expression := metadata.get("license_expression"):
        part["licenses"] = [{"expression": expression}]
    return part


def _system_parts(lines: Iterable[str]) -> Iterable[dict[str, Any]]:
    for line in lines:
        name, tab, version = line.partition("\t")
        if not tab:
            continue
        plain = name.partition(":")[0]
        purl = f"pkg:deb/debian/{plain}@{quote(version, safe='.')}"
        yield {"type": "library", "bom-ref": purl, "name": plain, "version": version, "purl": purl}
