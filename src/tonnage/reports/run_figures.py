"""The measured figures of a run, each with its unit and what it is of."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from tonnage.reports.plain import plain_number, plain_usd
from tonnage.reports.wording import render_duration, render_gib, render_money, render_quantity, short
from tonnage.runs.measured import MeasuredRun
from tonnage.units import to_gib

PEAKS: Final = (  # figures that are not the same
    ("peak_allocated_bytes", "peak allocated", "tensors, one device"),
    ("peak_reserved_bytes", "peak reserved", "the allocator, one device"),
    ("peak_device_bytes", "peak of the device", "everything on it, by NVML"),
    ("peak_process_rss_bytes", "peak of one process", "resident on the host, the first worker"),
    ("peak_host_rss_bytes", "peak on the host", "resident, all processes"),
)
OWN: Final = "the run's own processes, by NVML"
_RATES: Final = (  # two of samples, which are not the same
    ("samples_per_s", ", in steps"),
    ("clock_samples_per_s", ", by the clock: with data wait, saves and evaluations"),
    ("tokens_per_s", ", in steps, without padding"),
)
_FRACTIONS: Final = (
    ("data_wait_fraction", "waiting for data", "of the step time"),
    ("gpu_utilization_fraction", "GPU utilisation", "mean"),
    ("throttled_fraction", "clocks held back", "of the samples"),
    ("cpu_fraction", "processors", "by the run, mean"),
    ("other_cpu_fraction", "processors, others", "mean"),
)


def render_value(key: str, value: float) -> tuple[str, str]:
    """Label and text of a figure by its key.

    >>> render_value("cost_usd", 1.5), render_value("peak_memory_gib", 4.25), render_value("time_s", 90.0)
    (('cost', '$1.50'), ('peak memory', '4.25 GiB'), ('time', '90 s'))
    """
    if key.endswith("_usd"):
        return key.removesuffix("_usd").replace("_", " "), render_money(value)
    return render_quantity(key, value)


def figure_pairs(measured: MeasuredRun) -> Iterator[tuple[str, str]]:
    """What was measured, one line a figure; what was not is left out."""
    yield "timing", measured.timing
    if measured.median_step_s is not None:
        tail = "" if measured.p90_step_s is None else f", 90 % within {render_duration(measured.p90_step_s)}"
        yield "step", f"{render_duration(measured.median_step_s)} (median{tail})"
    for key, of in _RATES:
        if getattr(measured, key) is not None:
            label, text = render_quantity(key.removeprefix("clock_"), getattr(measured, key))
            yield label, text + of
    if measured.tokens_per_sample is not None:
        longest = f", longest {measured.longest_tokens}" if measured.longest_tokens else ""
        yield "tokens a sample", f"{short(measured.tokens_per_sample)} on average{longest}"
    for key, label, of in PEAKS:
        if getattr(measured, key) is not None:
            whose = OWN if key == "peak_device_bytes" and measured.device_memory_is_own else of
            yield label, f"{render_gib(to_gib(getattr(measured, key)))} ({whose})"
    for key, label, of in _FRACTIONS:
        if getattr(measured, key) is not None:
            yield label, f"{100 * getattr(measured, key):.1f} % {of}"
    yield from _physics(measured)
    if measured.versions:
        yield "versions", ", ".join(f"{name} {version}" for name, version in measured.versions)


def _physics(measured: MeasuredRun) -> Iterator[tuple[str, str]]:
    if measured.power_w is not None:
        yield "power", f"{short(measured.power_w)} W, mean over all GPUs together"
    if measured.temperature_c is not None:
        yield "hottest", f"{short(measured.temperature_c)} °C"
    if measured.energy is not None:
        kwh = measured.energy.joules / 3.6e6
        yield (
            "energy",
            f"{short(measured.energy.joules / 1000)} kJ ({short(kwh)} kWh), GPUs, by {measured.energy.basis}",
        )
    if measured.usd is not None:
        yield "cost", render_money(measured.usd)


def measured_document(measured: MeasuredRun) -> dict[str, Any]:
    """The same as JSON: null where it was not measured."""
    numbers = (
        "median_step_s", "p90_step_s", "samples_per_s", "clock_samples_per_s", "tokens_per_s", "data_wait_fraction",
        "tokens_per_sample", "longest_tokens", *(key for key, _, _ in PEAKS), "gpu_utilization_fraction", "power_w",
        "temperature_c",
        "throttled_fraction", "cpu_fraction", "other_cpu_fraction", "restarts", "lost_steps", "micro_batch",
        "processes", "steps", "timed_steps", "since_step",
    )  # fmt: skip
    return {
        "device": measured.device,
        "timing": measured.timing,
        **{name: plain_number(getattr(measured, name)) for name in numbers},
        "throttled_by": measured.throttled_by,
        "energy_j": None if measured.energy is None else plain_number(measured.energy.joules),
        "energy_basis": None if measured.energy is None else measured.energy.basis,
        "held_s": plain_number(measured.seconds),
        "cost_usd": None if measured.usd is None else plain_usd(measured.usd),
        "versions": dict(measured.versions),
    }
