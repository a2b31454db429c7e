"""Metrics of runs."""

from __future__ import annotations

from typing import Final

from tonnage.metric_names.kinds import Metric, MetricKind

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
