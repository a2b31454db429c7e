"""Pages for Prometheus: of a run, read from its folder each time it is asked for, in base units, and of what a watch
sees: figures of runs, scraped pages and alerts.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from threading import Thread
from typing import TYPE_CHECKING, Any, Final
from wsgiref.simple_server import WSGIServer

from tonnage.errors import InputError, MissingExtra
from tonnage.metric_names import REGISTRY, find_metric
from tonnage.monitoring.alerts.engine import AlertState
from tonnage.monitoring.figures import SeriesKey
from tonnage.monitoring.run_figures import run_figures
from tonnage.runs.folder import RunFolder
from tonnage.runs.journal import EventKind

if TYPE_CHECKING:
    from prometheus_client.core import Metric
TRIES: Final = 10  # ports looked at, from the one asked for upwards


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


class Exporter:
    """Serves `http://ADDRESS:PORT/metrics` from a thread. Where no port is free it says so in the journal; the run goes
    on without."""

    def __init__(self, folder: RunFolder, port: int, *, address: str = "127.0.0.1") -> None:
        self._folder, self._wanted, self._address = folder, port, address
        self._server: WSGIServer | None = None
        self._thread: Thread | None = None

    def start(self) -> int | None:
        """The port that is served, or None. MissingExtra without prometheus-client."""
        try:
            from prometheus_client import CollectorRegistry, start_http_server
        except ModuleNotFoundError as error:
            raise MissingExtra("the Prometheus endpoint", "train") from error
        registry = CollectorRegistry()
        registry.register(_Collector(self._folder))
        for port in [0] if self._wanted == 0 else range(self._wanted, min(self._wanted + TRIES, 65_536)):
            try:
                self._server, self._thread = start_http_server(port, addr=self._address, registry=registry)
            except OSError as error:
                if error.errno not in {errno.EADDRINUSE, errno.EACCES}:
                    return self._served(None, str(error))
            else:
                return self._served(self._server.server_port, "")
        return self._served(None, f"ports {self._wanted} to {self._wanted + TRIES - 1} are in use")

    def stop(self) -> None:
        if self._server is not None and self._thread is not None:
            self._server.shutdown()
            self._server.server_close()
            self._thread.join()
            self._server = self._thread = None

    def _served(self, port: int | None, message: str) -> int | None:
        said: dict[str, Any] = {"message": message} if message else {}
        self._folder.record(EventKind.EXPORTING, who="supervisor", port=port, wanted=self._wanted, **said)
        return port


class _Collector:
    """What `prometheus_client` asks at each scrape."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder

    def collect(self) -> Iterator[Metric]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        families: dict[str, Any] = {}
        for one in run_figures(self._folder, now=datetime.now(UTC)):
            known = one.metric
            if known.name not in families:
                made = CounterMetricFamily if known.kind == "counter" else GaugeMetricFamily
                families[known.name] = made(known.family, known.help, labels=list(one.labels))
            families[known.name].add_metric(list(one.labels.values()), one.value)
        yield from families.values()
