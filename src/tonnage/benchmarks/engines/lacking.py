"""What an engine of a bench lacks on this machine, and how to get it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

from tonnage.benchmarks.engines.environments import missing
from tonnage.runs.devices import list_gpus, open_nvml
from tonnage.side_by_side.spec import EngineSpec

ROCM: Final = Path("/dev/kfd")  # AMD's driver, which NVML knows nothing of


def lacking(
    engine: EngineSpec, home: Path, *, cores: int | None = None, nvml: Any | None = None, rocm: Path = ROCM
) -> str | None:
    """Why the engine cannot be measured here as the file states it: packages, an environment, Java, cores, GPUs; None
    where it can. `cores`: those that this process may use, else as the system tells."""
    return missing(engine.engine, home) or _cores_fault(engine, cores or usable()) or _gpu_fault(engine, nvml, rocm)


def usable() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _cores_fault(engine: EngineSpec, cores: int) -> str | None:
    """More threads than cores would be measured as something else than predicted. A study of scaling may go beyond
    them: it says what sharing cores takes."""
    if engine.master is not None or engine.scaling is not None or engine.threads <= cores:
        return None
    return f"{engine.threads} threads are stated, {cores} cores may be used here: threads: {cores}"


def _gpu_fault(engine: EngineSpec, nvml: Any | None, rocm: Path) -> str | None:
    if not engine.devices or rocm.exists():
        return None
    library, why = open_nvml(nvml)
    if library is None:
        return f"devices {_listed(engine.devices)} are stated, no GPU can be seen here ({why}): leave `devices` out"
    known = [one for one in engine.devices if list_gpus(library, {"CUDA_VISIBLE_DEVICES": one})]
    absent = [one for one in engine.devices if one not in known]
    return f"there is no GPU {_listed(absent)} here: `nvidia-smi -L` lists those that are" if absent else None


def _listed(names: tuple[str, ...] | list[str]) -> str:
    return ", ".join(names)
