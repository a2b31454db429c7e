"""Whether a machine holds what was measured on another one, limit by limit."""

from __future__ import annotations

from typing import ClassVar, Literal

from tonnage.catalog import Catalog
from tonnage.catalog.hardware import Accelerator
from tonnage.catalog.market import InstanceType
from tonnage.errors import UnsizedHardware
from tonnage.planning.reasons.misses import Miss
from tonnage.reason import Reason
from tonnage.rightsizing.usage import MachineUsage
from tonnage.sizing.devices import usable_bytes
from tonnage.units import to_gib
from tonnage.values import dataclass

Limit = Literal["vCPUs", "memory", "GPU memory", "memory bandwidth", "16-bit rate", "32-bit rate"]
Unit = Literal["", "GiB", "GB/s", "TFLOPS"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lacks(Reason):
    """The machine has less than what was measured. None: the figure is not published. `of`: of one GPU, of all."""

    kind: ClassVar[str] = "lacks"
    limit: Limit
    needed: float | None
    available: float | None
    unit: Unit = ""
    of: Literal["machine", "each GPU", "all GPUs"] = "machine"


@dataclass(frozen=True, slots=True, kw_only=True)
class Differs(Reason):
    """The machine is of another kind, so that nothing measured carries over. `has` empty: it has none."""

    kind: ClassVar[str] = "differs"
    limit: Literal["processor", "GPU", "GPU vendor"]
    needed: str
    has: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Unfit(Reason):
    """The workload does not run on one such machine. `miss` None: it takes several."""

    kind: ClassVar[str] = "unfit"
    workload: str
    miss: Miss | None


Broken = Lacks | Differs | Unfit


def broken_limits(
    usage: MachineUsage, candidate: InstanceType, catalog: Catalog, headroom: float
) -> tuple[Broken, ...]:
    """What of the measured need, with `headroom` on top, the candidate does not hold; empty where it holds all.

    What was not measured must be at least what the machine has today. An unpublished figure counts as missing.
    """
    now = usage.instance
    out: list[Broken] = [*_host(usage, now, candidate, headroom)]
    if candidate.cpu_arch != now.cpu_arch:
        out.append(Differs(limit="processor", needed=now.cpu_arch, has=candidate.cpu_arch))
    if now.accelerator is None or _gpu_unused(usage):
        return tuple(out)
    if candidate.accelerator is None:
        return (*out, Differs(limit="GPU", needed=f"{now.accelerator_count:g} x {now.accelerator}", has=""))
    old, new = catalog.accelerator(now.accelerator), catalog.accelerator(candidate.accelerator)
    if old.vendor != new.vendor:  # other kernels, other compilers: nothing measured carries over
        out.append(Differs(limit="GPU vendor", needed=old.vendor, has=new.vendor))
    return (*out, *_gpu_memory(usage, candidate, old, new, headroom), *_gpu_rates(usage, candidate, old, new, headroom))


def _gpu_unused(usage: MachineUsage) -> bool:
    """Measured, and nothing ran on it."""
    return usage.gpu_utilisation == 0 and usage.gpu_memory_peak_gib is not None and usage.gpu_memory_peak_gib < 0.5


def _host(usage: MachineUsage, now: InstanceType, candidate: InstanceType, headroom: float) -> list[Broken]:
    out: list[Broken] = []
    measured: tuple[tuple[Limit, float | None, float | None, float | None, Unit], ...] = (
        ("vCPUs", usage.vcpus_peak, now.vcpus, candidate.vcpus, ""),
        ("memory", usage.memory_peak_gib, now.memory_gib, candidate.memory_gib, "GiB"),
    )
    for limit, peak, had, has, unit in measured:
        needs = had if peak is None else min(peak * (1.0 + headroom), had or float("inf"))
        if needs is None:
            continue  # neither measured nor stated: nothing to hold it against, and `unmeasured` says so
        if has is None or has < needs - 1e-9:
            out.append(Lacks(limit=limit, needed=needs, available=has, unit=unit))
    return out


def _gpu_memory(
    usage: MachineUsage, candidate: InstanceType, old: Accelerator, new: Accelerator, headroom: float
) -> list[Broken]:
    """Per device, and of all devices together: the work may be spread over them, or held whole on each."""
    had, has = usable_gib(old), usable_gib(new)
    peak = usage.gpu_memory_peak_gib
    needs = had if peak is None else min(peak * (1.0 + headroom), had or float("inf"))
    if needs is None or has is None:
        return [Lacks(limit="GPU memory", needed=needs, available=None, unit="GiB", of="each GPU")]
    out: list[Broken] = []
    if has < needs - 1e-9:
        out.append(Lacks(limit="GPU memory", needed=needs, available=has, unit="GiB", of="each GPU"))
    together, all_has = needs * usage.instance.accelerator_count, has * candidate.accelerator_count
    if not out and all_has < together - 1e-9:
        out.append(Lacks(limit="GPU memory", needed=together, available=all_has, unit="GiB", of="all GPUs"))
    return out


def usable_gib(device: Accelerator) -> float | None:
    """Memory a program can have of a device; None where it is not known."""
    try:
        return to_gib(usable_bytes(device))
    except UnsizedHardware:
        return None


def _gpu_rates(
    usage: MachineUsage, candidate: InstanceType, old: Accelerator, new: Accelerator, headroom: float
) -> list[Broken]:
    """The time in use must fit: in bandwidth, in 16-bit and in 32-bit rate, since it is not known which of them
    binds."""
    used = 1.0 if usage.gpu_utilisation is None else min(usage.gpu_utilisation * (1.0 + headroom), 1.0)
    if used == 0:
        return []
    counted = min(candidate.accelerator_count, usage.instance.accelerator_count)  # work is not spread over more GPUs
    out: list[Broken] = []
    rates: tuple[tuple[Limit, float | None, float | None, Unit], ...] = (
        ("memory bandwidth", old.memory_bandwidth_gb_per_s, new.memory_bandwidth_gb_per_s, "GB/s"),
        ("16-bit rate", _sixteen(old), _sixteen(new), "TFLOPS"),
        ("32-bit rate", old.dense_fp32_tflops, new.dense_fp32_tflops, "TFLOPS"),
    )
    for limit, had, has, unit in rates:
        if had is None:
            continue
        needs = used * usage.instance.accelerator_count * had
        available = None if has is None else has * counted
        if available is None or available < needs - 1e-9:
            out.append(Lacks(limit=limit, needed=needs, available=available, unit=unit))
    return out


def _sixteen(device: Accelerator) -> float | None:
    return device.dense_fp16_tflops if device.dense_bf16_tflops is None else device.dense_bf16_tflops
