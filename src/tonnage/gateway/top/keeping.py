"""Looks at running gateways: the status page, read over HTTP, and looks that are kept for a while, so that the next
reader has an earlier one to compare with.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from threading import Lock
from time import monotonic, sleep
from typing import Any, Final

import httpx

from tonnage.errors import TonnageError
from tonnage.gateway.addresses import local_url
from tonnage.gateway.file.described import Gateway
from tonnage.gateway.top.rates import Top, happened
from tonnage.http.urls import without_secrets

LEAST_S: Final = 1.0  # between two looks whose difference is shown
LONGEST_S: Final = 60.0
MOST_LOOKS: Final = 64
Status = Mapping[str, Any]
SCHEMA: Final = "tonnage/gateway-status@1"


class GatewayLooks:
    """What gateways did lately. `key` gives the bearer of their figures, where they ask for one."""

    def __init__(
        self, key: Callable[[], str | None] = lambda: None, *, clock: Callable[[], float] = monotonic,
        wait: Callable[[float], None] = sleep, timeout_s: float = 5.0,
    ) -> None:  # fmt: skip
        self._key, self._clock, self._wait, self._timeout_s = key, clock, wait, timeout_s
        self._kept: dict[str, deque[tuple[float, Status]]] = {}
        self._lock = Lock()

    def top(self, url: str) -> Top:
        """What happened at a gateway since the newest look that is at least a second old; a first reader waits.

        Raises NoGateway where none answers.
        """
        with httpx.Client(timeout=self._timeout_s) as client:
            after = self._look(client, url)
            before = self._earlier(url)
            if before is None:
                self._wait(LEAST_S)
                before, after = after, self._look(client, url)
        return happened(before[1], after[1])

    def _look(self, client: httpx.Client, url: str) -> tuple[float, Status]:
        found = (self._clock(), look(client, url, self._key()))
        with self._lock:
            self._kept.setdefault(url, deque(maxlen=MOST_LOOKS)).append(found)
        return found

    def _earlier(self, url: str) -> tuple[float, Status] | None:
        now = self._clock()
        with self._lock:
            kept = reversed(self._kept[url])
            return next((one for one in kept if LEAST_S <= now - one[0] <= LONGEST_S), None)


class NoGateway(TonnageError):
    """No gateway answers where one was expected."""


def status_url(gateway: Gateway) -> str:
    """Where the gateway of a file shows its figures: its own port for them, else the one for clients."""
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
                        hint="a port that other machines reach shows them on `listen.admin_port` alone")  # fmt: skip
    return found
