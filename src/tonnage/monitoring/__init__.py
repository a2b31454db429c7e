"""What a run does to its machine: memory, processors and GPUs sampled, and shown to Prometheus.

Names load on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tonnage.monitoring.exporter import Exporter
    from tonnage.monitoring.gpus import Gpus, GpuSample
    from tonnage.monitoring.sampler import Sample, Sampler

_HOME: Final = {
    "Exporter": "exporter", "GpuSample": "gpus", "Gpus": "gpus", "Sample": "sampler", "Sampler": "sampler",
}  # fmt: skip

__all__ = ["Exporter", "GpuSample", "Gpus", "Sample", "Sampler"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
