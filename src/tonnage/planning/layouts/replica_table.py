"""Replicas of a served model on every machine type: machine x tensor parallel x concurrency, with what fits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tonnage.catalog.hardware import Accelerator
from tonnage.planning.calibrated_model import CalibratedModel
from tonnage.planning.intervals import Interval
from tonnage.planning.layouts.fleets import ReplicaFleet
from tonnage.planning.layouts.hosts import Hosts, hosts_of, longer, slower
from tonnage.planning.layouts.replica_layouts import layout_miss, tensor_degrees, unknown_link
from tonnage.planning.plan import RunDetail
from tonnage.planning.reasons.changes import AcceptRisk, LargerGpus, SetField
from tonnage.planning.reasons.misses import MemoryMiss, Miss
from tonnage.planning.reasons.notes import RunNote
from tonnage.planning.reasons.risks import Promise
from tonnage.planning.sized import IntArray
from tonnage.sizing.devices import Devices, Machine, missing_figure
from tonnage.sizing.encoder_replicas import BATCHES, encoder_replicas
from tonnage.sizing.engines import Engine
from tonnage.sizing.estimates import Array
from tonnage.sizing.fitting import holds
from tonnage.sizing.inference_devices import serving_devices
from tonnage.sizing.inference_memory import weights_bytes
from tonnage.sizing.precision import SERVING_COMPUTE
from tonnage.sizing.replicas import Replicas
from tonnage.sizing.served_formats import FORMATS
from tonnage.units import to_gib
from tonnage.values import dataclass
from tonnage.workload.jobs import BatchJob, Requests, ServeJob
from tonnage.workload.shapes import ModelShape


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaTable:
    """Columns: one replica per row. `per_node` replicas run on one machine."""

    shape: ModelShape
    requests: Requests
    weights: str
    engine: Engine
    intervals: Mapping[str, tuple[Interval, ...]]  # of latency, ttft and throughput (as seconds), one a machine
    held: Interval  # of memory
    machine: IntArray
    tensor_parallel: Array
    per_node: Array
    devices: Devices
    replicas: Replicas
    usable_bytes: Array
    hosts: Hosts
    fits: np.ndarray
    held_back: np.ndarray  # rows that fit on the expected figure, and not at the upper end of the memory interval

    @property
    def machines_held_back(self) -> frozenset[int]:
        """Machines with rows that only the interval keeps out."""
        return frozenset(self.machine[self.held_back].tolist())

    def factors(self, of: str, rows: IntArray) -> tuple[Array, Array]:
        """Low and high factor of an interval, in columns over `rows`."""
        spreads = [one.spread for one in self.intervals[of]]
        low, high = ([getattr(one, end) for one in spreads] for end in ("low_factor", "high_factor"))
        machine = self.machine[rows]
        return np.array(low, dtype=np.float64)[machine], np.array(high, dtype=np.float64)[machine]

    def carried(self, factor: Array | float = 1.0, end: Literal["value", "low", "high"] = "value") -> Array:
        """Requests a second of one replica at 1/`factor` of what is predicted, as its part of the host allows."""
        host = getattr(self.hosts, end)[self.machine] / self.per_node
        return np.asarray(np.minimum(self.replicas.requests_per_s / factor, host))

    def hosts_in_doubt(self, rows: IntArray) -> NDArray[np.bool_]:
        """Rows whose hosts' vCPUs are not stated, while their devices at full rate ask for many."""
        rate = self.replicas.requests_per_s * self.per_node
        return self.hosts.in_doubt(self.machine[rows], rate[rows], self.devices.per_node[rows])

    def memory_misses(
        self, job: ServeJob | BatchJob, machines: Sequence[Machine], fitting: set[int]
    ) -> dict[int, Miss]:
        """A memory miss for each machine type none of whose rows fit, from its leanest row; or that it has none."""
        out: dict[int, Miss] = {}
        for index in range(len(machines)):
            rows = np.flatnonzero(self.machine == index)
            if not len(rows):
                out[index] = layout_miss(job, machines[index])
                continue
            if index in fitting:
                continue
            row = rows[np.argmin(self.replicas.needed_bytes[rows])]
            needs, has = to_gib(float(self.replicas.needed_bytes[row])), to_gib(float(self.usable_bytes[row]))
            if self.held_back[row]:
                out[index] = self._risky_miss(int(row), needs)
                continue
            if needs <= has:  # what its devices share goes over a link of unknown rate
                out[index] = unknown_link()
                continue
            smaller = self._smaller_weights(int(row), machines[index].accelerator)
            out[index] = MemoryMiss(
                needed_gib=needs,
                available_gib=has,
                tensor_parallel=int(self.tensor_parallel[row]),
                kept_free_fraction=1.0 - has / to_gib(float(self.devices.memory_bytes[row])),
                lifted_by=(SetField(key="weights", value=smaller) if smaller else LargerGpus(),),
            )
        return out

    def _risky_miss(self, row: int, needs: float) -> Miss:
        """The leanest row is expected to fit, and the upper end of its interval does not."""
        return MemoryMiss(
            needed_gib=needs * self.held.spread.high_factor,
            available_gib=to_gib(float(self.devices.memory_bytes[row])),
            expected_gib=needs,
            lifted_by=(AcceptRisk(limit="memory"),),
        )

    def _smaller_weights(self, row: int, device: Accelerator) -> str | None:
        """The first weight format that the device multiplies in whose smaller weights let this row fit, verified on its
        own components."""
        memory = self.replicas.memory
        kept = float(self.replicas.needed_bytes[row] - memory.weights_bytes[row])
        for weights in (one for one in ("fp8", "int8", "int4") if not missing_figure(device, SERVING_COMPUTE[one])):
            smaller = weights_bytes(self.shape, FORMATS[weights]) / float(self.tensor_parallel[row])
            if smaller + kept <= float(self.usable_bytes[row]):
                return weights
        return None

    def detail(
        self,
        row: int,
        *,
        nodes: int,
        time: tuple[Interval, float] | None = None,
        utilisation: float | None = None,
        notes: tuple[RunNote, ...] = (),
        promise: Promise = "latency",
    ) -> RunDetail:
        """The breakdown of one row on `nodes` machines. `time`: the items of the whole work, with the interval of their
        time; `utilisation`: of a service."""
        replicas, machine = self.replicas, int(self.machine[row])
        of_latency, of_rate = (self.intervals[name][machine] for name in ("latency", "throughput"))
        used = [of_latency, of_rate]
        tensor, per_node = int(self.tensor_parallel[row]), int(self.per_node[row])
        count = per_node * nodes
        latency = of_latency.around(float(replicas.latency_p95_s[row]))
        rate = float(replicas.requests_per_s[row]) * count
        host = self.hosts.figure(machine, nodes)
        carried = slower(of_rate.inverse().around(rate), host)
        rates = [("requests_per_s", carried)]
        parts = [("mean latency", float(replicas.latency_mean_s[row]))]
        memory = replicas.memory
        components = {
            "weights": float(memory.weights_bytes[row]),
            "activations": float(memory.activations_bytes[row]),
            "context": float(memory.context_bytes[row] + memory.workspace_bytes[row]),
        }
        concurrency = int(replicas.concurrency[row])
        text = f"{count} replica" + ("s" if count > 1 else "")
        text += (f", tp {tensor}" if tensor > 1 else "") + f", {concurrency} a batch each, {self.weights}"
        return RunDetail(
            layout=text,
            layout_fields=(
                ("replicas", count),
                ("replicas_per_node", per_node),
                ("nodes", nodes),
                ("tensor_parallel", tensor),
                ("concurrency", concurrency),
                ("weights", self.weights),
                ("engine_class", self.engine.name),
            ),
            time_s=None if time is None else longer(time[0].around(time[1] / rate), time[1], host),
            time_parts=tuple(parts),
            time_parts_of="request",
            memory_gib=self.held.around(to_gib(float(replicas.needed_bytes[row]))),
            memory_parts_gib=tuple((name, to_gib(size)) for name, size in components.items() if size > 0),
            memory_available_gib=to_gib(float(self.devices.memory_bytes[row])),
            rates=tuple(rates),
            latency_p95_s=latency,
            promise=promise,
            utilisation=utilisation,
            fleet=None if time else ReplicaFleet(pools=(carried.scaled(1.0 / count),), per_machine=per_node),
            notes=notes,
            intervals=(*(() if time is None else (time[0],)), *used, self.held),
            host=self.hosts.share(machine, nodes, rate),
        )


def replica_table(
    job: ServeJob | BatchJob, machines: Sequence[Machine], calibrated: CalibratedModel, *, hold_memory: bool = True
) -> ReplicaTable:
    """Every machine type x tensor-parallel degree x concurrency, sized in one go. `hold_memory`: the upper end of the
    memory interval must fit too."""
    shape, weights, assumed, engine = job.model, job.weights, calibrated.assumed, calibrated.engine(job)
    machine_column, tensor_column, concurrency = [], [], []
    batches = [float(job.batch)] if job.batch else list(BATCHES)
    for index, machine in enumerate(machines):
        for tensor in tensor_degrees(shape, machine.count, job.tensor_parallel):
            machine_column += [index] * len(batches)
            tensor_column += [float(tensor)] * len(batches)
            concurrency += batches
    owner = np.array(machine_column, dtype=np.intp)
    tensor_array = np.array(tensor_column, dtype=np.float64)
    devices = serving_devices(machines, SERVING_COMPUTE[weights], assumed).take(owner)
    replicas = encoder_replicas(
        shape, job.requests, devices, weights, tensor_array, np.array(concurrency, dtype=np.float64), assumed, engine
    )
    usable = devices.memory_bytes * assumed.kv_cache_memory_fraction
    fits = (replicas.needed_bytes <= usable) & np.isfinite(replicas.latency_mean_s)
    spread = calibrated.served_memory()
    held = holds(replicas.needed_bytes, spread.spread.high_factor, devices.memory_bytes)
    return ReplicaTable(
        shape=shape,
        requests=job.requests,
        weights=weights,
        engine=engine,
        intervals={
            "latency": tuple(calibrated.pass_time(job, one.accelerator) for one in machines),
            "ttft": tuple(calibrated.first_token_time(job, one.accelerator) for one in machines),
            "throughput": tuple(calibrated.throughput_time(job, one.accelerator) for one in machines),
        },
        held=spread,
        machine=owner,
        tensor_parallel=tensor_array,
        per_node=devices.per_node // tensor_array,
        devices=devices,
        replicas=replicas,
        usable_bytes=usable,
        hosts=hosts_of(machines),
        fits=fits & held if hold_memory else fits,
        held_back=fits & ~held if hold_memory else np.zeros_like(fits),
    )
