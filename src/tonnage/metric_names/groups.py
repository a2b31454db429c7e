"""Metrics of runs."""

from __future__ import annotations

from typing import Final

from tonnage.metric_names.kinds import Metric, MetricKind


def _service(name: str, help: str, kind: MetricKind = "gauge", *labels: str, predicted: str | None = None) -> Metric:
    return Metric(name=f"tonnage_{name}", kind=kind, help=help, labels=labels,
                  predicted=None if predicted is None else f"tonnage_{predicted}")  # fmt: skip


_COSTS: Final[tuple[tuple[str, str, MetricKind, str | None], ...]] = (  # `service`: where a home's watch shows them
    ("machines", "Machines that are held", "gauge", None),
    ("cost_usd_per_hour", "US dollars an hour of what is held now", "gauge", "service_predicted_cost_usd_per_hour"),
    ("usd_total", "US dollars spent since the start", "counter", None),
    ("usd_per_1000_requests", "US dollars for 1,000 requests (inferences) over the last minute", "gauge",
     "service_predicted_usd_per_1000_requests"),
    ("usd_per_million_tokens", "US dollars for a million tokens over the last minute, input and output", "gauge", None),
    ("p95_seconds", "95th percentile from request to answer over the last minute, at the balancer", "gauge",
     "service_predicted_p95_seconds"),
    ("ttft_p95_seconds", "95th percentile from request to the first piece of a streamed answer over the last minute, at"
     " the balancer", "gauge", "service_predicted_ttft_p95_seconds"),
    ("tpot_p95_seconds", "95th percentile over answers of the mean time of an output token after the first piece of a"
     " stream over the last minute, at the balancer: by the tokens of its usage, else one an event (none with"
     " speculation)", "gauge", "service_predicted_tpot_p95_seconds"),
    ("p95_to_promise_ratio", "That over the p95 latency that the workload promises", "gauge", None),
    ("input_tokens_total", "Tokens read", "counter", None),
    ("output_tokens_total", "Tokens written", "counter", None),
)  # fmt: skip
SERVICE_METRICS: Final = (
    _service("requests_arrived_total", "Requests that came in", "counter"),
    _service("requests_finished_total", "Requests that were answered", "counter"),
    _service("requests_late_total", "Requests answered behind the promised time", "counter"),
    _service("requests_refused_total", "Requests refused because the queue was full", "counter"),
    _service("requests_retried_total", "Requests asked of another replica", "counter"),
    _service("requests_failed_total", "Requests that no replica could answer", "counter"),
    _service("requests_abandoned_total", "Requests whose client left", "counter"),
    _service("requests_waiting", "Requests in the queue"),
    _service("requests_running", "Requests at replicas"),
    _service("replica_restarts_total", "Replicas started again after they ended", "counter"),
    _service("replicas_wanted", "Replicas that the law of scaling asks for"),
    _service("replicas_ready", "Replicas that answer"),
    _service("replicas_starting", "Replicas that start"),
    _service("replicas_draining", "Replicas that answer what they have and end"),
    _service("replica_start_up_seconds", "From the start of a replica to its first answer"),
    *(
        _service(f"service_{name}", help, kind, "service", predicted=predicted)
        for name, help, kind, predicted in _COSTS
    ),
    _service("service_predicted_usd_per_1000_requests", "As the plan has it", "gauge", "service", "end"),
    _service("service_predicted_cost_usd_per_hour", "As the plan has it", "gauge", "service", "end"),
    *(
        _service(f"service_predicted_{name}", "As the plan has it, on its machine and at its rate", "gauge", "service",
                 "end")
        for name in ("p95_seconds", "ttft_p95_seconds", "tpot_p95_seconds")
    ),
    _service("encoder_requests_total", "Requests answered.", "counter", "endpoint", "status"),
    _service("encoder_request_seconds", "From the request to its answer.", "histogram", "endpoint"),
    _service("encoder_queue_seconds_total", "Seconds that requests waited for their batch, added up.", "counter"),
    _service("encoder_batch_seconds_total", "Seconds in which batches were computed, added up.", "counter"),
    _service("encoder_texts_waiting", "Texts (or rows, pictures) that wait."),
    _service("encoder_texts_computing", "Texts (or rows, pictures) in the batches being computed."),
    _service("encoder_texts_total", "Texts (or rows, pictures) computed.", "counter"),
    _service("encoder_batches_total", "Batches computed.", "counter"),
    _service("encoder_kept_answers_total", "Texts (or rows, pictures) answered out of the cache.", "counter"),
)  # fmt: skip


_RUN: Final = ("run",)


def _of(name: str, help: str, kind: MetricKind = "gauge", *more: str, predicted: str | None = None) -> Metric:
    return Metric(name=f"tonnage_run_{name}", kind=kind, help=help, labels=(*_RUN, *more),
                  predicted=None if predicted is None else f"tonnage_run_{predicted}")  # fmt: skip


def _predicted(name: str, what: str) -> Metric:
    return _of(f"predicted_{name}", f"Predicted {what}; low and high end an 80 % interval", "gauge", "end")


RUN_METRICS: Final = (
    _of("info", "What runs", "info", "task", "model", "runner"),
    _of("state", "1 for the state the run is in", "gauge", "state"),
    _of("step", "Newest optimizer step that was logged"),
    _of("epoch", "Passes over the data so far"),
    _of("loss", "Training loss at the newest logged step"),
    _of("learning_rate", "Learning rate at the newest logged step"),
    _of("step_seconds", "Wall time of the newest logged step"),
    _of("data_wait_seconds", "Of it, the wait for data"),
    _of("samples_per_second", "Samples a second of the newest logged step", predicted="predicted_samples_per_second"),
    _predicted("samples_per_second", "samples a second"),
    _of("rate_to_predicted_low_ratio", "Samples a second over the low end of what was predicted"),
    _of("rate_to_predicted_high_ratio", "Samples a second over the high end of what was predicted"),
    _of("peak_allocated_bytes", "Most device memory held by tensors", predicted="predicted_peak_memory_bytes"),
    _predicted("peak_memory_bytes", "most device memory held by tensors; of processors, of the process"),
    _of("peak_reserved_bytes", "Most device memory held by the allocator"),
    _of("allocation_retries_total", "Times that the allocator gave back what it kept to find memory", "counter"),
    _of("out_of_memory_total", "Times that the memory of a device ran out", "counter"),
    _of("resident_memory_bytes", "Resident memory of the run's processes"),
    _of("unique_memory_bytes", "Memory that only the run's processes hold"),
    _of("cpu_ratio", "Share of the machine's processors used by the run"),
    _of("elapsed_seconds", "Since the run began", predicted="predicted_elapsed_seconds"),
    _predicted("elapsed_seconds", "seconds from the first step to the last"),
    _of("restarts_total", "Starts after the first", "counter"),
    _of("lost_steps_total", "Steps done again after restarts", "counter"),
    _of("notices_total", "Notices of a cloud that it takes the machine away", "counter"),
    _of("spend_usd_total", "US dollars spent", "counter", predicted="predicted_spend_usd"),
    _predicted("spend_usd", "US dollars of the whole run"),
    _of("cost_usd_per_hour", "US dollars that an hour of the run costs"),
    _of("cost_usd_per_epoch", "US dollars that an epoch costs at the pace so far",
        predicted="predicted_cost_usd_per_epoch"),
    _predicted("cost_usd_per_epoch", "US dollars of an epoch"),
    _of("checkpoint_age_seconds", "Since the newest checkpoint, or since the training began"),
    _of("forecast_to_limit_ratio", "The cost that is forecast over the limit of cost"),
)  # fmt: skip


HOME_METRICS: Final = tuple(
    Metric(name=f"tonnage_{name}", kind="gauge", help=help, labels=labels)
    for name, help, labels in (
        ("budget_spent_to_limit_ratio", "What is spent of a budget over its limit", ("budget", "at_limit")),
        ("budget_forecast_to_limit_ratio", "What a budget's period comes to at the pace so far, over its limit",
         ("budget", "at_limit")),
        ("plan_winner_moved_usd", "What a plan's new winner saves against the one before the prices changed, for a day",
         ("plan", "before", "winner")),
        ("backup_age_seconds", "Since the newest backup that was verified", ()),
        ("backup_failed_ratio", "1 where the newest backup failed", ()),
        ("watch_target_up_ratio", "1 where a page answers", ("target",)),
        ("watch_alert_state", "1 for an alert that is pending or firing", ("rule", "state", "series")),
    )
)  # fmt: skip


def _gpu(name: str, help: str, kind: MetricKind = "gauge", *more: str) -> Metric:
    return Metric(name=f"tonnage_gpu_{name}", kind=kind, help=help, labels=("run", "gpu", "name", *more))


def _machine(name: str, help: str, kind: MetricKind = "gauge") -> Metric:
    return Metric(name=f"tonnage_machine_{name}", kind=kind, help=help, labels=("run",))


DEVICE_METRICS: Final = (
    _gpu("utilization_ratio", "Share of the last moments in which a kernel ran"),
    _gpu("memory_used_bytes", "Device memory in use, by all"),
    _gpu("memory_total_bytes", "Device memory there is"),
    _gpu("memory_used_ratio", "Share of the device memory in use"),
    _gpu("memory_busy_ratio", "Share of the last moments in which device memory was read or written"),
    _gpu("power_watts", "Power drawn"),
    _gpu("power_limit_watts", "Power that the device may draw"),
    _gpu("energy_joules_total", "Since the driver was loaded", "counter"),
    _gpu("temperature_celsius", "Temperature of the die"),
    _gpu("memory_temperature_celsius", "Temperature of the memory"),
    _gpu("compute_clock_hertz", "Clock of the multiprocessors"),
    _gpu("memory_clock_hertz", "Clock of the memory"),
    _gpu("throttled", "1 for each reason that holds the clocks down now", "gauge", "reason"),
    _gpu("ecc_errors_total", "Errors of memory in the life of the board, by kind", "counter", "kind"),
    _gpu("rows_remapped", "Rows of memory that spare ones took the place of"),
    _gpu(
        "link_errors_total", "Replays, recoveries and checksum errors of NVLink since the driver was loaded", "counter"
    ),
    _gpu("pcie_replays_total", "Packets sent again over PCIe", "counter"),
    _gpu("xid_errors_total", "Critical errors (XID) since the run began to look", "counter"),
    _gpu("last_xid", "Number of the newest critical error (XID)"),
    _gpu("lost", "1 where the device does not answer"),
    _machine("cpu_ratio", "Share of the machine's processors used by all"),
    _machine("memory_total_bytes", "Memory of the machine"),
    _machine("memory_available_bytes", "Memory that can be had without swapping"),
    _machine("cpu_clock_hertz", "Mean clock of the processors"),
    _machine("cpu_temperature_celsius", "Hottest sensor of the processors"),
    _machine("cpu_energy_joules_total", "Of all sockets; starts again where the counter overflows", "counter"),
    _machine("cpu_throttles_total", "Times that a core's clock was lowered for its temperature", "counter"),
    _machine("ecc_corrected_total", "Corrected errors of memory since the machine started", "counter"),
    _machine("ecc_uncorrected_total", "Errors of memory that could not be corrected", "counter"),
)
