"""A share of a route's requests for a new deployment, ended where it fails too often."""

from __future__ import annotations

from collections import deque
from hashlib import blake2b
from typing import Final

from tonnage.gateway.file.conduct_entries import CanaryEntry
from tonnage.gateway.file.described import Caller
from tonnage.gateway.measures import GatewayMeasures

FEWEST_ATTEMPTS: Final = 20  # below which a share of failures says nothing
MOST_ATTEMPTS: Final = 200  # of the last ones, which count
PARTS: Final = 10_000


class Canary:
    """Of one route in one worker. The same conversation of the same key goes the same way."""

    def __init__(self, route: str, entry: CanaryEntry, measures: GatewayMeasures) -> None:
        self.route, self.entry, self._measures = route, entry, measures
        self.stopped = False
        self._failed: deque[bool] = deque(maxlen=MOST_ATTEMPTS)

    def drawn(self, caller: Caller, prefix: bytes) -> str | None:
        """The new deployment, for a request that is to try it."""
        if self.stopped:
            return None
        found = blake2b(prefix, digest_size=8, key=caller.name.encode()[:64], person=b"canary").digest()
        return self.entry.deployment if int.from_bytes(found) % PARTS < self.entry.percent * PARTS / 100 else None

    def told(self, deployment: str, *, failed: bool) -> None:
        """What became of an attempt of the route."""
        new = deployment == self.entry.deployment
        labels = (("route", self.route), ("side", "canary" if new else "base"), ("met", "failed" if failed else "ok"))
        self._measures.count("tonnage_gateway_canary_total", labels)
        if not new:
            return
        self._failed.append(failed)
        share = sum(self._failed) / len(self._failed)
        if len(self._failed) >= FEWEST_ATTEMPTS and share * 100 > self.entry.stop_percent and not self.stopped:
            self.stopped = True
            labels = (("route", self.route), ("side", "canary"), ("met", "stopped"))
            self._measures.count("tonnage_gateway_canary_total", labels)
