"""What Prometheus reads of an encoder server: requests by endpoint and status, their time, and what waits."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from tonnage.errors import MissingExtra
from tonnage.serving.encoder.engine import Encoder
from tonnage.serving.encoder.versions import Versions
from tonnage.serving.engines.encoder import RUNNING, WAITING

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
        self._requests = library.Counter(
            "tonnage_encoder_requests", "Requests answered.", ["endpoint", "status"], registry=registry
        )
        self._seconds = library.Histogram(
            "tonnage_encoder_request_seconds", "From the request to its answer.", ["endpoint"], registry=registry,
            buckets=BUCKETS_S,
        )  # fmt: skip
        self._children: dict[tuple[str, int], tuple[Any, Any]] = {}
        for name, words, read in (
            (WAITING, "Texts (or rows, pictures) that wait.", lambda one: one.batcher.waiting),
            (RUNNING, "Texts (or rows, pictures) in the batches being computed.", lambda one: one.batcher.computing),
            ("tonnage_encoder_texts_total", "Texts (or rows, pictures) computed.", lambda one: one.batcher.computed),
            ("tonnage_encoder_batches_total", "Batches computed.", lambda one: one.batcher.batches),
            (
                "tonnage_encoder_kept_answers_total",
                "Texts (or rows, pictures) answered out of the cache.",
                lambda one: one.hits,
            ),
        ):
            gauge = library.Gauge(name, words, registry=registry)
            gauge.set_function(partial(_sum_of, versions, read))

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


def _sum_of(versions: Versions, read: Callable[[Encoder], float]) -> float:
    return float(sum(read(one) for one in versions.every()))
