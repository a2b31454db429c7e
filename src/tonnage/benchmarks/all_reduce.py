"""Sum between two local processes, timed over sizes: gloo on processors, NCCL between two GPUs.

Run as a program (`python -m tonnage.benchmarks.all_reduce RANK FILE BACKEND`) it is one of the two.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import numpy as np

from tonnage.benchmarks.timing import Samples
from tonnage.calibration.local_profile import AllReduce, DeviceKind, MeasuredPoint

SIZES_BYTES: Final = (2**10, 2**14, 2**18, 2**21, 2**24)
GPU_SIZES_BYTES: Final = (2**12, 2**18, 2**22, 2**25, 2**28)  # links between GPUs are full from some tens of MB on
REPEATS: Final = 15
TIMEOUT_S: Final = 60
PROCESSES: Final = 2


def measure_all_reduce(torch: Any, kind: DeviceKind) -> AllReduce | str:
    """Points and their straight line, or why there are none."""
    if kind == "cuda" and torch.cuda.device_count() < PROCESSES:
        return "one GPU: nothing to sum with"
    if not torch.distributed.is_available():
        return "this build of torch has no distributed package"
    backend = "nccl" if kind == "cuda" else "gloo"
    with tempfile.TemporaryDirectory(prefix="tonnage-all-reduce-") as folder:
        answer = _run_pair(Path(folder) / "meet", backend)
    if isinstance(answer, str):
        return answer
    points = tuple(
        MeasuredPoint(size=float(size), amount=float(size), timing=Samples(seconds=seconds).timing())
        for size, seconds in zip(sizes_of(backend), answer, strict=True)
    )
    alpha, beta = fit_line([point.size for point in points], [point.timing.median_s for point in points])
    return AllReduce(backend=backend, processes=PROCESSES, alpha_s=alpha, bytes_per_s=beta, points=points)


def sizes_of(backend: str) -> tuple[int, ...]:
    """Bytes of the blocks that are summed over it."""
    return GPU_SIZES_BYTES if backend == "nccl" else SIZES_BYTES


def fit_line(sizes: Sequence[float], seconds: Sequence[float]) -> tuple[float, float]:
    """alpha and beta of seconds = alpha + size / beta: least squares on the relative error, neither below zero.

    Source of the law: Hockney 1994, «The communication challenge for MPP», Parallel Computing 20(3).

    >>> alpha, beta = fit_line([1e3, 1e6, 1e7], [1e-4 + 1e3 / 1e9, 1e-4 + 1e6 / 1e9, 1e-4 + 1e7 / 1e9])
    >>> round(alpha, 7), round(beta)
    (0.0001, 1000000000)
    """
    taken, measured = np.asarray(sizes, dtype=np.float64), np.asarray(seconds, dtype=np.float64)
    table = np.stack([1.0 / measured, taken / measured], axis=1)
    (alpha, per_byte), *_ = np.linalg.lstsq(table, np.ones(len(taken)), rcond=None)
    if alpha < 0:  # noise on the small ones: the line then starts at the smallest time seen
        alpha = float(measured.min())
        per_byte = float(np.median((measured[1:] - alpha) / taken[1:]))
    return float(alpha), 1.0 / max(float(per_byte), 1e-15)


def _run_pair(meeting: Path, backend: str) -> list[list[float]] | str:
    environment = os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    line = [sys.executable, "-m", "tonnage.benchmarks.all_reduce"]
    pair = [
        subprocess.Popen(
            [*line, str(rank), str(meeting), backend], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(PROCESSES)
    ]  # fmt: skip
    try:
        answers = [one.communicate(timeout=TIMEOUT_S) for one in pair]
    except subprocess.TimeoutExpired:
        return f"two processes did not meet within {TIMEOUT_S} s"
    finally:
        for one in pair:
            one.kill()
            one.wait()
    if any(one.returncode for one in pair):
        said = next(text for one, (_, text) in zip(pair, answers, strict=True) if one.returncode)
        return f"the processes failed: {said.strip().splitlines()[-1] if said.strip() else 'no message'}"
    times: list[list[float]] = json.loads(answers[0][0])
    return times


def take_part(rank: int, meeting: str, backend: str) -> None:
    """One of the processes: sum blocks of every size and print the seconds as JSON (rank 0)."""
    import torch
    import torch.distributed as group

    device = "cpu"
    if backend == "nccl":
        device = f"cuda:{rank}"
        torch.cuda.set_device(rank)  # barriers and waits are of this device, not of the first
    group.init_process_group(
        backend, init_method=f"file://{meeting}", rank=rank, world_size=PROCESSES, timeout=timedelta(seconds=TIMEOUT_S)
    )
    found = []
    for size in sizes_of(backend):
        block = torch.zeros(size // 4, device=device)
        seconds = []
        for repeat in range(REPEATS + 2):
            group.barrier()
            start = time.perf_counter()
            group.all_reduce(block)
            if backend == "nccl":
                torch.cuda.synchronize()
            if repeat >= 2:  # the first ones connect
                seconds.append(time.perf_counter() - start)
        found.append(seconds)
    group.destroy_process_group()
    if rank == 0:
        sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    take_part(int(sys.argv[1]), sys.argv[2], sys.argv[3])
