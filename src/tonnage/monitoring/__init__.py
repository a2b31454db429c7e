"""What a run does to its machine: memory, processors and GPUs sampled, and shown to Prometheus.

Names load on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tonnage.lazy import lazy_names

if TYPE_CHECKING:
    from tonnage.monitoring.exporter import Exporter
    from tonnage.monitoring.gpu_sample import GpuSample
    from tonnage.monitoring.gpus import Gpus, open_gpus
    from tonnage.monitoring.sampler import Sample, Sampler

__all__ = ["Exporter", "GpuSample", "Gpus", "Sample", "Sampler", "open_gpus"]
__getattr__ = lazy_names(__name__)
