"""Figures of one run, read from its folder, in base units: what Prometheus is shown and what rules look at."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Final

from tonnage.metric_names import REGISTRY, Metric
from tonnage.runs.folder import RunFolder, read_document
from tonnage.runs.guards import sessions_of
from tonnage.runs.journal import Event, EventKind
from tonnage.runs.liveness import read_heartbeat
from tonnage.runs.spec import RunSpec
from tonnage.runs.states import RunState, RunStatus, state_of
from tonnage.runs.tail import newest_values
from tonnage.units import GIB
from tonnage.values import dataclass

Names = Mapping[str, str]
_STEP: Final[Names] = {  # key of a metrics line -> metric
    "step": "run_step", "epoch": "run_epoch", "loss": "run_loss", "learning_rate": "run_learning_rate",
    "step_s": "run_step_seconds", "data_wait_s": "run_data_wait_seconds",
    "peak_allocated_bytes": "run_peak_allocated_bytes", "peak_reserved_bytes": "run_peak_reserved_bytes",
    "allocation_retries": "run_allocation_retries_total",
}  # fmt: skip
_MACHINE: Final[Names] = {  # key of a sample -> metric
    "host_rss_bytes": "run_resident_memory_bytes", "host_uss_bytes": "run_unique_memory_bytes",
    "cpu_fraction": "run_cpu_ratio", "machine_cpu_fraction": "machine_cpu_ratio",
}  # fmt: skip
_HEALTH: Final[Names] = {  # of a sample's `machine`
    "memory_total_bytes": "machine_memory_total_bytes", "memory_available_bytes": "machine_memory_available_bytes",
    "cpu_clock_hz": "machine_cpu_clock_hertz", "cpu_temperature_c": "machine_cpu_temperature_celsius",
    "cpu_energy_j": "machine_cpu_energy_joules_total", "cpu_throttled": "machine_cpu_throttles_total",
    "ecc_corrected": "machine_ecc_corrected_total", "ecc_uncorrected": "machine_ecc_uncorrected_total",
}  # fmt: skip
_GPU: Final[Names] = {  # of each of a sample's `gpus`
    "utilization_fraction": "gpu_utilization_ratio", "memory_used_bytes": "gpu_memory_used_bytes",
    "memory_total_bytes": "gpu_memory_total_bytes", "memory_busy_fraction": "gpu_memory_busy_ratio",
    "power_w": "gpu_power_watts", "power_limit_w": "gpu_power_limit_watts", "energy_j": "gpu_energy_joules_total",
    "temperature_c": "gpu_temperature_celsius", "memory_temperature_c": "gpu_memory_temperature_celsius",
    "compute_clock_hz": "gpu_compute_clock_hertz", "memory_clock_hz": "gpu_memory_clock_hertz",
    "rows_remapped": "gpu_rows_remapped", "link_errors": "gpu_link_errors_total",
    "pcie_replays": "gpu_pcie_replays_total", "xid_errors": "gpu_xid_errors_total", "last_xid": "gpu_last_xid",
}  # fmt: skip
_ECC: Final = (("corrected", "ecc_corrected"), ("uncorrected", "ecc_uncorrected"))
_PREDICTED: Final = (  # of `prediction.json`, metric, what one of it is in the metric's unit
    ("samples_per_s", "run_predicted_samples_per_second", 1.0),
    ("peak_memory_gib", "run_predicted_peak_memory_bytes", float(GIB)),
    ("time_s", "run_predicted_elapsed_seconds", 1.0),
    ("cost_usd", "run_predicted_spend_usd", 1.0),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFigure:
    """One figure of a metric of the registry."""

    metric: Metric
    labels: Mapping[str, str]
    value: float


def run_figures(folder: RunFolder, *, now: datetime) -> Iterator[RunFigure]:
    """Every figure that is known of a run; of one that has ended its state and what it took.

    What is not known is left out. Raises what reading its files raises.
    """
    spec, events = folder.spec(), list(folder.events())
    state, labels = state_of(events), {"run": spec.name}
    yield _figure("run_info", {**labels, "task": spec.task, "model": spec.model, "runner": spec.launch.runner}, 1.0)
    for one in RunStatus:
        yield _figure("run_state", {**labels, "state": one.value}, float(one is state.state))
    yield from _counters(spec, events, state, labels)
    if state.state.ended:
        return  # the last step of a run that has ended is no figure of now
    line, sample = newest_values(folder.metrics_file), newest_values(folder.samples_file)
    yield from _known(_STEP, labels, line)
    yield from _known(_MACHINE, labels, sample)
    yield from _known(_HEALTH, labels, sample.get("machine") or {})
    for gpu in sample.get("gpus", ()):
        yield from _of_gpu({**labels, "gpu": str(gpu["index"]), "name": gpu["name"]}, gpu)
    yield from _under_way(folder, spec, events, labels, now)
    yield from _beside_predicted(folder, spec, events, line, labels)


def _counters(spec: RunSpec, events: list[Event], state: RunState, labels: Mapping[str, str]) -> Iterator[RunFigure]:
    yield _figure("run_restarts_total", labels, float(max(state.attempt - 1, 0)))
    yield _figure("run_lost_steps_total", labels, float(state.lost_steps))
    for kind, name in ((EventKind.NOTICE, "run_notices_total"), (EventKind.OUT_OF_MEMORY, "run_out_of_memory_total")):
        yield _figure(name, labels, float(sum(one.kind is kind for one in events)))
    if (spent := _spent_usd(spec, events)) is not None:
        yield _figure("run_spend_usd_total", labels, spent)


def _spent_usd(spec: RunSpec, events: list[Event]) -> float | None:
    spent = [session.usd for session in sessions_of(events, spec.guard) if session.usd is not None]
    return sum(spent) if spent else None


def _of_gpu(labels: Mapping[str, str], gpu: Mapping[str, Any]) -> Iterator[RunFigure]:
    yield _figure("gpu_lost", labels, float(gpu.get("fault") is not None))
    yield from _known(_GPU, labels, gpu)
    used, total = gpu.get("memory_used_bytes"), gpu.get("memory_total_bytes")
    if used is not None and total:
        yield _figure("gpu_memory_used_ratio", labels, used / total)
    for reason in gpu.get("throttle_reasons") or ():
        yield _figure("gpu_throttled", {**labels, "reason": reason}, 1.0)
    for kind, key in _ECC:
        if gpu.get(key) is not None:
            yield _figure("gpu_ecc_errors_total", {**labels, "kind": kind}, float(gpu[key]))


def _under_way(
    folder: RunFolder, spec: RunSpec, events: list[Event], labels: Mapping[str, str], now: datetime
) -> Iterator[RunFigure]:
    """Figures that mean nothing once a run has ended: ages, what an hour costs, the forecast."""
    saved = [event.at for event in events if event.kind in (EventKind.CHECKPOINT, EventKind.TRAINING)]
    if saved:
        age_s = max((now - saved[-1]).total_seconds(), 0.0)
        yield _figure("run_checkpoint_age_seconds", labels, age_s)
    began = next((event.at for event in events if event.kind is EventKind.TRAINING), None)
    if began is not None:
        yield _figure("run_elapsed_seconds", labels, max((now - began).total_seconds(), 0.0))
    if spec.guard.usd_per_hour is not None:
        yield _figure("run_cost_usd_per_hour", labels, spec.guard.usd_per_hour)
    beat = read_heartbeat(folder)
    if beat is not None and beat.forecast_usd is not None and spec.guard.max_cost_usd:
        yield _figure("run_forecast_to_limit_ratio", labels, beat.forecast_usd / spec.guard.max_cost_usd)


def _beside_predicted(
    folder: RunFolder, spec: RunSpec, events: list[Event], line: Mapping[str, Any], labels: Mapping[str, str]
) -> Iterator[RunFigure]:
    """What is measured of a rate and an epoch, and every prediction with the ends of its interval."""
    predicted = read_document(folder.prediction_file).get("figures") or {}
    for key, name, unit in _PREDICTED:
        if predicted.get(key) is not None:
            yield from _ends(name, labels, predicted[key], unit)
    if predicted.get("cost_usd") is not None and spec.training.max_steps is None:
        yield from _ends("run_predicted_cost_usd_per_epoch", labels, predicted["cost_usd"], 1 / spec.training.epochs)
    spent = _spent_usd(spec, events)
    if spent is not None and line.get("epoch"):
        yield _figure("run_cost_usd_per_epoch", labels, spent / float(line["epoch"]))
    if not line.get("step_s"):
        return
    rate = spec.training.global_batch / float(line["step_s"])
    yield _figure("run_samples_per_second", labels, rate)
    if predicted.get("samples_per_s") is not None:
        for end in ("low", "high"):
            ratio = rate / float(predicted["samples_per_s"][end])
            yield _figure(f"run_rate_to_predicted_{end}_ratio", labels, ratio)


def _ends(name: str, labels: Mapping[str, str], figure: Mapping[str, Any], unit: float) -> Iterator[RunFigure]:
    for end in ("low", "value", "high"):
        yield _figure(name, {**labels, "end": end}, float(figure[end]) * unit)


def _known(names: Names, labels: Mapping[str, str], values: Mapping[str, Any]) -> Iterator[RunFigure]:
    for key, name in names.items():
        if values.get(key) is not None:
            yield _figure(name, labels, float(values[key]))


def _figure(name: str, labels: Mapping[str, str], value: float) -> RunFigure:
    return RunFigure(metric=REGISTRY[f"tonnage_{name}"], labels=labels, value=value)
