"""Rounds of figures sent as OpenTelemetry metrics, by OTLP over HTTP, from a thread of their own.

Names stay as they are on a page for Prometheus; kinds, units and meanings are the registry's. What is of another's page
is a gauge, as OpenTelemetry's rules of compatibility have it. Source: OpenTelemetry, «Prometheus and OpenMetrics
Compatibility», and «Metrics Data Model».
"""

from __future__ import annotations

import logging
import socket
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from itertools import pairwise
from threading import Condition, Thread
from typing import TYPE_CHECKING, Any, Final

from tonnage.errors import MissingExtra
from tonnage.metric_names import REGISTRY, find_metric
from tonnage.monitoring.alerts.rules import OtlpTarget
from tonnage.monitoring.figures import Figures, SeriesKey

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import Metric as SentMetric
    from opentelemetry.sdk.metrics.export import MetricsData

PATH: Final = "/v1/metrics"
SCOPE: Final = "tonnage.watch"
SEND_S: Final = 5.0
MOST_WAITING: Final = 30  # rounds; the oldest goes where the receiver is slower
NS_PER_S: Final = 1e9
_Round = tuple[float, Figures]


class OtlpWriter:
    """Sends rounds to one receiver. `say` is called when rounds begin to be lost, and when they are taken again."""

    def __init__(self, target: OtlpTarget, say: Callable[[str], None]) -> None:
        """MissingExtra without OpenTelemetry."""
        try:
            from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        except ImportError as error:
            raise MissingExtra("metrics by OTLP", "otel") from error
        self._target, self._say, self._losing = target, say, False
        self._made = OtlpRounds(service=target.service)
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)  # what it would say is said here, once
        base = target.endpoint.rstrip("/")
        url = base if base.endswith(PATH) else base + PATH
        self._exporter = OTLPMetricExporter(endpoint=url, headers=dict(target.headers), timeout=SEND_S)
        self._waiting: deque[_Round] = deque()
        self._changed, self._ending = Condition(), False
        self._thread = Thread(target=self._work, name="watch-otlp", daemon=True)
        self._thread.start()

    def put(self, at: float, figures: Figures) -> None:
        """One round, seconds since the epoch. Does not wait."""
        with self._changed:
            if len(self._waiting) >= MOST_WAITING:
                self._waiting.popleft()
                self._tell(taken=False, why="it is slower than the rounds")
            self._waiting.append((at, figures))
            self._changed.notify()

    def close(self) -> None:
        """What waits is sent, for `SEND_S` at most."""
        with self._changed:
            self._ending = True
            self._changed.notify()
        self._thread.join(2 * SEND_S)
        self._exporter.shutdown()

    def _work(self) -> None:
        while (one := self._next()) is not None:
            self._send(*one)

    def _next(self) -> _Round | None:
        with self._changed:
            while not self._waiting:
                if self._ending:
                    return None
                self._changed.wait()
            return self._waiting.popleft()

    def _send(self, at: float, figures: Figures) -> None:
        from opentelemetry.sdk.metrics.export import MetricExportResult

        try:
            sent = self._exporter.export(self._made.round(at, figures)) is MetricExportResult.SUCCESS
            why = "it takes none"
        except Exception as error:  # a library's: whatever it is, the watch goes on, and the next round is tried
            sent, why = False, f"{type(error).__name__}: {error}"
        self._tell(taken=sent, why=why)

    def _tell(self, *, taken: bool, why: str) -> None:
        if taken is self._losing:
            self._losing = not taken
            self._say(f"OTLP: {self._target.endpoint} takes figures again" if taken
                      else f"OTLP: figures are not sent to {self._target.endpoint}: {why}")  # fmt: skip


class OtlpRounds:
    """Rounds as OpenTelemetry's values. It remembers when each counter was first seen: OTLP asks since when it
    counts."""

    def __init__(self, *, service: str) -> None:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.util.instrumentation import InstrumentationScope

        from tonnage import __version__

        self._resource = Resource.create(
            {"service.name": service, "service.version": __version__, "host.name": socket.gethostname()}
        )
        self._scope = InstrumentationScope(SCOPE, __version__)
        self._seen: dict[SeriesKey, tuple[int, float]] = {}  # when it was first seen, and its newest value

    def round(self, at: float, figures: Figures) -> MetricsData:
        """All figures of one instant."""
        from opentelemetry.sdk.metrics.export import MetricsData, ResourceMetrics, ScopeMetrics

        metrics = list(self._metrics(int(at * NS_PER_S), figures))
        scope = ScopeMetrics(scope=self._scope, metrics=metrics, schema_url="")
        return MetricsData([ResourceMetrics(resource=self._resource, scope_metrics=[scope], schema_url="")])

    def _metrics(self, at_ns: int, figures: Figures) -> Iterator[SentMetric]:
        from opentelemetry.sdk.metrics.export import Metric as SentMetric

        families: defaultdict[str, list[tuple[SeriesKey, float]]] = defaultdict(list)
        for key, value in figures.items():
            known = find_metric(key.metric)
            families[key.metric if known is None else known.name].append((key, value))
        for name, series in families.items():
            known = REGISTRY.get(name)
            kind = "gauge" if known is None else known.kind
            if kind == "histogram":
                data: Any = self._histogram(at_ns, name, series)
            elif kind == "counter":
                data = self._sum(at_ns, series)
            else:
                data = self._gauge(at_ns, series)
            yield SentMetric(name=name, description="" if known is None else known.help,
                             unit="" if known is None else known.unit, data=data)  # fmt: skip

    def _gauge(self, at_ns: int, series: list[tuple[SeriesKey, float]]) -> Any:
        from opentelemetry.sdk.metrics.export import Gauge, NumberDataPoint

        return Gauge([NumberDataPoint(dict(key.labels), 0, at_ns, value) for key, value in series])

    def _sum(self, at_ns: int, series: list[tuple[SeriesKey, float]]) -> Any:
        from opentelemetry.sdk.metrics.export import AggregationTemporality, NumberDataPoint, Sum

        points = [NumberDataPoint(dict(key.labels), self._since(key, value, at_ns), at_ns, value)
                  for key, value in series]  # fmt: skip
        return Sum(points, AggregationTemporality.CUMULATIVE, is_monotonic=True)

    def _histogram(self, at_ns: int, name: str, series: list[tuple[SeriesKey, float]]) -> Any:
        from opentelemetry.sdk.metrics.export import AggregationTemporality, Histogram, HistogramDataPoint

        parts: defaultdict[tuple[tuple[str, str], ...], dict[str, float]] = defaultdict(dict)
        for key, value in series:
            labels = dict(key.labels)
            edge = labels.pop("le", "")
            parts[tuple(labels.items())][f"{key.metric.removeprefix(name)}{edge}"] = value
        points = []
        for identity, found in parts.items():
            edges = sorted((float(one.removeprefix("_bucket")), value) for one, value in found.items()
                           if one.startswith("_bucket"))  # fmt: skip
            if "_count" not in found or "_sum" not in found or not edges:
                continue  # a page that was cut
            running = [0, *(int(value) for _, value in edges)]
            since = self._since(SeriesKey(f"{name}_count", identity), found["_count"], at_ns)
            counts = [after - before for before, after in pairwise(running)]
            bounds = [edge for edge, _ in edges if edge != float("inf")]
            points.append(
                HistogramDataPoint(
                    dict(identity), since, at_ns, int(found["_count"]), found["_sum"], counts, bounds, 0.0, 0.0
                )
            )
        return Histogram(points, AggregationTemporality.CUMULATIVE)

    def _since(self, key: SeriesKey, value: float, at_ns: int) -> int:
        """When a counter began as far as is known: when it was first seen, or seen to fall."""
        first, newest = self._seen.get(key, (at_ns, value))
        self._seen[key] = (at_ns if value < newest else first, value)
        return self._seen[key][0]
