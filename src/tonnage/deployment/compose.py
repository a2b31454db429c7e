"""A Compose file with its Dockerfile (the Compose Specification, compose-spec.io, 2024)."""

from __future__ import annotations

from typing import Any, Final

import yaml

from tonnage.deployment.described import FILES, Deployed, dockerfile

PROBE: Final = (
    "import sys, urllib.request as r; sys.exit(r.urlopen('http://127.0.0.1:{port}{path}', timeout=5).status != 200)"
)


def compose_files(what: Deployed) -> dict[str, str]:
    """Name -> text of `compose.yaml`, and of `Dockerfile` where no image was named."""
    service: dict[str, Any] = {
        "image": what.image_name,
        "command": list(what.in_container()),
        "restart": "unless-stopped",
        "init": True,
        "read_only": True,
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges:true"],
        "tmpfs": ["/tmp"],
        "volumes": ["home:/home/tonnage/home"],
        "stop_grace_period": "330s",
        "mem_limit": f"{what.memory_gib:g}g",
        "cpus": what.cpus,
    }
    if what.image is None:
        service["build"] = {"context": "."}
    if what.files:
        service["volumes"].append(f"./files:{FILES}:ro")
    if what.secrets:
        service["env_file"] = [f"{what.name}.env"]
    if what.port is not None:
        service["ports"] = [f"127.0.0.1:{what.port}:{what.port}"]
        service["healthcheck"] = {
            "test": ["CMD", "python", "-c", PROBE.format(port=what.port, path=what.health)],
            "interval": "10s", "timeout": "6s", "retries": 3, "start_period": "900s",
        }  # fmt: skip
    if what.gpus:
        service["deploy"] = {"resources": {"reservations": {"devices": [
            {"driver": "nvidia", "count": what.gpus, "capabilities": ["gpu"]}]}}}  # fmt: skip
    found = {"name": f"tonnage-{what.name}", "services": {what.name: service}, "volumes": {"home": {}}}
    files = {"compose.yaml": yaml.safe_dump(found, sort_keys=False, width=110)}
    return files if what.image is not None else files | {"Dockerfile": dockerfile(what)}
