"""Which machine this is: processor, cores, memory, GPU by its driver, versions of what runs on it."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from tonnage.calibration.local_profile import DeviceKind, MachineIdentity, processor_name
from tonnage.catalog.hardware import Accelerator
from tonnage.errors import InputError, MissingExtra, TonnageError, UnknownAccelerator
from tonnage.runs.devices import BUS_ORDER, ListedGpu, list_boards, list_gpus, memory_bytes, name_of, open_nvml
from tonnage.runs.job import WAITING_THREADS
from tonnage.units import to_gib

CPUINFO = Path("/proc/cpuinfo")
GROUP_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
# What a feature is called -> the flags of /proc/cpuinfo that say so: of x86 («flags»), of Arm («Features»).
FEATURES: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType({
    "AVX2": ("avx2",), "AVX-512": ("avx512f",), "AVX-512 VNNI": ("avx512_vnni", "avx_vnni"),
    "AVX-512 bf16": ("avx512_bf16",), "AMX bf16": ("amx_bf16",), "AMX int8": ("amx_int8",), "NEON": ("asimd", "neon"),
    "Arm bf16": ("bf16",), "Arm int8": ("i8mm",), "SVE": ("sve",), "SVE2": ("sve2",),
})  # fmt: skip
# What a process that trains has loaded: torch, and of the others those that are installed; then what adapters need.
RESIDENT = """
import importlib, importlib.util, psutil, torch
torch.ones(8, 8) @ torch.ones(8, 8)
def load(name):
    if importlib.util.find_spec(name.split(".")[0]):
        importlib.import_module(name)
    return psutil.Process().memory_info().rss
for name in ("transformers.models.auto.modeling_auto", "accelerate", "datasets", "sklearn.metrics"):
    trains = load(name)
print(trains, load("peft") - trains)
"""
NEEDED_GIB = 1.5  # free memory that measuring takes at most: the pool of inputs, the largest optimizer, torch itself


def import_torch() -> Any:
    """torch, or MissingExtra. Its threads wait, and its GPUs are counted, as those of a run, where this process had not
    loaded it before (`check_threads`): both are read once, so they stay in the process's environment."""
    os.environ.update([WAITING_THREADS, BUS_ORDER])
    try:
        import torch
    except ImportError as error:
        raise MissingExtra("measuring this machine", "train") from error
    return torch


def check_threads() -> None:
    """InputError where torch is here already, with threads that wait otherwise than those of a run."""
    name, value = WAITING_THREADS
    if "torch" in sys.modules and os.environ.get(name, "").upper() != value:
        raise InputError(
            "this process has loaded torch, and its threads spin where those of a run sleep",
            hint=f"`tonnage calibrate --local` in a shell, or {name}={value} before Python starts",
        )


def usual_kind() -> DeviceKind:
    """What `device: auto` computes on here."""
    return "cuda" if import_torch().cuda.is_available() else "cpu"


def read_identity(torch: Any, kind: DeviceKind) -> MachineIdentity:
    """This machine; with its first GPU where `kind` is cuda. Raises InputError where there is none."""
    if kind == "cpu":
        return host_identity()
    if not torch.cuda.is_available():
        raise InputError(
            "no CUDA GPU is at hand: torch sees none", hint="measure the processor: --device cpu; or check the driver"
        )
    nvml, why = open_nvml()
    if nvml is None:
        raise InputError(
            f"the GPU cannot be read: {why}", hint="pip install nvidia-ml-py; does `nvidia-smi` work here?"
        )
    name, memory = gpu_by_driver(nvml, str(torch.cuda.get_device_properties(0).uuid))
    host = host_identity()
    return MachineIdentity(
        processor=host.processor, physical_cores=host.physical_cores, logical_cores=host.logical_cores,
        architecture=host.architecture, memory_gib=host.memory_gib, device=name, device_memory_gib=memory,
    )  # fmt: skip


def host_identity() -> MachineIdentity:
    """Processor and memory of this host; needs no torch."""
    import psutil

    logical = psutil.cpu_count(logical=True) or 1
    total = psutil.virtual_memory().total
    return MachineIdentity(
        processor=processor_name(CPUINFO.read_text(encoding="utf-8") if CPUINFO.is_file() else "")
        or platform.processor()
        or platform.machine(),
        physical_cores=psutil.cpu_count(logical=False) or logical,
        logical_cores=logical,
        architecture=platform.machine(),
        memory_gib=to_gib(min(total, group_memory_bytes(GROUP_LIMITS) or total)),
    )


def processor_features(cpuinfo: str) -> tuple[str, ...]:
    """The vector and matrix units that the text of /proc/cpuinfo names.

    >>> processor_features("flags\\t\\t: fpu avx2 avx512f avx512_bf16\\n")
    ('AVX2', 'AVX-512', 'AVX-512 bf16')
    >>> processor_features("Features\\t: fp asimd sve bf16\\n")
    ('NEON', 'Arm bf16', 'SVE')
    """
    for line in cpuinfo.splitlines():
        name, _, said = line.partition(":")
        if name.strip() in ("flags", "Features"):
            flags = set(said.split())
            return tuple(feature for feature, words in FEATURES.items() if flags.intersection(words))
    return ()


def clock_hz(cpuinfo: str) -> float | None:
    """The fastest clock that the text of /proc/cpuinfo reports; None where it reports none (Arm).

    >>> clock_hz("cpu MHz\\t\\t: 2600.000\\ncpu MHz\\t\\t: 3100.5\\n")
    3100500000.0
    """
    found = re.findall(r"^cpu MHz\s*:\s*([0-9.]+)", cpuinfo, re.MULTILINE)
    return max(map(float, found)) * 1e6 if found else None


def usable_cores(physical: int) -> int:
    """Physical cores, or as many as this process may run on where those are fewer."""
    return min(physical, len(os.sched_getaffinity(0))) if hasattr(os, "sched_getaffinity") else physical


def group_memory_bytes(places: Sequence[Path]) -> int | None:
    """What the control group allows; None where it sets no limit. `memory.max` says so with a word, the older file with
    a figure near 2⁶³."""
    for place in places:
        text = place.read_text(encoding="ascii").strip() if place.is_file() else ""
        if text.isdigit() and int(text) < 2**60:
            return int(text)
    return None


def gpu_by_driver(nvml: Any, uuid: str) -> tuple[str, float]:
    """Name and memory (GiB) of the GPU that torch calls `uuid`, by NVML, which reports all of the board's memory, and
    of a MIG instance its own part; raises InputError."""
    for kind in ("GPU-", "MIG-"):
        try:
            gpu = ListedGpu(0, nvml.nvmlDeviceGetHandleByUUID(f"{kind}{uuid}"))
            name, size = name_of(nvml, gpu), memory_bytes(nvml, gpu)
        except nvml.NVMLError as error:
            why = str(error)
            continue
        if size is not None:
            return name, to_gib(float(size))
        why = "it does not tell its memory"
    raise InputError(f"NVML cannot read the GPU: {why}", hint="does `nvidia-smi` work here?")


def device_name(identity: MachineIdentity, kind: DeviceKind) -> str:
    """A name that can be a file's: the GPU's, or the processor's with its cores.

    >>> machine = MachineIdentity(processor="AMD EPYC (family 26 model 2)", physical_cores=2, logical_cores=2,
    ...                    architecture="x86_64", memory_gib=24.0)
    >>> device_name(machine, "cpu")
    'local-amd-epyc-family-26-model-2-2c'
    """
    text = identity.device if kind == "cuda" and identity.device else identity.processor
    slug = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    return f"local-{slug}" + (f"-{identity.physical_cores}c" if kind == "cpu" else "")


def busy_seconds() -> tuple[float, float]:
    """Processor seconds so far: of everything on the cores this process may use, and of this process with its ended
    children."""
    import psutil

    every = psutil.cpu_times(percpu=True)
    usable = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(len(every))
    cores = [every[core] for core in usable if core < len(every)]
    idle = ("idle", "iowait", "guest", "guest_nice")  # guests are counted in `user` already
    machine = sum(sum(core) - sum(getattr(core, name, 0.0) for name in idle) for core in cores)
    own = psutil.Process().cpu_times()
    return machine, own.user + own.system + own.children_user + own.children_system


def others_fraction(before: tuple[float, float], after: tuple[float, float], seconds: float, cores: int) -> float:
    """Share of the cores that other programs took between two readings of `busy_seconds`.

    >>> others_fraction((100.0, 10.0), (118.0, 26.0), 10.0, 2)
    0.1
    """
    machine, own = after[0] - before[0], after[1] - before[1]
    return min(max((machine - own) / (seconds * cores), 0.0), 1.0)


def check_memory() -> None:
    """InputError where too little memory is free to measure in."""
    import psutil

    free = to_gib(psutil.virtual_memory().available)
    if free < NEEDED_GIB:
        raise InputError(
            f"{free:.1f} GiB of memory are free, measuring takes up to {NEEDED_GIB} GiB", hint="stop something first"
        )


def framework_bytes() -> tuple[float, float]:
    """Resident memory of a new Python that has loaded what training needs and has multiplied, and what the library of
    adapters adds to it."""
    done = subprocess.run([sys.executable, "-c", RESIDENT], capture_output=True, text=True, check=False, timeout=120)
    if "ModuleNotFoundError" in done.stderr:
        raise MissingExtra("measuring this machine", "train")
    if done.returncode != 0:
        raise TonnageError(f"torch does not start: {done.stderr.strip().splitlines()[-1]}", hint="try `import torch`")
    trains, adapters = map(float, done.stdout.split())
    return trains, max(adapters, 0.0)


def known_gpus(nvml: Any | None = None) -> tuple[Accelerator | None, ...]:
    """The catalog's card of each board here, by PCI bus; None where it has no card of that name. Empty where the
    driver cannot be read."""
    from tonnage.catalog.loading import load_catalog

    library, _ = open_nvml(nvml)
    if library is None:
        return ()
    market, found = load_catalog(), list[Accelerator | None]()
    for board in list_boards(library):
        try:
            found.append(market.accelerator(name_of(library, board)))
        except UnknownAccelerator:
            found.append(None)
    return tuple(found)


def gpu_memory_bytes(names: Iterable[str], nvml: Any | None = None) -> dict[str, float]:
    """All memory of each device that is named as CUDA_VISIBLE_DEVICES names it (a MIG instance: its own), by name.
    Those that the driver does not know or tell are left out."""
    library, _ = open_nvml(nvml)
    if library is None:
        return {}
    found = {}
    for name in names:
        for device in list_gpus(library, {"CUDA_VISIBLE_DEVICES": name}):
            held = memory_bytes(library, device)
            if held is not None:
                found[name] = float(held)
    return found


def versions(torch: Any, kind: DeviceKind) -> tuple[tuple[str, str], ...]:
    """What ran, by name; the driver's where a GPU was measured."""
    found = {"python": platform.python_version(), "torch": str(torch.__version__), "system": platform.release()}
    for package in ("transformers", "numpy"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue  # not installed, so it has no version
    if kind == "cuda":
        import pynvml  # type: ignore[import-untyped, unused-ignore]

        found["cuda"] = str(torch.version.cuda)
        found["driver"] = str(pynvml.nvmlSystemGetDriverVersion())
    return tuple(sorted(found.items()))
