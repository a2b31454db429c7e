"""Where a run is carried out: the device by its own name, the versions of the libraries at work."""

from __future__ import annotations

import platform
from importlib import metadata
from pathlib import Path
from typing import Final

from tonnage.calibration.local_profile import processor_name

CPUINFO: Final = Path("/proc/cpuinfo")
_LIBRARIES: Final = (
    "torch", "transformers", "accelerate", "peft", "datasets", "bitsandbytes", "xgboost", "xgboost-cpu", "scikit-learn",
    "tonnage",
)  # fmt: skip


def device_name(*, on_gpu: bool) -> str:
    """The device as its driver or the operating system names it: what a device profile of it is called, too."""
    if on_gpu:
        import torch

        return torch.cuda.get_device_name()
    known = CPUINFO.read_text(encoding="utf-8") if CPUINFO.is_file() else ""
    return processor_name(known) or platform.processor() or platform.machine()


def versions() -> dict[str, str]:
    """Versions of the libraries at work, those that are installed."""
    found = {"python": platform.python_version()}
    for name in _LIBRARIES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found
