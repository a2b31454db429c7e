"""The cells that attempts of a route at a deployment count in, found once."""

from __future__ import annotations

from tonnage.gateway.dialects.usage import Usage
from tonnage.gateway.measures import GatewayMeasures, add_time
from tonnage.gateway.money.rates import PICO_PER_USD


class KeyMeter:
    """One key."""

    __slots__ = ("_input", "_output", "_usd", "requests")

    def __init__(self, measures: GatewayMeasures, key: str, team: str) -> None:
        labels = (("key", key), ("team", team))
        self.requests = measures.cell("tonnage_gateway_key_requests_total", labels)
        self._input = measures.cell("tonnage_gateway_key_tokens_total", (*labels, ("kind", "input")))
        self._output = measures.cell("tonnage_gateway_key_tokens_total", (*labels, ("kind", "output")))
        self._usd = measures.cell("tonnage_gateway_key_usd_total", labels)

    def settled(self, usage: Usage, usd_pico: int) -> None:
        self._input[0] += usage.input_tokens
        self._output[0] += usage.output_tokens
        self._usd[0] += usd_pico / PICO_PER_USD


class RouteMeter:
    """One route at one deployment."""

    __slots__ = (
        "_first_byte",
        "_input",
        "_latency",
        "_measures",
        "_output",
        "_statuses",
        "_usd",
        "deployment",
        "route",
    )

    def __init__(self, measures: GatewayMeasures, route: str, deployment: str) -> None:
        self._measures, self.route, self.deployment = measures, route, deployment
        labels = (("route", route), ("deployment", deployment))
        self._latency = measures.histogram("tonnage_gateway_latency_seconds", labels)
        self._first_byte = measures.histogram("tonnage_gateway_first_byte_seconds", labels)
        self._input = measures.cell("tonnage_gateway_tokens_total", (*labels, ("kind", "input")))
        self._output = measures.cell("tonnage_gateway_tokens_total", (*labels, ("kind", "output")))
        self._usd = measures.cell("tonnage_gateway_usd_total", labels)
        self._statuses: dict[int, list[float]] = {}

    def answered(self, status: int) -> None:
        """A client has been answered."""
        cell = self._statuses.get(status)
        if cell is None:
            labels = (("route", self.route), ("deployment", self.deployment), ("status", str(status)))
            cell = self._statuses[status] = self._measures.cell("tonnage_gateway_requests_total", labels)
        cell[0] += 1

    def settled(self, usage: Usage | None, usd_pico: int, first_byte_s: float | None, latency_s: float) -> None:
        add_time(self._latency, latency_s)
        if first_byte_s is not None:
            add_time(self._first_byte, first_byte_s)
        if usage is not None:
            self._input[0] += usage.input_tokens
            self._output[0] += usage.output_tokens
            self._usd[0] += usd_pico / PICO_PER_USD

    def fault(self, kind: str) -> None:
        self._measures.count("tonnage_gateway_faults_total", (("deployment", self.deployment), ("kind", kind)))

    def retried(self) -> None:
        self._measures.count("tonnage_gateway_retries_total", (("deployment", self.deployment),))

    def over_hold(self) -> None:
        self._measures.count("tonnage_gateway_over_hold_total", (("deployment", self.deployment),))
