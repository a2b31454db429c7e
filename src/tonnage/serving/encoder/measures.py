"""What Prometheus reads of an encoder server: requests by endpoint and status, their time, and what waits."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from tonnage.errors import MissingExtra
from tonnage.metric_names import REGISTRY
from tonnage.serving.encoder.engine import Encoder
from tonnage.serving.encoder.versions import Versions
from tonnage.serving.engines.engine import RUNNING, WAITING

_SUMS: Final[Mapping[str, Callable[[Encoder], float]]] = {
    WAITING: lambda one: one.batcher.waiting,
    RUNNING: lambda one: one.batcher.computing,
    "tonnage_encoder_texts_total": lambda one: one.batcher.computed,
    "tonnage_encoder_batches_total": lambda one: one.batcher.batches,
    "tonnage_encoder_queue_seconds_total": lambda one: one.batcher.queue_s,
    "tonnage_encoder_batch_seconds_total": lambda one: one.batcher.batch_s,
    "tonnage_encoder_kept_answers_total": lambda one: one.hits,
}
BUCKETS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Measures:
    """Counters of one server, in a registry of its own."""

    def __init__(self, versions: Versions) -> None:
        try:
            library: Any = importlib.import_module("prometheus_client")
        except ImportError as error:
            raise MissingExtra("metrics of a server", "serve") from error
        self._library, self._registry = library, library.CollectorRegistry()
        registry = self._registry
        requests, seconds = REGISTRY["tonnage_encoder_requests_total"], REGISTRY["tonnage_encoder_request_seconds"]
        self._requests = library.Counter(requests.family, requests.help, requests.labels, registry=registry)
        self._seconds = library.Histogram(
            seconds.family, seconds.help, seconds.labels, registry=registry, buckets=BUCKETS_S
        )
        self._children: dict[tuple[str, int], tuple[Any, Any]] = {}
        registry.register(_Sums(versions))

    def count(self, endpoint: str, status: int, seconds: float) -> None:
        """One request."""
        key = (endpoint, status)
        if key not in self._children:
            self._children[key] = (self._requests.labels(endpoint, str(status)), self._seconds.labels(endpoint))
        requests, times = self._children[key]
        requests.inc()
        times.observe(seconds)

    def text(self) -> bytes:
        """Prometheus' text."""
        made: bytes = self._library.generate_latest(self._registry)
        return made


class _Sums:
    """Figures of all versions that are loaded, read when they are asked for. A version that goes takes its counts
    with it, as a process that starts again does."""

    def __init__(self, versions: Versions) -> None:
        self._versions = versions

    def collect(self) -> Iterator[Any]:
        """What `prometheus_client` asks at each scrape."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        engines = list(self._versions.every())
        for name, read in _SUMS.items():
            known = REGISTRY[name]
            made = CounterMetricFamily if known.kind == "counter" else GaugeMetricFamily
            yield made(known.family, known.help, value=float(sum(read(one) for one in engines)))
