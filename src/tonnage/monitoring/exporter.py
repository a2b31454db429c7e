"""A page for Prometheus on a run: read from its folder each time it is asked for, in base units."""

from __future__ import annotations

import errno
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any, Final
from wsgiref.simple_server import WSGIServer

from tonnage.errors import MissingExtra
from tonnage.runs.folder import RunFolder
from tonnage.runs.journal import EventKind
from tonnage.runs.spending import sessions_of
from tonnage.runs.states import RunStatus, state_of

if TYPE_CHECKING:
    from prometheus_client.core import Metric

TRIES: Final = 10  # ports looked at, from the one asked for upwards
_TAIL_BYTES: Final = 65_536
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

        spec, events = self._folder.spec(), list(self._folder.events())
        state = state_of(events)
        labels = {"run": spec.name}
        yield _family(GaugeMetricFamily, "tonnage_run_info", "What runs", [
            ({**labels, "task": spec.task, "model": spec.model, "runner": spec.launch.runner}, 1)])  # fmt: skip
        yield _family(GaugeMetricFamily, "tonnage_run_state", "1 for the state the run is in", [
            ({**labels, "state": one.value}, float(one is state.state)) for one in RunStatus])  # fmt: skip
        counters = (("tonnage_run_restarts", "Starts after the first", max(state.attempt - 1, 0)),
                    ("tonnage_run_lost_steps", "Steps done again after restarts", state.lost_steps))  # fmt: skip
        for name, text, value in counters:
            yield _family(CounterMetricFamily, name, text, [(labels, value)])
        spent = [session.usd for session in sessions_of(events, spec.guard) if session.usd is not None]
        if spent:
            yield _family(CounterMetricFamily, "tonnage_run_spend_usd", "US dollars spent", [(labels, sum(spent))])
        yield from _gauges(_STEP, [(labels, last_line(self._folder.metrics_file))])
        sample = last_line(self._folder.samples_file)
        yield from _gauges(_MACHINE, [(labels, sample)])
        gpus = [({**labels, "gpu": str(gpu["index"]), "name": gpu["name"]}, gpu) for gpu in sample.get("gpus", ())]
        yield from _gauges(_GPU, gpus)
        energy = [(named, gpu["energy_j"]) for named, gpu in gpus if "energy_j" in gpu]
        if energy:
            yield _family(CounterMetricFamily, "tonnage_gpu_energy_joules", "Since the driver was loaded", energy)


def _gauges(
    table: Iterable[tuple[str, str, str]], things: list[tuple[dict[str, str], Mapping[str, Any]]]
) -> Iterator[Metric]:
    from prometheus_client.core import GaugeMetricFamily

    for key, name, text in table:
        known = [(labels, float(values[key])) for labels, values in things if values.get(key) is not None]
        if known:
            yield _family(GaugeMetricFamily, name, text, known)


def _family(kind: Any, name: str, text: str, values: list[tuple[dict[str, str], float]]) -> Metric:
    family = kind(name, text, labels=list(values[0][0]))
    for labels, value in values:
        family.add_metric(list(labels.values()), value)
    return family  # type: ignore[no-any-return]


def last_line(path: Path) -> dict[str, Any]:
    """The newest whole line of a file of JSON lines; empty where there is none yet."""
    if not path.exists():
        return {}
    with path.open("rb") as file:
        file.seek(0, 2)
        file.seek(max(file.tell() - _TAIL_BYTES, 0))
        whole = file.read().split(b"\n")[:-1]
    for line in reversed(whole):
        try:
            found = json.loads(line)
        except ValueError:  # cut by a kill, marked so by the next writer
            continue
        if isinstance(found, dict):
            return found
    return {}
