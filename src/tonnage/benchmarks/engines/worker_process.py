"""One worker: started in a session of its own, watched until its end, ended with all that it started."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from itertools import count
from pathlib import Path
from typing import Any, Final

import psutil

from tonnage.benchmarks.engines.environments import python_of
from tonnage.runs.devices import BUS_ORDER
from tonnage.side_by_side.cells import BenchCell, read_cell
from tonnage.side_by_side.power import OpenPower, PowerReading, PowerSource, power_of
from tonnage.side_by_side.spec import BenchData, EngineSpec, cluster_of

APART: Final = Path(__file__).parent / "apart"
MARK: Final = "TONNAGE_BENCH"  # in the environment of every process of a bench: its folder
SAMPLE_S: Final = 0.25
LISTED_EVERY: Final = 10  # samples between two looks for new processes: to list them takes tens of milliseconds
READ_EVERY: Final = 2  # samples between two readings of clocks and energy
SETTLE_S: Final = 5.0
SCRATCH: Final = "tonnage-ray-"


def run_cell(
    data: BenchData,
    engine: EngineSpec,
    turn: int,
    *,
    table: Path,
    seed: int,
    timeout_s: float,
    bench: Path,
    home: Path,
    open_power: OpenPower | None = None,
    trial: int | None = None,
) -> BenchCell:
    """The cell, measured; a worker that ends without a result, or not in time, makes a failed cell with its reason.

    `trial`: the number of a trial of a search, whose folder is its own.
    """
    name = f"{data.name}-{engine.name}-" + (str(turn) if trial is None else f"trial-{trial}")
    folder = bench / "cells" / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    busy = _busy_cores()
    job, result = folder / "job.json", folder / "result.json"
    scratch = _scratch(engine)
    stated = _job(data, engine, table, seed + turn, folder) | {"scratch": scratch}
    job.write_text(json.dumps(stated), encoding="utf-8")
    command = [str(python_of(engine.engine, home)), "-m", "engine_workers", str(job), str(result)]
    power = open_power(engine.devices) if open_power is not None else None
    readings: list[PowerReading] = []
    with open(folder / "log", "wb") as log:
        worker = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, cwd=folder,
                                  env=_environment(engine, bench), start_new_session=True)  # fmt: skip
        try:
            peak_bytes, in_time = _watch(worker, timeout_s, power, readings)
        finally:
            if power is not None:
                power.close()
            end_group(worker)
            end_marked(bench)
            if scratch is not None:
                shutil.rmtree(scratch, ignore_errors=True)
    begun = BenchCell(
        data=data.name, engine=engine.name, turn=turn, peak_rss_bytes=peak_bytes, busy_before_cores=busy
    )  # fmt: skip
    reason = failure_of(worker.returncode, in_time, timeout_s, folder, result)
    if reason is not None:
        return replace(begun, reason=reason)
    for leftover in ("work", "spark", "warehouse"):
        shutil.rmtree(folder / leftover, ignore_errors=True)
    record = json.loads(result.read_text(encoding="utf-8"))
    ended_s, elsewhere = float(record.pop("work_ended_at")), int(record.pop("memory_elsewhere_bytes"))
    cell = read_cell(asdict(begun) | {"peak_rss_bytes": peak_bytes + elsewhere} | record)
    if power is None or cell.work_s is None:
        return cell
    return replace(cell, power=power_of(readings, ended_s - cell.work_s, ended_s))


def _scratch(engine: EngineSpec) -> str | None:
    """A folder for the sockets of Ray, whose names may have no more than 107 bytes: not below the home of tonnage. None
    of an engine that needs none."""
    if cluster_of(engine.engine) != "Ray" or engine.master is not None:
        return None
    return tempfile.mkdtemp(prefix=SCRATCH, dir="/tmp" if Path("/tmp").is_dir() else None)


def remove_scratch(bench: Path) -> None:
    """Folders for sockets that a killed bench left, as its jobs name them."""
    for job in bench.glob("cells/*/job.json"):
        place = json.loads(job.read_text(encoding="utf-8")).get("scratch")
        if place is not None and Path(place).name.startswith(SCRATCH):
            shutil.rmtree(place, ignore_errors=True)


def _job(data: BenchData, engine: EngineSpec, table: Path, seed: int, folder: Path) -> dict[str, Any]:
    return {
        "engine": engine.engine, "task": data.task, "metric": data.metric, "data": str(table), "folder": str(folder),
        "threads": engine.threads, "workers": engine.workers, "devices": list(engine.devices), "seed": seed,
        "memory_gib": engine.memory_gib, "master": engine.master,
        "passes": engine.passes, "depth": engine.depth, "bins": engine.bins,
        "learning_rate": engine.learning_rate, "hidden": list(engine.hidden), "batch": engine.batch,
        "sharding": engine.sharding, "search_s": engine.search_s, "held_fraction": engine.held_fraction,
        "rows_of_workers": None if engine.takes_all_rows or engine.scaling is None else engine.scaling.most,
        "look_into_steps": engine.scaling is not None,
        "native": dict(engine.native), "ports": free_port_pairs(3), "spawned_at": time.monotonic(),
    }  # fmt: skip


def _environment(engine: EngineSpec, bench: Path) -> dict[str, str]:
    each = str(max(engine.threads // engine.workers, 1))
    threads = {f"{name}_NUM_THREADS": each for name in ("OMP", "MKL", "OPENBLAS", "NUMEXPR")}
    devices = {"CUDA_VISIBLE_DEVICES": engine.devices[0] if engine.devices else "", BUS_ORDER[0]: BUS_ORDER[1]}
    loopback = {"GLOO_SOCKET_IFNAME": "lo"} if Path("/sys/class/net/lo").exists() else {}
    return (
        os.environ
        | threads
        | devices
        | loopback
        | {"PYTHONPATH": str(APART), MARK: str(bench), "PYTHONUNBUFFERED": "1"}
    )


def free_port_pairs(count: int) -> list[int]:
    """Ports of 127.0.0.1 that are free now together with the next one (H2O takes two); all of them far apart."""
    found: list[int] = []
    with contextlib.ExitStack() as held:
        while len(found) < count:
            first = held.enter_context(socket.socket())
            first.bind(("127.0.0.1", 0))
            port = first.getsockname()[1]
            second = held.enter_context(socket.socket())
            try:
                second.bind(("127.0.0.1", port + 1))
            except (OSError, OverflowError):
                continue
            if all(abs(port - other) > 8 for other in found):
                found.append(port)
    return found


def _watch(
    worker: subprocess.Popen[bytes], timeout_s: float, power: PowerSource | None, readings: list[PowerReading]
) -> tuple[int, bool]:
    """Peak of the resident memory of the worker and all below it, and whether it ended in time; clocks and energy
    go into `readings`."""
    peak, end = 0, time.monotonic() + timeout_s
    known: list[psutil.Process] = []
    for sample in count():
        if worker.poll() is not None:
            break
        if time.monotonic() > end:
            return peak, False
        if sample % LISTED_EVERY == 0:
            known = list(_tree(worker.pid))
        if power is not None and sample % READ_EVERY == 0:
            readings.append(power.read())
        peak = max(peak, sum(_rss(one) for one in known))
        with contextlib.suppress(subprocess.TimeoutExpired):
            worker.wait(SAMPLE_S)
    if power is not None:
        readings.append(power.read())  # the counters on the far side of short work
    return peak, True


def _tree(pid: int) -> Iterator[psutil.Process]:
    with contextlib.suppress(psutil.NoSuchProcess):
        above = psutil.Process(pid)
        yield from (above, *above.children(recursive=True))


def _rss(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return 0  # it has ended since it was listed


def end_group(worker: subprocess.Popen[bytes]) -> None:
    """End the worker's session whole: ask, wait, kill. Executors of Spark are in it too."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(worker.pid, sign)
        except ProcessLookupError:
            break
        end = time.monotonic() + SETTLE_S
        while time.monotonic() < end and _group_lives(worker):
            time.sleep(0.05)
    worker.wait()


def _group_lives(worker: subprocess.Popen[bytes]) -> bool:
    worker.poll()
    try:
        os.killpg(worker.pid, 0)
    except ProcessLookupError:
        return False
    return True


def _busy_cores() -> float:
    """Cores that other programs keep busy, over a quarter of a second."""
    return float(psutil.cpu_percent(interval=0.25)) / 100.0 * (psutil.cpu_count() or 1)


def failure_of(code: int | None, in_time: bool, timeout_s: float, folder: Path, result: Path) -> str | None:
    """Why a worker has no result: what it left as its `failure`, else its signal or exit code and the last line of its
    `log`; or its time. What ended it from outside found it in the `phase` that it left. None: it has one."""
    if result.is_file() and code == 0:
        return None
    if (folder / "failure").is_file():
        return (folder / "failure").read_text(encoding="utf-8")
    phase = folder / "phase"
    at = f", while {phase.read_text(encoding='utf-8')}" if phase.is_file() else ""
    if not in_time:
        return f"not done after {timeout_s:g} s{at}"
    last = [line.strip() for line in (folder / "log").read_text("utf-8", "replace").splitlines() if line.strip()]
    if code is not None and code < 0:
        how = f"ended by {signal.Signals(-code).name}{at}"
    else:
        how = f"ended with exit code {code}"
    return " | ".join([how, *last[-1:]])


def end_marked(bench: Path) -> int:
    """Kill what still lives of a bench, also in sessions of its own (H2O's Java is one); how many there were."""
    left = left_processes(bench)
    for process in left:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(left, timeout=SETTLE_S)
    return len(left)


def left_processes(bench: Path) -> list[psutil.Process]:
    """Processes of a bench that still live, by the mark in their environment."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) == str(bench):
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied, OSError):
            continue  # ended meanwhile, or another user's
    return found
