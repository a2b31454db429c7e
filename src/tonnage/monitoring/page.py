"""What a watch sees, as one page for Prometheus: figures of runs and scraped pages, and the alerts."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from tonnage.errors import InputError, MissingExtra
from tonnage.metric_names import REGISTRY, find_metric
from tonnage.monitoring.alerts.engine import AlertState
from tonnage.monitoring.figures import SeriesKey

if TYPE_CHECKING:
    from prometheus_client.core import Metric


class WatchPage:
    """The newest round, served at `http://ADDRESS:PORT/metrics` from a thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._figures: Mapping[SeriesKey, float] = {}
        self._alerts: list[tuple[str, SeriesKey, AlertState]] = []

    def show(self, figures: Mapping[SeriesKey, float], alerts: Mapping[tuple[str, SeriesKey], AlertState]) -> None:
        """Put a round in the place of the one before."""
        with self._lock:
            self._figures = figures
            self._alerts = [(rule, key, state) for (rule, key), state in alerts.items()]

    def serve(self, port: int, *, address: str = "127.0.0.1") -> int:
        """Begin; the port that is served. MissingExtra without prometheus-client, InputError where it is taken."""
        try:
            from prometheus_client import CollectorRegistry, start_http_server
        except ModuleNotFoundError as error:
            raise MissingExtra("the page of the watch", "serve") from error
        registry = CollectorRegistry()
        registry.register(self)
        try:
            server, _ = start_http_server(port, addr=address, registry=registry)
        except OSError as error:
            raise InputError(
                f"port {port} cannot be listened on: {error.strerror}", hint="--port 0 takes a free one"
            ) from error
        return int(server.server_port)

    def collect(self) -> Iterator[Metric]:
        """What `prometheus_client` asks at each scrape. Samples are under their own names; of pages of others their
        kind is not known."""
        from prometheus_client.core import Metric as Family

        with self._lock:
            figures, alerts = self._figures, self._alerts
        families: dict[str, Any] = {}
        for key, value in figures.items():
            known = find_metric(key.metric)
            name = key.metric if known is None else known.family
            if name not in families:
                said, kind = ("As seen by tonnage watch", "unknown") if known is None else (known.help, known.kind)
                families[name] = Family(name, said, "gauge" if kind == "info" else kind)
            families[name].add_sample(key.metric, dict(key.labels), value)
        alerts_of = REGISTRY["tonnage_watch_alert_state"]
        state = Family(alerts_of.name, alerts_of.help, alerts_of.kind)
        for rule, key, one in alerts:
            labels = {"rule": rule, "state": one.status, "series": key.text}
            state.add_sample(alerts_of.name, labels, 1.0)
        yield from families.values()
        yield state
