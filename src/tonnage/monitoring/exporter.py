"""A page for Prometheus on a run: read from its folder each time it is asked for, in base units."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from datetime import UTC, datetime
from threading import Thread
from typing import TYPE_CHECKING, Any, Final
from wsgiref.simple_server import WSGIServer

from tonnage.errors import MissingExtra
from tonnage.monitoring.run_figures import run_figures
from tonnage.runs.folder import RunFolder
from tonnage.runs.journal import EventKind

if TYPE_CHECKING:
    from prometheus_client.core import Metric

TRIES: Final = 10  # ports looked at, from the one asked for upwards


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
