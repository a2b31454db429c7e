"""Figures of one run, read from its folder, in base units: what Prometheus is shown and what rules look at."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Final, Literal

from tonnage.runs.folder import RunFolder, read_document
from tonnage.runs.journal import Event, EventKind
from tonnage.runs.liveness import read_heartbeat
from tonnage.runs.spec import RunSpec
from tonnage.runs.spending import sessions_of
from tonnage.runs.states import RunState, RunStatus, state_of
from tonnage.runs.tail import newest_values
from tonnage.values import dataclass

Kind = Literal["gauge", "counter"]
_STEP: Final = (  # key of a metrics line, metric, what it is
    ("step", "tonnage_run_step", "Newest optimizer step that was logged"),
    ("epoch", "tonnage_run_epoch", "Passes over the data so far"),
    ("loss", "tonnage_run_loss", "Training loss at the newest logged step"),
    ("learning_rate", "tonnage_run_learning_rate", "Learning rate at the newest logged step"),
    ("step_s", "tonnage_run_step_seconds", "Wall time of the newest logged step"),
    ("data_wait_s", "tonnage_run_data_wait_seconds", "Of it, the wait for data"),
    ("peak_allocated_bytes", "tonnage_run_peak_allocated_bytes", "Most device memory held by tensors"),
    ("peak_reserved_bytes", "tonnage_run_peak_reserved_bytes", "Most device memory held by the allocator"),
)  # fmt: skip
_MACHINE: Final = (
    ("host_rss_bytes", "tonnage_run_resident_memory_bytes", "Resident memory of the run's processes"),
    ("host_uss_bytes", "tonnage_run_unique_memory_bytes", "Memory that only the run's processes hold"),
    ("cpu_fraction", "tonnage_run_cpu_ratio", "Share of the machine's processors used by the run"),
    ("machine_cpu_fraction", "tonnage_machine_cpu_ratio", "Share of the machine's processors used by all"),
)
_GPU: Final = (
    ("utilization_fraction", "tonnage_gpu_utilization_ratio", "Share of the last moments in which a kernel ran"),
    ("memory_used_bytes", "tonnage_gpu_memory_used_bytes", "Device memory in use, by all"),
    ("memory_total_bytes", "tonnage_gpu_memory_total_bytes", "Device memory there is"),
    ("power_w", "tonnage_gpu_power_watts", "Power drawn"),
    ("temperature_c", "tonnage_gpu_temperature_celsius", "Temperature of the die"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFigure:
    """One figure. `metric` of a counter is without the `_total` that its page adds."""

    metric: str
    help: str
    labels: Mapping[str, str]
    value: float
    kind: Kind = "gauge"

    @property
    def exposed_name(self) -> str:
        """As it stands on a page."""
        return f"{self.metric}_total" if self.kind == "counter" else self.metric


def run_figures(folder: RunFolder, *, now: datetime) -> Iterator[RunFigure]:
    """Every figure that is known of a run; of one that has ended its state and what it took.

    What is not known is left out. Raises what reading its files raises.
    """
    spec, events = folder.spec(), list(folder.events())
    state, labels = state_of(events), {"run": spec.name}
    info = {**labels, "task": spec.task, "model": spec.model, "runner": spec.launch.runner}
    yield RunFigure(metric="tonnage_run_info", help="What runs", labels=info, value=1.0)
    for one in RunStatus:
        yield RunFigure(
            metric="tonnage_run_state", help="1 for the state the run is in", labels={**labels, "state": one.value},
            value=float(one is state.state),
        )  # fmt: skip
    yield from _counters(spec, events, state, labels)
    if state.state.ended:
        return  # the last step of a run that has ended is no figure of now
    line, sample = newest_values(folder.metrics_file), newest_values(folder.samples_file)
    yield from _gauges(_STEP, labels, line)
    yield from _gauges(_MACHINE, labels, sample)
    for gpu in sample.get("gpus", ()):
        yield from _of_gpu({**labels, "gpu": str(gpu["index"]), "name": gpu["name"]}, gpu)
    yield from _under_way(folder, spec, events, line, labels, now)


def _counters(spec: RunSpec, events: list[Event], state: RunState, labels: Mapping[str, str]) -> Iterator[RunFigure]:
    yield RunFigure(metric="tonnage_run_restarts", help="Starts after the first", labels=labels,
                    value=float(max(state.attempt - 1, 0)), kind="counter")  # fmt: skip
    yield RunFigure(metric="tonnage_run_lost_steps", help="Steps done again after restarts", labels=labels,
                    value=float(state.lost_steps), kind="counter")  # fmt: skip
    yield RunFigure(metric="tonnage_run_notices", help="Notices of a cloud that it takes the machine away",
                    labels=labels, value=float(sum(one.kind is EventKind.NOTICE for one in events)),
                    kind="counter")  # fmt: skip
    spent = [session.usd for session in sessions_of(events, spec.guard) if session.usd is not None]
    if spent:
        yield RunFigure(metric="tonnage_run_spend_usd", help="US dollars spent", labels=labels, value=sum(spent),
                        kind="counter")  # fmt: skip


def _of_gpu(labels: Mapping[str, str], gpu: Mapping[str, Any]) -> Iterator[RunFigure]:
    yield from _gauges(_GPU, labels, gpu)
    used, total = gpu.get("memory_used_bytes"), gpu.get("memory_total_bytes")
    if used is not None and total:
        yield RunFigure(metric="tonnage_gpu_memory_used_ratio", help="Share of the device memory in use",
                        labels=labels, value=used / total)  # fmt: skip
    if "energy_j" in gpu:
        yield RunFigure(metric="tonnage_gpu_energy_joules", help="Since the driver was loaded", labels=labels,
                        value=float(gpu["energy_j"]), kind="counter")  # fmt: skip


def _under_way(
    folder: RunFolder, spec: RunSpec, events: list[Event], line: Mapping[str, Any], labels: Mapping[str, str],
    now: datetime,
) -> Iterator[RunFigure]:  # fmt: skip
    """Figures that mean nothing once a run has ended: ages, and what is measured beside what was predicted."""
    saved = [event.at for event in events if event.kind in (EventKind.CHECKPOINT, EventKind.TRAINING)]
    if saved:
        yield RunFigure(
            metric="tonnage_run_checkpoint_age_seconds", labels=labels,
            value=max((now - saved[-1]).total_seconds(), 0.0),
            help="Since the newest checkpoint, or since the training began",
        )  # fmt: skip
    if spec.guard.usd_per_hour is not None:
        yield RunFigure(metric="tonnage_run_cost_usd_per_hour", help="US dollars that an hour of the run costs",
                        labels=labels, value=spec.guard.usd_per_hour)  # fmt: skip
    beat = read_heartbeat(folder)
    if beat is not None and beat.forecast_usd is not None and spec.guard.max_cost_usd:
        yield RunFigure(
            metric="tonnage_run_forecast_to_limit_ratio", labels=labels,
            help="The cost that is forecast over the limit of cost", value=beat.forecast_usd / spec.guard.max_cost_usd,
        )  # fmt: skip
    predicted = (read_document(folder.prediction_file).get("figures") or {}).get("samples_per_s")
    if predicted is not None and line.get("step_s"):
        rate = spec.training.global_batch / float(line["step_s"])
        yield RunFigure(metric="tonnage_run_samples_per_second", help="Samples a second of the newest logged step",
                        labels=labels, value=rate)  # fmt: skip
        for end in ("low", "value", "high"):
            yield RunFigure(
                metric="tonnage_run_predicted_samples_per_second", help="Predicted; low and high end an 80 % interval",
                labels={**labels, "end": end}, value=float(predicted[end]),
            )  # fmt: skip
        yield RunFigure(
            metric="tonnage_run_rate_to_predicted_low_ratio", labels=labels, value=rate / float(predicted["low"]),
            help="Samples a second over the low end of what was predicted",
        )  # fmt: skip


def _gauges(
    table: tuple[tuple[str, str, str], ...], labels: Mapping[str, str], values: Mapping[str, Any]
) -> Iterator[RunFigure]:
    for key, name, text in table:
        if values.get(key) is not None:
            yield RunFigure(metric=name, help=text, labels=labels, value=float(values[key]))
