"""The status page of a gateway, read over HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import httpx

from tonnage.errors import TonnageError
from tonnage.gateway.addresses import local_url
from tonnage.gateway.file.described import Gateway
from tonnage.http.urls import without_secrets

SCHEMA: Final = "tonnage/gateway-status@1"


class NoGateway(TonnageError):
    """No gateway answers where one was expected."""


def status_url(gateway: Gateway) -> str:
    """Where the gateway of a file shows its figures: its own port for them, else the door."""
    listen = gateway.listen
    host, port = listen.host, listen.port
    if listen.admin_port is not None:
        host, port = listen.admin_host, listen.admin_port
    return local_url(host, port)


def look(client: httpx.Client, url: str, key: str | None) -> Mapping[str, Any]:
    """The status of a gateway now. NoGateway where none answers, where it wants a key, where it is something else."""
    place = without_secrets(url)
    headers = {} if key is None else {"authorization": f"Bearer {key}"}
    try:
        answer = client.get(f"{url.rstrip('/')}/gateway", headers=headers)
    except httpx.HTTPError as error:
        raise NoGateway(f"no gateway answers at {place}: {error or type(error).__name__}",
                        hint="start it: tonnage gateway FILE; or name its address") from error  # fmt: skip
    if answer.status_code == httpx.codes.UNAUTHORIZED:
        raise NoGateway(
            f"{place} asks for the key of its figures", hint="--key env:NAME, with what `listen.admin_key` has"
        )
    try:
        found = answer.json()
    except ValueError:
        found = None
    if answer.status_code != httpx.codes.OK or not isinstance(found, dict) or found.get("schema") != SCHEMA:
        raise NoGateway(f"{place} shows no figures of a gateway (it answered {answer.status_code})",
                        hint="a door that other machines reach shows them on `listen.admin_port` alone")  # fmt: skip
    return found
