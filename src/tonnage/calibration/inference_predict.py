"""Cases -> predicted figures. The work of all cases is laid out once; engines' figures may then change many times."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from tonnage.calibration.inference_reading import InferenceCase
from tonnage.calibration.inference_serving import DecoderService, ServedTogether, Timed, served_together, services
from tonnage.calibration.mem_kinds import memory_reading
from tonnage.calibration.memo import Same
from tonnage.calibration.pass_table import PassTimer, pass_timer
from tonnage.calibration.search import Values
from tonnage.sizing.decoder_replicas import batch_bytes, rows_memory
from tonnage.sizing.encoder_loads import (
    HOST_TAILS,
    LOOP_STEP_S,
    EncoderLoad,
    client_s,
    encoder_figures,
    input_bytes,
    passed_batch,
    tail,
)
from tonnage.sizing.engines import Engine
from tonnage.sizing.estimates import Array
from tonnage.sizing.host import photographs_s
from tonnage.sizing.inference_devices import host_factor, serving_devices
from tonnage.sizing.inference_memory import attending, attends_today, estimate_serving_memory
from tonnage.sizing.inference_pass import PassWork, pass_s, pass_work
from tonnage.units import to_gib
from tonnage.values import dataclass

Figures = dict[str, Array]
Seen = dict[Same, Figures]  # what the requests of each service see


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Cases of one shape, engine class, number format (autocast or not) and kind of load: columns of one table."""

    index: tuple[int, ...]
    cases: tuple[InferenceCase, ...]
    works: tuple[PassWork, ...]
    services: tuple[DecoderService, ...] = ()

    @property
    def engine(self) -> str:
        return self.cases[0].engine

    def column(self, name: str) -> Array:
        return np.array([float(getattr(case, name)) for case in self.cases])


@dataclass(frozen=True, slots=True, kw_only=True)
class InferenceBatch:
    """Every case in its group, ready to be timed."""

    cases: tuple[InferenceCase, ...]
    groups: tuple[Group, ...]
    served: Mapping[str, tuple[ServedTogether, ...]]  # of each engine class: the services of its groups

    def predict(self, engines: Mapping[str, Engine], timed: Timed = pass_s) -> Array:
        """The figure each row states, in its metric and unit; NaN where the metric is not one of the load's. `timed`:
        seconds of a pass, where they are at hand."""
        out = np.full(len(self.cases), np.nan)
        seen: Seen = {}
        for name, together in self.served.items():
            for one in together:
                seen.update(zip(map(Same, one.services), one.figures(engines[name], timed), strict=True))
        for group in self.groups:
            values = _LOADS[group.cases[0].load](group, engines[group.engine], seen)
            for place, (where, case) in enumerate(zip(group.index, group.cases, strict=True)):
                out[where] = _metric(values, case, place)
        return out


def lay_out(cases: Sequence[InferenceCase], engines: Mapping[str, Engine]) -> InferenceBatch:
    """Group the cases and lay out their passes."""
    keys: dict[tuple[object, ...], list[int]] = {}
    for place, case in enumerate(cases):
        key = (
            case.shape.name,
            case.shape.layers,
            case.engine,
            case.served,
            case.load,
            case.autocast,
            case.channels_last,
            case.norms_apart,
            case.quantised_residual,
        )
        keys.setdefault(key, []).append(place)
    groups = [_group([cases[i] for i in places], places, engines) for places in keys.values()]
    by_class: dict[str, list[DecoderService]] = {}
    for group in groups:
        by_class.setdefault(group.engine, []).extend(group.services)
    served = {name: served_together(services) for name, services in by_class.items()}
    return InferenceBatch(cases=tuple(cases), groups=tuple(groups), served=served)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineBatch:
    """Cases of one engine class, whose figures a fit changes."""

    engine: Engine
    laid: InferenceBatch
    timer: PassTimer
    measured: Array  # logarithms

    def log_errors(self, values: Values) -> Array:
        """log(predicted / measured) of each case under these figures of the class."""
        return self.errors_under(self.engine.with_figures(values))

    def errors_under(self, engine: Engine) -> Array:
        """log(predicted / measured) of each case under `engine`."""
        return np.log(self.laid.predict({engine.name: engine}, self.timer.under(engine))) - self.measured


def engine_batch(cases: Sequence[InferenceCase], engine: Engine) -> EngineBatch:
    """`cases`, all of the class of `engine`."""
    measured = np.log([case.row.value for case in cases])
    laid = lay_out(cases, {engine.name: engine})
    works = [work for group in laid.groups for service in group.services for work in service.passes.works]
    return EngineBatch(engine=engine, laid=laid, timer=pass_timer(works), measured=measured)


def _group(cases: Sequence[InferenceCase], index: Sequence[int], engines: Mapping[str, Engine]) -> Group:
    first, engine = cases[0], engines[cases[0].engine]
    devices = serving_devices([case.machine for case in cases], first.served.compute)
    tensor = np.array([float(case.tensor_parallel) for case in cases])
    batch, prompt, users, padded = (
        np.array([float(getattr(case, name)) for case in cases])
        for name in ("batch", "input_tokens", "users", "padded_tokens")
    )
    if first.load in ("pass", "batching-server", "offline"):
        sharing = np.array([float(case.instances) for case in cases])
        passed = passed_batch(first.load, first.shape, batch=batch, tokens=prompt, users=users, instances=sharing)
        work = pass_work(first.shape, devices, first.served, engine, batch=passed, query=prompt, keys=prompt,
                         tensor_parallel=tensor, autocast=first.autocast,
                         channels_last=first.channels_last, quantised_residual=first.quantised_residual,
                         padded=padded, norms_apart=first.norms_apart)  # fmt: skip
        return Group(index=tuple(index), cases=tuple(cases), works=(work,))
    return Group(index=tuple(index), cases=tuple(cases), works=(), services=services(cases, engine))


def fixed_and_sending_s(case: InferenceCase) -> tuple[float, float]:
    """What a request costs beside its pass: client and server or the program's loop, and its input's way there."""
    if case.load == "offline" or case.row.metric.startswith("server_compute"):
        return 0.0, 0.0
    many = case.load == "batching-server"
    if not many and not case.remote:
        return LOOP_STEP_S if case.row.looped == "y" else 0.0, 0.0
    fixed, sending = client_s(
        case.shape, requests=case.users if many else case.batch, tokens=case.input_tokens,
        hosts=host_factor(case.machine.accelerator), many=many,
    )  # fmt: skip
    return float(fixed), float(sending)


def copied_s(case: InferenceCase) -> float:
    """Seconds in which the inputs of a pass go to the device, where the pass waits for them."""
    if not case.copied_bytes_per_s:
        return 0.0
    passed = passed_batch(
        pass_load(case), case.shape, batch=case.batch, tokens=case.input_tokens, users=case.users,
        instances=case.instances,
    )  # fmt: skip
    return float(np.max(passed * np.asarray(input_bytes(case.shape, case.input_tokens)))) / case.copied_bytes_per_s


def pass_load(case: InferenceCase) -> EncoderLoad:
    """The load of a case of whole passes."""
    assert case.load in ("pass", "offline", "batching-server")
    return case.load


def fed_s(case: InferenceCase) -> float:
    """Seconds in which the host gets a batch of photographs ready; 0 where they are ready."""
    return photographs_s(case.batch, case.decoding_threads) if case.decoding_threads else 0.0


def _passed(group: Group, engine: Engine, seen: Seen) -> Figures:  # noqa: ARG001
    """Encoders and vision: the function that plans call."""
    load = pass_load(group.cases[0])
    waits = np.array([fixed_and_sending_s(case) for case in group.cases])
    return _held_by_pass(group, engine) | encoder_figures(
        load, group.works[0], engine, replicas=group.column("replicas"), fixed_s=waits[:, 0], sending_s=waits[:, 1],
        users=group.column("users"), within_latency=group.column("rate_per_s"),
        fed_s=np.array([fed_s(case) for case in group.cases]), instances=group.column("instances"),
        copied_s=np.array([copied_s(case) for case in group.cases]),
    )  # fmt: skip


def _decoded(group: Group, engine: Engine, seen: Seen) -> Figures:  # noqa: ARG001
    """Whatever a decoder is asked: the function that plans call."""
    columns: Figures = {}
    for service in group.services:
        for name, values in seen[Same(service)].items():
            columns.setdefault(name, np.full(len(group.cases), np.nan))[list(service.places)] = values
        if any(group.cases[place].row.metric == "peak_mem_gib" for place in service.places):
            rows = service.passes.rows
            peak, outside = batch_bytes(rows, rows.prompt + rows.output), rows_memory(rows, rows.slots).outside_bytes
            for name, values in (("peak", peak), ("allocated", peak - outside)):
                columns.setdefault(name, np.full(len(group.cases), np.nan))[list(service.places)] = values
    return columns


def _held_by_pass(group: Group, engine: Engine) -> Figures:
    """Memory of an encoder's batches, where a row asks: the function that plans call, for the attention that each row
    states. Times are those of the engine's class, whose rows say nothing of theirs."""
    if all(case.row.metric != "peak_mem_gib" for case in group.cases):
        return {}
    first = group.cases[0]
    usual = attends_today(engine, first.shape)
    fused = [usual if case.fused_attention is None else case.fused_attention for case in group.cases]
    found = {}
    for kind in set(fused):
        found[kind] = estimate_serving_memory(
            first.shape, served=first.served, tensor_parallel=group.column("tensor_parallel"),
            batch=group.column("batch"), tokens=group.column("input_tokens"), engine=attending(engine, kind),
        )  # fmt: skip
    return {
        "peak": np.array([found[kind].fixed_bytes[place] for place, kind in enumerate(fused)]),
        "allocated": np.array([found[kind].allocated_bytes[place] for place, kind in enumerate(fused)]),
    }


_LOADS: Mapping[str, Callable[[Group, Engine, Seen], Figures]] = {
    "pass": _passed, "offline": _passed, "batching-server": _passed, "static": _decoded, "served": _decoded,
}  # fmt: skip

_RATES = {"sequences_per_s": "rate", "samples_per_s": "rate", "output_tokens_per_s": "tokens",
          "total_tokens_per_s": "total", "requests_per_s": "requests"}  # fmt: skip


def _metric(values: Figures, case: InferenceCase, place: int) -> float:
    """The row's metric from the figures of its load; percentiles of equal passes by a fixed tail."""
    metric = case.row.metric
    if metric in _RATES:
        found = values.get(_RATES[metric], values.get("rate"))
        return float(found[place]) if found is not None else np.nan
    if metric == "peak_mem_gib":
        name = "peak" if memory_reading(case.row.mem_kind, "device") == "device" else "allocated"
        return to_gib(float(values[name][place])) if name in values else np.nan
    if metric == "server_compute_ms_mean":
        return float(values.get("compute", values["latency"])[place]) * 1e3 if "latency" in values else np.nan
    name, _, percentile = metric.replace("_ms", "").partition("_")
    percentile = percentile if percentile in HOST_TAILS else ""
    if name == "tpot" and percentile in ("", "p50") and case.row.token_mean == "y":
        name = "itl"
    exact = values.get(f"{name}_{percentile}") if percentile else values.get(name)
    if exact is not None:
        return float(exact[place]) * 1e3
    if name not in values:
        return np.nan
    captured = case.engine in ("fused", "converted")
    stretch = tail(percentile, captured=captured, remote=case.remote) if percentile else 1.0
    return float(values[name][place]) * 1e3 * stretch
