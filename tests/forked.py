"""`python -m tonnage ARGUMENTS` in a process of its own, forked from one that has imported what most commands need.

Importing is most of what a short command costs, and tests start hundreds. What a command does, its files, its output
and its exit code are those of a process started anew; how long a start takes is for `test_startup.py` and `cli/
test_process.py`, which start one.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib import import_module
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src"
IMPORTED = (
    "typer.main", "rich.console", "numpy", "yaml", "psutil", "sqlite3", "sqlalchemy.dialects.sqlite", "alembic.command",
    "pydantic.dataclasses", "pydantic.type_adapter", "tonnage.cli.app", "tonnage.cli.carry_out", "tonnage.cli.ps",
    "tonnage.cli.plan", "tonnage.cli.show", "tonnage.cli.places", "tonnage.api.run_prediction", "tonnage.api.launching",
    "tonnage.api.place_verbs", "tonnage.api.place_prices", "tonnage.api.plans", "tonnage.api.services",
    "tonnage.runs.data_prints", "tonnage.runs.measured_rows", "tonnage.runners.machine", "tonnage.store.store",
    "tonnage.reports.run_report", "tonnage.reports.terminal", "tonnage.workload.known",
)  # fmt: skip
LARGEST = 2**17  # bytes of one question: arguments and environment
ALIKE = ("PYTHONPATH", "PYTHONUTF8", "PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED")


def run_tonnage(
    arguments: tuple[str, ...], *, env: Mapping[str, str], cwd: Path | None = None, timeout_s: float = 120.0
) -> subprocess.CompletedProcess[str]:
    """One command to its end, as `subprocess.run` gives it. TimeoutError where it takes longer.

    An interpreter is started where one with other settings is asked for, or another `PYTHONPATH`.
    """
    command = [sys.executable, "-m", "tonnage", *arguments]
    where = cwd or Path.cwd()
    settings = {name: value for name, value in env.items() if name.startswith("PYTHON") and name not in ALIKE}
    if settings or env.get("PYTHONPATH") != str(SOURCE):
        return subprocess.run(command, capture_output=True, text=True, encoding="utf-8", cwd=where, env=dict(env),
                              timeout=timeout_s, check=False)  # fmt: skip
    question = json.dumps({"arguments": arguments, "env": dict(env), "cwd": str(where)}).encode()
    pairs = [socket.socketpair() for _ in range(3)]  # standard output, standard error, exit code
    try:
        socket.send_fds(_server(), [question], [theirs.fileno() for _, theirs in pairs])
        for ours, theirs in pairs:
            theirs.close()
            ours.settimeout(timeout_s)
        with ThreadPoolExecutor(3) as pool:  # until all that the command left running has closed them too
            out, err, code = pool.map(_read_all, [ours for ours, _ in pairs])
    finally:
        for pair in pairs:
            for one in pair:
                one.close()
    assert code, f"{command} did not end as a process does: {err}"
    return subprocess.CompletedProcess(command, int(code), out, err)


def _read_all(source: socket.socket) -> str:
    with source.makefile("rb") as file:
        return file.read().decode("utf-8")


@cache
def _server() -> socket.socket:
    """Started with the first command of this process, ended with it."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * LARGEST)
    with theirs:
        started = subprocess.Popen(
            [sys.executable, __file__, str(theirs.fileno())], pass_fds=[theirs.fileno()],
            env=os.environ | {"PYTHONPATH": str(SOURCE), "PYTHONUTF8": "1"},
        )  # fmt: skip

    def end() -> None:
        ours.close()
        started.wait()

    atexit.register(end)
    return ours


def serve(questions: socket.socket) -> None:
    """Answers questions, each in a child of a child of this process; returns in the process that is to run a command,
    or where no more is asked."""
    for name in IMPORTED:
        import_module(name)
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # those that wait for commands are not waited for
    while True:
        text, files, _, _ = socket.recv_fds(questions, LARGEST, 3)
        if not text:
            os._exit(0)
        if os.fork() == 0:
            break
        for file in files:
            os.close(file)
    questions.close()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    out, err, ending = files
    command = os.fork()
    if command != 0:
        os.close(out)
        os.close(err)
        _, status = os.waitpid(command, 0)
        os.write(ending, str(os.waitstatus_to_exitcode(status)).encode())
        os._exit(0)
    os.close(ending)
    for file, number in ((out, 1), (err, 2)):
        os.dup2(file, number)
        os.close(file)
    sys.stdout = sys.__stdout__ = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = sys.__stderr__ = os.fdopen(2, "w", 1, encoding="utf-8", errors="backslashreplace", closefd=False)
    question = json.loads(text)
    os.environ.clear()
    os.environ.update(question["env"])
    os.chdir(question["cwd"])
    sys.argv[1:] = question["arguments"]


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
    runpy.run_module("tonnage", run_name="__main__", alter_sys=True)
