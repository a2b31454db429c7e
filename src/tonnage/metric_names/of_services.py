"""Metrics of services: the balancer of replicas, what they cost, the encoder server."""

from __future__ import annotations

from typing import Final

from tonnage.metric_names.kinds import Metric, MetricKind


def _of(name: str, help: str, kind: MetricKind = "gauge", *labels: str, predicted: str | None = None) -> Metric:
    return Metric(name=f"tonnage_{name}", kind=kind, help=help, labels=labels,
                  predicted=None if predicted is None else f"tonnage_{predicted}")  # fmt: skip


_COSTS: Final[tuple[tuple[str, str, MetricKind, str | None], ...]] = (  # `service`: where a home's watch shows them
    ("machines", "Machines that are held", "gauge", None),
    ("cost_usd_per_hour", "US dollars an hour of what is held now", "gauge", "service_predicted_cost_usd_per_hour"),
    ("usd_total", "US dollars spent since the start", "counter", None),
    ("usd_per_1000_requests", "US dollars for 1,000 requests (inferences) over the last minute", "gauge",
     "service_predicted_usd_per_1000_requests"),
    ("usd_per_million_tokens", "US dollars for a million tokens over the last minute, input and output", "gauge", None),
    ("p95_seconds", "95th percentile from request to answer over the last minute, at the balancer", "gauge", None),
    ("p95_to_promise_ratio", "That over the p95 latency that the workload promises", "gauge", None),
    ("input_tokens_total", "Tokens read", "counter", None),
    ("output_tokens_total", "Tokens written", "counter", None),
)  # fmt: skip
SERVICE_METRICS: Final = (
    _of("requests_arrived_total", "Requests that came in", "counter"),
    _of("requests_finished_total", "Requests that were answered", "counter"),
    _of("requests_late_total", "Requests answered behind the promised time", "counter"),
    _of("requests_refused_total", "Requests refused because the queue was full", "counter"),
    _of("requests_retried_total", "Requests asked of another replica", "counter"),
    _of("requests_failed_total", "Requests that no replica could answer", "counter"),
    _of("requests_abandoned_total", "Requests whose client left", "counter"),
    _of("requests_waiting", "Requests in the queue"),
    _of("requests_running", "Requests at replicas"),
    _of("replica_restarts_total", "Replicas started again after they ended", "counter"),
    _of("replicas_wanted", "Replicas that the law of scaling asks for"),
    _of("replicas_ready", "Replicas that answer"),
    _of("replicas_starting", "Replicas that start"),
    _of("replicas_draining", "Replicas that answer what they have and end"),
    _of("replica_start_up_seconds", "From the start of a replica to its first answer"),
    *(
        _of(f"service_{name}", help, kind, "service", predicted=predicted)
        for name, help, kind, predicted in _COSTS
    ),
    _of("service_predicted_usd_per_1000_requests", "As the plan has it", "gauge", "service", "end"),
    _of("service_predicted_cost_usd_per_hour", "As the plan has it", "gauge", "service", "end"),
    _of("encoder_requests_total", "Requests answered.", "counter", "endpoint", "status"),
    _of("encoder_request_seconds", "From the request to its answer.", "histogram", "endpoint"),
    _of("encoder_queue_seconds_total", "Seconds that requests waited for their batch, added up.", "counter"),
    _of("encoder_batch_seconds_total", "Seconds in which batches were computed, added up.", "counter"),
    _of("encoder_texts_waiting", "Texts (or rows, pictures) that wait."),
    _of("encoder_texts_computing", "Texts (or rows, pictures) in the batches being computed."),
    _of("encoder_texts_total", "Texts (or rows, pictures) computed.", "counter"),
    _of("encoder_batches_total", "Batches computed.", "counter"),
    _of("encoder_kept_answers_total", "Texts (or rows, pictures) answered out of the cache.", "counter"),
)  # fmt: skip
