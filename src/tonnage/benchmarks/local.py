"""Measure this machine: every point in several rounds, so that a busy spell touches all and spoils none."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from tonnage.benchmarks.all_reduce import measure_all_reduce
from tonnage.benchmarks.machine import (
    busy_seconds,
    check_threads,
    device_name,
    framework_bytes,
    import_torch,
    others_fraction,
    read_identity,
    usable_cores,
    versions,
)
from tonnage.benchmarks.operations import FULL_CPU, FULL_CUDA, QUICK, QUICK_CUDA, Probe, probes, queued
from tonnage.benchmarks.timing import CallTimer, Samples, take_samples
from tonnage.calibration.local_profile import DeviceCurve, DeviceKind, DeviceProfile, MeasuredPoint, Timing
from tonnage.errors import InputError
from tonnage.values import dataclass

OnStep = Callable[[str, int, int], None]
ROUNDS: Final = 4
FEWEST: Final = 3  # repeats of a point in the first round
POINT_S: Final = 0.035  # a point a round
QUICK_POINT_S: Final = 0.02
NO_MEMORY: Final = ("allocate memory", "out of memory")  # as torch says it for host and GPU
QUEUED_CALLS: Final = 10  # on a GPU: launches overlap with what runs, as in training
FULL_S, QUICK_S = 18.0, 5.0  # a thread count; a round that has begun within it may be cut short


@dataclass(frozen=True, slots=True, kw_only=True)
class Prior:
    """How far predictions on a device are off before any run on it: standard deviations of the logarithm."""

    time_log_sd: float
    memory_log_sd: float
    source: str


def measure_device(
    kind: DeviceKind,
    *,
    prior: Prior,
    now: datetime,
    threads: tuple[int, ...] = (),
    quick: bool = False,
    usd_per_hour: float | None = None,
    on_step: OnStep | None = None,
) -> DeviceProfile:
    """The profile of this machine's processor or GPU. Raises MissingExtra without torch, InputError without a GPU
    and where this process has loaded torch with threads that spin."""
    load = os.getloadavg()[0]
    if kind == "cpu":
        check_threads()
    torch = import_torch()
    began, busy = time.monotonic(), busy_seconds()
    identity = read_identity(torch, kind)
    resident, adapters = framework_bytes()
    counts = _thread_counts(threads, kind, usable_cores(identity.physical_cores), identity.logical_cores)
    report = on_step or (lambda *_: None)
    curves = tuple(curve for count in counts for curve in measure_curves(torch, kind, count, quick, report))
    report("all-reduce of two processes", 0, 0)
    summed = measure_all_reduce(torch, kind)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else identity.logical_cores
    others = others_fraction(busy, busy_seconds(), time.monotonic() - began, cores)
    profile = DeviceProfile(
        name=device_name(identity, kind), kind=kind, identity=identity,
        made_at=now.isoformat(timespec="seconds"), versions=versions(torch, kind), curves=curves,
        framework_bytes=resident, adapter_library_bytes=adapters, load_average=load, time_log_sd=prior.time_log_sd,
        memory_log_sd=prior.memory_log_sd, prior_source=prior.source, usd_per_hour=usd_per_hour,
        others_cpu_fraction=others,
    )  # fmt: skip
    if isinstance(summed, str):
        return replace(profile, no_all_reduce=summed)
    return replace(profile, all_reduce=summed)


def measure_curves(torch: Any, kind: DeviceKind, threads: int, quick: bool, report: OnStep) -> tuple[DeviceCurve, ...]:
    """All curves at one thread count, each point once and then again while time is left; torch's own count is put
    back afterwards."""
    full, short = (FULL_CUDA, QUICK_CUDA) if kind == "cuda" else (FULL_CPU, QUICK)
    extent = short if quick else full
    queue = QUEUED_CALLS if kind == "cuda" else 1
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    clock = CallTimer(torch.cuda.synchronize if kind == "cuda" else (lambda: None), 0 if kind == "cuda" else threads)
    try:
        listed = list(probes(torch, kind, precisions(torch, kind), extent))
        found, times = [Samples() for _ in listed], [1.0] * len(listed)
        end = time.monotonic() + (QUICK_S if quick else FULL_S)
        for number in range(1 if quick else ROUNDS):
            for place, probe in enumerate(listed):
                if number and time.monotonic() > end:
                    break
                what = f"{threads} thread{'s' if threads > 1 else ''}: {probe.operation} {probe.precision}"
                report(what, number * len(listed) + place + 1, (1 if quick else ROUNDS) * len(listed))
                call, work = probe.make()
                times[place] = work * queue
                call = queued(call, queue) if queue > 1 else call
                take_samples(
                    call,
                    clock,
                    found[place],
                    budget_s=QUICK_POINT_S if quick else POINT_S,
                    fewest=1 if number else FEWEST,
                )
    except RuntimeError as error:  # also torch's own OutOfMemoryError
        if not any(word in str(error) for word in NO_MEMORY):
            raise
        raise InputError(
            f"no memory left while measuring: {str(error).splitlines()[0][:120]}", hint="stop something, or use --quick"
        ) from error
    finally:
        torch.set_num_threads(before)
    return _curves(listed, [one.timing(many, threads=threads) for one, many in zip(found, times, strict=True)], threads)


def precisions(torch: Any, kind: DeviceKind) -> tuple[str, ...]:
    """fp32 always; bf16 where the device multiplies it in hardware."""
    if kind == "cuda":
        return ("fp32", "bf16") if torch.cuda.is_bf16_supported(including_emulation=False) else ("fp32",)
    able = torch.backends.cpu.get_cpu_capability(), torch.ops.mkldnn._is_mkldnn_bf16_supported()
    return ("fp32", "bf16") if able[1] else ("fp32",)


def _thread_counts(asked: tuple[int, ...], kind: DeviceKind, cores: int, logical: int) -> tuple[int, ...]:
    """One thread and all physical cores; on a GPU the host's threads do not matter."""
    if kind == "cuda":
        return (1,)
    for count in asked:
        if not 1 <= count <= logical:
            raise InputError(f"found {count} threads, this machine has {logical}", hint="1 to the number of cores")
    return tuple(sorted(set(asked or (1, cores))))


def _curves(listed: list[Probe], timings: list[Timing], threads: int) -> tuple[DeviceCurve, ...]:
    points: defaultdict[tuple[str, str, str], list[MeasuredPoint]] = defaultdict(list)
    for probe, timing in zip(listed, timings, strict=True):
        key = (probe.operation, probe.precision, probe.unit)
        points[key].append(MeasuredPoint(size=probe.size, amount=probe.amount, timing=timing))
    return tuple(
        DeviceCurve(operation=operation, precision=precision, threads=threads, unit=unit, points=tuple(found))
        for (operation, precision, unit), found in points.items()
    )
