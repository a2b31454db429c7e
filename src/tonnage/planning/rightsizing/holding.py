"""Whether a machine holds what was measured on another one, limit by limit."""

from __future__ import annotations

from dataclasses import dataclass

from tonnage.catalog import Catalog
from tonnage.catalog.hardware import Accelerator
from tonnage.catalog.market import InstanceType
from tonnage.errors import UnsizedHardware
from tonnage.planning.rightsizing.usage import Usage
from tonnage.sizing.devices import usable_bytes
from tonnage.units import to_gib


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """A limit that a machine would break. Figures with their unit, in words."""

    limit: str
    needs: str
    has: str


def broken_limits(usage: Usage, candidate: InstanceType, catalog: Catalog, headroom: float) -> tuple[Broken, ...]:
    """What of the measured need, with `headroom` on top, the candidate does not hold; empty where it holds all.

    What was not measured must be at least what the machine has today. A figure that nobody publishes counts as missing.
    """
    now = usage.instance
    out = [*_host(usage, now, candidate, headroom)]
    if candidate.cpu_arch != now.cpu_arch:
        out.append(Broken(limit="processor", needs=now.cpu_arch, has=candidate.cpu_arch))
    if now.accelerator is None or _gpu_unused(usage):
        return tuple(out)
    if candidate.accelerator is None:
        return (*out, Broken(limit="GPU", needs=f"{now.accelerator_count:g} x {now.accelerator}", has="none"))
    old, new = catalog.accelerator(now.accelerator), catalog.accelerator(candidate.accelerator)
    if old.vendor != new.vendor:  # other kernels, other compilers: nothing measured carries over
        out.append(Broken(limit="GPU vendor", needs=old.vendor, has=new.vendor))
    return (*out, *_gpu_memory(usage, candidate, old, new, headroom), *_gpu_rates(usage, candidate, old, new, headroom))


def _gpu_unused(usage: Usage) -> bool:
    """Measured, and nothing ran on it."""
    return usage.gpu_utilisation == 0 and usage.gpu_memory_peak_gib is not None and usage.gpu_memory_peak_gib < 0.5


def _host(usage: Usage, now: InstanceType, candidate: InstanceType, headroom: float) -> list[Broken]:
    out = []
    for limit, peak, had, has, unit in (
        ("vCPUs", usage.vcpus_peak, now.vcpus, candidate.vcpus, ""),
        ("memory", usage.memory_peak_gib, now.memory_gib, candidate.memory_gib, " GiB"),
    ):
        needs = had if peak is None else min(peak * (1.0 + headroom), had or float("inf"))
        if needs is None:
            continue  # neither measured nor stated: nothing to hold it against, and `unmeasured` says so
        if has is None or has < needs - 1e-9:
            shown = "not published" if has is None else f"{has:g}{unit}"
            out.append(Broken(limit=limit, needs=f"{needs:.4g}{unit}", has=shown))
    return out


def _gpu_memory(
    usage: Usage, candidate: InstanceType, old: Accelerator, new: Accelerator, headroom: float
) -> list[Broken]:
    """Per device, and of all devices together: the work may be spread over them, or held whole on each."""
    had, has = usable_gib(old), usable_gib(new)
    peak = usage.gpu_memory_peak_gib
    needs = had if peak is None else min(peak * (1.0 + headroom), had or float("inf"))
    if needs is None or has is None:
        return [Broken(limit="GPU memory", needs="a published figure", has="not published")]
    out = []
    if has < needs - 1e-9:
        out.append(Broken(limit="GPU memory", needs=f"{needs:.3g} GiB a GPU", has=f"{has:.3g} GiB usable"))
    together, all_has = needs * usage.instance.accelerator_count, has * candidate.accelerator_count
    if not out and all_has < together - 1e-9:
        out.append(Broken(limit="GPU memory", needs=f"{together:.3g} GiB in all", has=f"{all_has:.3g} GiB usable"))
    return out


def usable_gib(device: Accelerator) -> float | None:
    """Memory a program can have of a device; None where it is not known."""
    try:
        return to_gib(usable_bytes(device))
    except UnsizedHardware:
        return None


def _gpu_rates(
    usage: Usage, candidate: InstanceType, old: Accelerator, new: Accelerator, headroom: float
) -> list[Broken]:
    """The time in use must fit: in bandwidth, in 16-bit and in 32-bit rate, since nobody says which of them binds."""
    used = 1.0 if usage.gpu_utilisation is None else min(usage.gpu_utilisation * (1.0 + headroom), 1.0)
    if used == 0:
        return []
    counted = min(candidate.accelerator_count, usage.instance.accelerator_count)  # work is not spread over more GPUs
    out = []
    for limit, had, has in (
        ("memory bandwidth", old.memory_bandwidth_gb_per_s, new.memory_bandwidth_gb_per_s),
        ("16-bit rate", _sixteen(old), _sixteen(new)),
        ("32-bit rate", old.dense_fp32_tflops, new.dense_fp32_tflops),
    ):
        if had is None:
            continue
        needs = used * usage.instance.accelerator_count * had
        unit = "GB/s" if limit == "memory bandwidth" else "TFLOPS"
        if has is None:
            out.append(Broken(limit=limit, needs=f"{needs:.4g} {unit}", has="not published"))
        elif has * counted < needs - 1e-9:
            out.append(Broken(limit=limit, needs=f"{needs:.4g} {unit}", has=f"{has * counted:.4g}"))
    return out


def _sixteen(device: Accelerator) -> float | None:
    return device.dense_fp16_tflops if device.dense_bf16_tflops is None else device.dense_bf16_tflops
