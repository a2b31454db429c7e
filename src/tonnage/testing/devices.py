"""A device profile of round figures, for tests of what plans on one: nothing in it was measured."""

from __future__ import annotations

from typing import Final

from tonnage.calibration.local_inference import PASS, REQUEST
from tonnage.calibration.local_profile import (
    AllReduce,
    DeviceCurve,
    DeviceProfile,
    MachineIdentity,
    MeasuredPoint,
    Timing,
)
from tonnage.sizing.local_work import HEAD_WIDTHS

_UNITS: Final = {
    "product": "flop", "gelu": "elements", "silu": "elements", "dropout": "elements", "norm": "elements",
    "loss": "elements", "stream": "bytes", "first touch": "bytes", "adamw": "parameters", "dispatch": "calls",
}  # fmt: skip


def fake_profile(
    *,
    name: str = "local-fake-2c",
    processor: str = "Fake CPU (family 1 model 1)",
    flop_per_s: float = 1e11,
    units_per_s: float = 1e9,
    spread: float = 0.05,
    threads: tuple[int, ...] = (1, 2),
    memory_gib: float = 16.0,
    usd_per_hour: float | None = None,
    services: bool = False,
) -> DeviceProfile:
    """A processor whose products run at `flop_per_s` (twice that in bf16) with one thread, everything else at
    `units_per_s`, and both in proportion with more threads. With `services`, encoders pass at `flop_per_s` in each
    worker, and a server takes 1 ms a request."""
    curves = []
    for count in threads:
        for precision, speed in (("fp32", 1.0), ("bf16", 2.0)):
            for operation, unit in _operations():
                rate = (flop_per_s * speed if operation == "product" else units_per_s) * count
                curves.append(_curve(operation, precision, count, unit, rate, spread))
    if services:
        curves += _service_curves(flop_per_s, max(threads), spread)
    identity = MachineIdentity(
        processor=processor, physical_cores=max(threads), logical_cores=max(threads), architecture="x86_64",
        memory_gib=memory_gib,
    )  # fmt: skip
    line = AllReduce(
        backend="gloo", processes=2, alpha_s=1e-4, bytes_per_s=1e9, points=(_point(1e6, 1e6, 1e9, spread),)
    )  # fmt: skip
    return DeviceProfile(
        name=name, kind="cpu", identity=identity, made_at="2026-11-20T00:00:00+00:00", versions=(("torch", "none"),),
        curves=tuple(curves), framework_bytes=0.25 * 2**30, load_average=0.0, time_log_sd=0.2, memory_log_sd=0.2,
        prior_source="made up", all_reduce=line, usd_per_hour=usd_per_hour,
    )  # fmt: skip


def _service_curves(flop_per_s: float, workers: int, spread: float) -> list[DeviceCurve]:
    passes = [
        DeviceCurve(
            operation=f"{PASS} {width} x {tokens}", precision="fp32", threads=count, unit="flop",
            points=tuple(_point(size, 1e9, flop_per_s, spread) for size in (8.0, 4096.0)),
        )
        for width in (64, 768) for tokens in (8, 384) for count in (1, workers)
    ]  # fmt: skip
    request = _point(8.0, 1.0, 1e3, spread), _point(128.0, 1.0, 1e3, spread)
    return [*passes, DeviceCurve(operation=REQUEST, precision="fp32", threads=1, unit="calls", points=request)]


def _operations() -> list[tuple[str, str]]:
    attention = [(f"attention {kept} {width}", "scores") for kept in ("dropout", "plain") for width in HEAD_WIDTHS]
    return [*_UNITS.items(), *attention]


def _curve(operation: str, precision: str, threads: int, unit: str, rate: float, spread: float) -> DeviceCurve:
    sizes = (1.0, 1e6)
    points = tuple(_point(size, size, rate, spread) for size in sizes)
    return DeviceCurve(operation=operation, precision=precision, threads=threads, unit=unit, points=points)


def _point(size: float, amount: float, rate: float, spread: float) -> MeasuredPoint:
    seconds = amount / rate
    timing = Timing(
        median_s=seconds, low_quartile_s=seconds / (1 + spread), high_quartile_s=seconds * (1 + spread), repeats=9
    )
    return MeasuredPoint(size=size, amount=amount, timing=timing)
