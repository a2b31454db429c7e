"""What the doctor looks at outside this package: processor, devices, disk, Java, environments, ports, other programs.

Each look answers with a `Check`; none raises.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import socket
import subprocess
from collections.abc import Iterable, Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from tonnage.api.engine_benches import benches_folder
from tonnage.errors import InputError
from tonnage.reports.environment import Check
from tonnage.units import to_gib

if TYPE_CHECKING:
    import psutil

TOOL_TIMEOUT_S: Final = 10
LEAST_FREE_GIB: Final = 1.0  # of disk: below it a checkpoint of a small model does not fit
BUSY_CORES: Final = 0.3  # taken by others, from which on timings are disturbed; as in `tonnage bench`
BUSY_S: Final = 0.25
PORTS: Final[Mapping[int, tuple[str, str]]] = MappingProxyType({
    8000: ("serve", "tonnage serve --port"), 8765: ("ui", "tonnage ui --port"),
})  # fmt: skip


def examine_machine(home: Path) -> tuple[Check, ...]:
    """Every check of the machine, devices first."""
    return (
        _processor(), _torch_build(), _cuda(), _rocm(), _metal(), _compiler(), _allocators(), _java(),
        *_environments(home), _disk(home), *_ports(), _other_programs(), _left_processes(home),
    )  # fmt: skip


def _processor() -> Check:
    from tonnage.benchmarks.machine import CPUINFO, host_identity, processor_features

    here = host_identity()
    text = CPUINFO.read_text(encoding="utf-8", errors="replace") if CPUINFO.is_file() else ""
    features = processor_features(text)
    if platform.system() == "Darwin" and here.architecture == "arm64":
        features = ("NEON",)  # every Apple processor has it
    units = ", ".join(features) if features else "no vector units known"
    found = f"{here.processor}, {here.physical_cores} cores, {here.memory_gib:.1f} GiB; {units}"
    return Check(name="processor", status="ok", found=found)


def _torch_build() -> Check:
    """Whether PyTorch's build can use the GPU that is here; the package is not imported."""
    try:
        built = version("torch")
    except PackageNotFoundError:
        return Check(name="torch build", status="missing", found="no PyTorch", advice="pip install 'tonnage[train]'")
    if built.endswith("+cpu") and (shutil.which("nvidia-smi") or shutil.which("rocm-smi")):
        return Check(
            name="torch build", status="problem", found=f"{built}, beside a GPU",
            advice="pip uninstall torch, then pip install torch (a CUDA build), or the ROCm build of your version",
        )  # fmt: skip
    return Check(name="torch build", status="ok", found=built)


def _cuda() -> Check:
    """Whether the driver here runs the CUDA of PyTorch, beside the NCCL that is installed. Nothing is imported."""
    from tonnage.catalog.cuda import parse_version, show_version
    from tonnage.catalog.cuda_compatibility import check_all
    from tonnage.catalog.cuda_packages import PACKAGES, cuda_of, nccl_fault, nccl_of

    has = {}
    for name in PACKAGES:
        with suppress(PackageNotFoundError):
            has[name] = version(name)
    cuda = cuda_of(has)
    if cuda is None:
        said = "no PyTorch" if "torch" not in has else f"PyTorch {has['torch']} names no CUDA"
        return Check(name="cuda", status="missing", found=said, advice="none is needed to plan")
    tool = shutil.which("nvidia-smi")
    printed = (
        (_printed([tool, "--query-gpu=driver_version,compute_cap", "--format=csv,noheader"]) or "") if tool else ""
    )
    rows = [line.split(", ") for line in printed.splitlines() if re.fullmatch(r"[\d.]+, [\d.]+", line)]
    if not rows:
        found = f"CUDA {show_version(cuda)}, and no driver answers"
        return Check(name="cuda", status="missing", found=found, advice="none is needed to plan")
    driver, level = (parse_version(one) for one in rows[0])
    answers = list(check_all(cuda=cuda, driver=driver, capability=level, nccl=nccl_of(has)))
    wrong, fault = [one for one in answers if one.verdict in {"fails", "limited"}], nccl_fault(has, cuda)
    words = [*(one.said for one in wrong or answers[:1]), *([fault] if fault else [])]
    advice = wrong[0].mends if wrong else "install the one NCCL that `pip show torch` requires" if fault else ""
    fails = bool(fault) or any(one.verdict == "fails" for one in wrong)
    return Check(name="cuda", status="problem" if fails else "ok", found="; ".join(words), advice=advice)


def _rocm() -> Check:
    tool = shutil.which("rocm-smi")
    if tool is None:
        return Check(name="rocm", status="missing", found="no rocm-smi here", advice="none is needed to plan")
    said = _printed([tool, "--showproductname", "--csv"])
    lines = [line for line in (said or "").splitlines() if line.strip() and not line.startswith("device")]
    if not lines:
        return Check(name="rocm", status="problem", found="rocm-smi names no device",
                     advice="add yourself to the groups of the driver: usermod -aG render,video $USER")  # fmt: skip
    return Check(name="rocm", status="ok", found="; ".join(lines))


def _metal() -> Check:
    if platform.system() == "Darwin" and platform.machine() == "arm64":
        found = f"{_printed(['sysctl', '-n', 'machdep.cpu.brand_string']) or 'Apple processor'} (Metal)"
        return Check(name="metal", status="ok", found=found.replace("\n", ""))
    return Check(name="metal", status="missing", found="no Apple GPU", advice="none is needed to plan")


def _compiler() -> Check:
    found = next((path for name in ("g++", "clang++") if (path := shutil.which(name))), None)
    if found is not None:
        return Check(name="compiler", status="ok", found=found)
    return Check(name="compiler", status="missing", found="no C++ compiler: torch.compile needs one on processors",
                 advice="apt-get install g++")  # fmt: skip


def _allocators() -> Check:
    from tonnage.api.optimised_here import LIBRARIES, preloaded
    from tonnage.optimisations.switches import ALLOCATOR_PACKAGES

    here = [name for name in LIBRARIES if preloaded(name) is not None]
    absent = [ALLOCATOR_PACKAGES[name] for name in LIBRARIES if name not in here]
    if not absent:
        return Check(name="allocators", status="ok", found=", ".join(here))
    return Check(name="allocators", status="missing", found=", ".join(here) or "that of the C library alone",
                 advice=f"apt-get install {' '.join(absent)}")  # fmt: skip


def _java() -> Check:
    from tonnage.benchmarks.engines.environments import java_fault, java_program, java_version

    try:
        fault = java_fault()
    except (OSError, subprocess.TimeoutExpired) as error:
        return Check(name="java", status="problem", found=f"java does not run: {error}",
                     advice="set JAVA_HOME to a Java of version 8 to 17")  # fmt: skip
    program = java_program()
    if fault is None and program is not None:
        return Check(
            name="java", status="ok", found=f"{program}, version {java_version(_printed([program, '-version']) or '')}"
        )
    what, _, mend = (fault or "").partition(": ")
    return Check(name="java", status="missing", found=what, advice=mend)


def _environments(home: Path) -> Iterable[Check]:
    """Those of engines that need their own: made and tried, begun, or not there."""
    from tonnage.benchmarks.engines.environments import environments_folder

    for kind in ("h2o", "sparkling", "ray"):
        folder, mend = environments_folder(home) / kind, f"tonnage bench setup {kind}"
        if (folder / "ready").is_file():
            yield Check(name=f"environment {kind}", status="ok", found=str(folder))
        elif folder.is_dir():
            yield Check(name=f"environment {kind}", status="problem", found=f"{folder} was not finished", advice=mend)
        else:
            yield Check(name=f"environment {kind}", status="missing", found="not made", advice=mend)


def _disk(home: Path) -> Check:
    place = home
    while not place.exists() and place != place.parent:
        place = place.parent
    free = to_gib(shutil.disk_usage(place).free)
    if free >= LEAST_FREE_GIB:
        return Check(name="disk", status="ok", found=f"{free:,.1f} GiB free at {place}")
    return Check(name="disk", status="problem", found=f"{free:.2f} GiB free at {place}",
                 advice="tonnage bench clean, `tonnage runs delete`, or set TONNAGE_HOME to a larger disk")  # fmt: skip


def _ports() -> Iterable[Check]:
    for port, (name, command) in PORTS.items():
        if _is_free(port):
            yield Check(name=f"port {port}", status="ok", found=f"free for `tonnage {name}`")
        else:
            taken = f"taken by another program; `tonnage {name}` uses it"
            yield Check(name=f"port {port}", status="notice", found=taken, advice=f"{command} N")


def _is_free(port: int) -> bool:
    with socket.socket() as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _other_programs() -> Check:
    """What other programs take of the processor now, those that take most by name."""
    import psutil

    before = {one.pid: _taken_s(one) for one in psutil.process_iter()}
    cores = psutil.cpu_percent(interval=BUSY_S) / 100.0 * (psutil.cpu_count() or 1)
    if cores <= BUSY_CORES:
        return Check(name="other programs", status="ok", found=f"{cores:.1f} cores busy")
    taken = [(_taken_s(one) - before.get(one.pid, 0.0), one) for one in psutil.process_iter() if one.pid != os.getpid()]
    most = sorted((pair for pair in taken if pair[0] > 0), key=lambda pair: -pair[0])[:3]
    names = ", ".join(f"{_name(one)} ({one.pid})" for _, one in most)
    return Check(
        name="other programs", status="notice", found=f"{cores:.1f} cores busy{': ' if names else ''}{names}",
        advice="timings (`calibrate --local`, `bench`, `optimise --measure`) need an idle machine",
    )  # fmt: skip


def _taken_s(process: psutil.Process) -> float:
    """Processor seconds so far; 0 of a process that ended, or is not ours to look at."""
    import psutil

    try:
        times = process.cpu_times()
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return 0.0
    return float(times.user + times.system)


def _name(process: psutil.Process) -> str:
    import psutil

    try:
        return str(process.name())
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return "ended"


def _left_processes(home: Path) -> Check:
    from tonnage.benchmarks.engines.folder import BenchFolder
    from tonnage.benchmarks.engines.worker_process import left_processes

    left: list[str] = []
    for one in sorted(benches_folder(home).glob("*/")):
        try:
            with BenchFolder(one).held():
                count = len(left_processes(one))
        except InputError:
            continue  # it runs: its processes are its own
        if count:
            left.append(f"{count} of {one.name}")
    if not left:
        return Check(name="killed benches", status="ok", found="no process is left of one")
    return Check(name="killed benches", status="problem", found=f"processes are left: {', '.join(left)}",
                 advice="tonnage bench clean")  # fmt: skip


def _printed(command: list[str]) -> str | None:
    """What a tool prints, both streams; None where it cannot be run or fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TOOL_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return None if done.returncode else done.stdout + done.stderr
