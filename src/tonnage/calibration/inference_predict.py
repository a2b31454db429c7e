"""Cases -> predicted figures. The work of all cases is laid out once; engines' figures may then change many times."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tonnage.calibration.inference_reading import Case
from tonnage.calibration.inference_serving import Service, services
from tonnage.sizing.engines import ENGINES, Engine
from tonnage.sizing.estimates import Array
from tonnage.sizing.inference_devices import host_factor, serving_devices
from tonnage.sizing.inference_memory import inference_peak_bytes
from tonnage.sizing.inference_pass import PassWork, pass_s, pass_work
from tonnage.units import to_gib
from tonnage.workload.shapes import ModelShape

OFFLINE_TOKENS = 32768.0  # a batch large enough to saturate any device
OFFLINE_IMAGES = 256.0
SERVER_SHARE = 0.87  # of offline throughput inside a latency limit: 0.72 to 0.95 over MLPerf submissions
# Percentiles of repeated equal passes over their mean: captured kernels, and passes a host or a server takes part in.
TAILS = {"p50": 1.0, "p90": 1.005, "p95": 1.01, "p99": 1.013}
HOST_TAILS = {"p50": 1.0, "p90": 1.015, "p95": 1.04, "p99": 1.06}
SERVER_CALL_S = 0.35e-3  # client, network stack and queue of an inference server, one request
CLIENT_BYTES_PER_S = 2.2e9  # inputs through the client's connection and the server's copies
MANY_CLIENTS_BYTES_PER_S = 3.8e9  # the same, with many clients at once
IMAGE_ELEMENT_BYTES = 4.0  # clients send fp32 pixels

Figures = dict[str, Array]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Cases of one shape, engine class, number format and kind of load: columns of one table."""

    index: tuple[int, ...]
    cases: tuple[Case, ...]
    works: tuple[PassWork, ...]
    services: tuple[Service, ...] = ()

    @property
    def engine(self) -> str:
        return self.cases[0].engine

    def column(self, name: str) -> Array:
        return np.array([float(getattr(case, name)) for case in self.cases])


@dataclass(frozen=True, slots=True, kw_only=True)
class Laid:
    """Every case in its group, ready to be timed."""

    cases: tuple[Case, ...]
    groups: tuple[Group, ...]

    def predict(self, engines: Mapping[str, Engine] = ENGINES) -> Array:
        """The figure each row states, in its metric and unit; NaN where the metric is not one of the load's."""
        out = np.full(len(self.cases), np.nan)
        for group in self.groups:
            values = _LOADS[group.cases[0].load](group, engines[group.engine])
            for place, (where, case) in enumerate(zip(group.index, group.cases, strict=True)):
                out[where] = _metric(values, case, place)
        return out


def lay_out(cases: Sequence[Case], engines: Mapping[str, Engine] = ENGINES) -> Laid:
    """Group the cases and lay out their passes."""
    keys: dict[tuple[object, ...], list[int]] = {}
    for place, case in enumerate(cases):
        key = (case.shape.name, case.shape.layers, case.engine, case.served, case.load)
        keys.setdefault(key, []).append(place)
    groups = [_group([cases[i] for i in places], places, engines) for places in keys.values()]
    return Laid(cases=tuple(cases), groups=tuple(groups))


def _group(cases: Sequence[Case], index: Sequence[int], engines: Mapping[str, Engine]) -> Group:
    first, engine = cases[0], engines[cases[0].engine]
    devices = serving_devices([case.machine for case in cases], first.served.compute)
    tensor = np.array([float(case.tensor_parallel) for case in cases])
    hosts = np.array([host_factor(case.machine.accelerator) for case in cases])
    batch, prompt = (np.array([getattr(case, name) for case in cases]) for name in ("batch", "input_tokens"))

    def work(
        batch: Array, query: Array | float, keys: Array | float, logits: Array | float, shape: ModelShape = first.shape
    ) -> PassWork:
        return pass_work(shape, devices, first.served, engine, batch=batch, query=query, keys=keys,
                         tensor_parallel=tensor, logit_tokens=logits, host_factor=hosts)  # fmt: skip

    if first.load in ("pass", "batching-server", "offline"):
        if first.load == "offline":
            vision = first.row.kind == "vision"
            batch = np.full(len(cases), OFFLINE_IMAGES) if vision else np.maximum(OFFLINE_TOKENS / prompt, 1.0)
        elif first.load == "batching-server":
            batch = np.maximum(np.array([float(case.users) for case in cases]) / 2.0, 1.0)
        works = (work(batch, prompt, prompt, 0.0),)
        return Group(index=tuple(index), cases=tuple(cases), works=works)
    return Group(index=tuple(index), cases=tuple(cases), works=(), services=services(cases, engine))


def _pass(group: Group, engine: Engine) -> Figures:
    compute = pass_s(group.works[0], engine)
    waits = np.array([fixed_and_sending_s(case) for case in group.cases])
    seconds = request_s(compute, waits[:, 0], waits[:, 1], np.zeros(len(group.cases), dtype=bool))
    return {"latency": seconds, "compute": compute, "rate": group.column("batch") * group.column("replicas") / seconds}


def fixed_and_sending_s(case: Case) -> tuple[float, float]:
    """What a request costs beside its pass: client and server, and its input's way through the connection."""
    if case.load == "offline" or case.row.metric.startswith("server_compute"):
        return 0.0, 0.0
    hosts = host_factor(case.machine.accelerator)
    if case.load == "batching-server":
        return SERVER_CALL_S, hosts * case.users * input_bytes(case) / MANY_CLIENTS_BYTES_PER_S
    if not case.remote:
        return 0.0, 0.0
    return hosts * SERVER_CALL_S, hosts * case.batch * input_bytes(case) / CLIENT_BYTES_PER_S


def request_s(pass_seconds: Array, fixed_s: Array, sending_s: Array, batching: Flags) -> Array:
    """Seconds of a request around its pass. Where a server batches, half the clients' requests are under way while the
    other half gathers: a request waits one pass and takes one, unless inputs arrive slower."""
    shared = np.maximum(2.0 * pass_seconds, pass_seconds + sending_s)
    return fixed_s + np.where(batching, shared, pass_seconds + sending_s)


def input_bytes(case: Case) -> float:
    """What a client sends with one sequence or image; token ids are small."""
    return (
        3.0 * case.shape.image_side**2 * IMAGE_ELEMENT_BYTES if case.row.kind == "vision" else 16.0 * case.input_tokens
    )


def _offline(group: Group, engine: Engine) -> Figures:
    seconds = pass_s(group.works[0], engine)
    share = np.where(group.column("rate_per_s") > 0, SERVER_SHARE, 1.0)
    return {"rate": share * np.asarray(group.works[0].batch) * group.column("replicas") / seconds}


def _batching_server(group: Group, engine: Engine) -> Figures:
    seconds = pass_s(group.works[0], engine)
    waits = np.array([fixed_and_sending_s(case) for case in group.cases])
    latency = request_s(seconds, waits[:, 0], waits[:, 1], np.ones(len(group.cases), dtype=bool))
    return {"latency": latency, "rate": group.column("users") / latency, "compute": seconds}


def _decoded(group: Group, engine: Engine) -> Figures:
    """Whatever a decoder is asked: the function that plans call."""
    columns: Figures = {}
    for service in group.services:
        for name, values in service.figures(engine).items():
            columns.setdefault(name, np.full(len(group.cases), np.nan))[list(service.places)] = values
    if group.cases[0].load == "static":
        columns["peak"] = inference_peak_bytes(
            group.cases[0].shape, group.cases[0].served, group.column("tensor_parallel"), group.column("batch"),
            group.column("input_tokens"), group.column("output_tokens"), layer_buffers=engine.layer_buffers,
        )  # fmt: skip
    return columns


_LOADS: Mapping[str, Callable[[Group, Engine], Figures]] = {
    "pass": _pass, "offline": _offline, "batching-server": _batching_server, "static": _decoded, "served": _decoded,
}  # fmt: skip

_RATES = {"sequences_per_s": "rate", "samples_per_s": "rate", "output_tokens_per_s": "tokens",
          "total_tokens_per_s": "total", "requests_per_s": "requests"}  # fmt: skip


def _metric(values: Figures, case: Case, place: int) -> float:
    """The row's metric from the figures of its load; percentiles of equal passes by a fixed tail."""
    metric = case.row.metric
    if metric in _RATES:
        found = values.get(_RATES[metric], values.get("rate"))
        return float(found[place]) if found is not None else np.nan
    if metric == "peak_mem_gib":
        return to_gib(float(values["peak"][place])) if "peak" in values else np.nan
    if metric == "server_compute_ms_mean":
        return float(values.get("compute", values["latency"])[place]) * 1e3 if "latency" in values else np.nan
    name, _, percentile = metric.replace("_ms", "").partition("_")
    percentile = percentile if percentile in TAILS else ""
    exact = values.get(f"{name}_{percentile}") if percentile else values.get(name)
    if exact is not None:
        return float(exact[place]) * 1e3
    tails = TAILS if case.engine in ("fused", "library", "converted") and not case.remote else HOST_TAILS
    return float(values[name][place]) * 1e3 * tails[percentile] if name in values else np.nan
