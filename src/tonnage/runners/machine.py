"""The machine at hand, as far as a run has to know it before its first step. No heavy library is imported for it."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tonnage.runs.devices import list_gpus, memory_bytes, name_of, open_nvml
from tonnage.runs.preflight import Gpu, LocalMachine
from tonnage.units import mib_to_gib, to_gib

NVIDIA_SMI_TIMEOUT_S: Final = 10


def look_at_machine() -> LocalMachine:
    """Cores, memory (of the control group where it is less) and GPUs."""
    import psutil

    memory = min(psutil.virtual_memory().total, _group_memory_bytes() or psutil.virtual_memory().total)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return LocalMachine(cores=cores, memory_gib=memory / 2**30, gpus=_gpus())


LEAST_GIB: Final = 1 / 1024  # free for the files of a start; a checkpoint's need is its worker's to know


def free_disk_gib(path: Path) -> float:
    """Room where `path` is or will be."""
    while not path.exists():
        path = path.parent
    return shutil.disk_usage(path).free / 2**30


def parse_nvidia_smi(text: str) -> tuple[Gpu, ...]:
    """Lines of `nvidia-smi --query-gpu=name,memory.total --format=csv,noheader,nounits`.

    >>> parse_nvidia_smi("NVIDIA T4, 15360\\n")
    (Gpu(name='NVIDIA T4', memory_gib=15.0),)
    """
    rows = [line.rsplit(",", 1) for line in text.splitlines() if line.count(",")]
    return tuple(
        Gpu(name=name.strip(), memory_gib=mib_to_gib(float(memory)))
        for name, memory in rows
        if memory.strip().replace(".", "", 1).isdigit()
    )


def _gpus() -> tuple[Gpu, ...]:
    """By NVML, which containers have though they lack nvidia-smi; by that tool where NVML's package is not here."""
    nvml, _ = open_nvml()
    if nvml is None:
        return _visible(_nvidia_gpus(), os.environ)
    return gpus_by_nvml(nvml, os.environ)


def gpus_by_nvml(nvml: Any, environ: Mapping[str, str]) -> tuple[Gpu, ...]:
    """Those that CUDA_VISIBLE_DEVICES leaves; a MIG instance with its own memory. One that is lost is left out."""
    found = []
    try:
        for gpu in list_gpus(nvml, environ):
            try:
                size = memory_bytes(nvml, gpu)
                name = name_of(nvml, gpu)
            except nvml.NVMLError:
                continue
            if size is not None:
                found.append(Gpu(name=name, memory_gib=to_gib(size)))
    finally:
        nvml.nvmlShutdown()
    return tuple(found)


def _nvidia_gpus() -> tuple[Gpu, ...]:
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return ()
    command = [tool, "--query-gpu=name,memory.total", "--format=csv,noheader,nounits"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=NVIDIA_SMI_TIMEOUT_S, check=True)
    except (OSError, subprocess.SubprocessError):  # a tool without a driver: no GPU that could be used
        return ()
    return parse_nvidia_smi(answer.stdout)


def _visible(gpus: tuple[Gpu, ...], environ: os._Environ[str]) -> tuple[Gpu, ...]:
    """Those that CUDA_VISIBLE_DEVICES leaves; indices and UUIDs both count one device each."""
    named = environ.get("CUDA_VISIBLE_DEVICES")
    if named is None:
        return gpus
    places = [part.strip() for part in named.split(",") if part.strip() and part.strip() != "-1"]
    by_place = [gpus[int(place)] for place in places if place.isdigit() and int(place) < len(gpus)]
    return tuple(by_place) if all(place.isdigit() for place in places) else gpus[: len(places)]


def _group_memory_bytes() -> int | None:
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            text = Path(path).read_text(encoding="ascii").strip()
        except OSError:
            continue
        if text.isdigit():
            return int(text)
    return None
