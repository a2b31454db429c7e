"""What Compute Engine would refuse of an instance, by the members, types and values of its discovery document.

`instance_schema.json` has them; `benchmarks/record_google_schema.py` wrote it. What the service checks beyond them
(that a network is there, that two members agree) only the service knows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tonnage.http.body_shapes import Schemas, check_body, recorded_schemas

ROOT: Final = "Instance"


def instance_schemas() -> Schemas:
    """The recorded ones."""
    return recorded_schemas(__package__, "instance_schema.json")


def check_instance(body: Mapping[str, Any]) -> None:
    """InputError with every fault."""
    check_body(body, instance_schemas(), ROOT, "instances.insert")
