"""The dashboard of a Ray cluster as the Ray place asks it: jobs are processes of this machine, without Ray.

Statuses and texts are those that Ray 2.60 gave to the same requests: a job of a known id is refused with 500 and a
traceback, one that is not there with 404, a job that has not ended cannot be deleted.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

from tonnage.places.ray.jobs import DRIVER
from tonnage.testing.http_service import QuietHandler

PRETENDED: Final = "tonnage.testing.ray_machines"
STOP_WAIT_S: Final = 3.0  # between SIGTERM and SIGKILL: Ray's RAY_JOB_STOP_WAIT_TIME_S
TOKEN: Final = "a-token-of-this-test"
NODE: Final = {
    "node_id": "2f18", "is_head_node": False, "state": "ALIVE", "resources_total": {"CPU": 2.0, "GPU": 8.0},
}  # fmt: skip


class FakeDashboard:
    """What it holds, and how it fails: `failures` are statuses of the next answers; `lost`: answers that get lost after
    the request was carried out."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.url = folder, ""
        self.jobs: dict[str, dict[str, Any]] = {}
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.packages: dict[str, bytes] = {}
        self.nodes: list[dict[str, Any]] = [dict(NODE)]
        self.version, self.python = "2.60.0", "3.11.7"
        self.failures: list[int] = []
        self.lost = 0
        self.asked: list[tuple[str, str]] = []
        self.lock = threading.RLock()

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, Any]:
        """Status and JSON, or text."""
        self.asked.append((method, path))
        with self.lock:
            match method, path.partition("?")[0].strip("/").split("/")[1:]:
                case "GET", ["version"]:
                    return 200, {"version": "4", "ray_version": self.version, "ray_commit": "b7f4", "session_name": "s"}
                case "GET", ["v0", "cluster_metadata"]:
                    return 200, {"result": True, "data": {"rayVersion": self.version, "pythonVersion": self.python}}
                case "GET", ["v0", "nodes"]:
                    return 200, {"result": True, "data": {"result": {"result": self.nodes}}}
                case _, ["packages", "gcs", name]:
                    return self._package(method, name, body)
                case "POST", ["jobs"]:
                    return self._submit(json.loads(body))
                case "GET", ["jobs"]:
                    return 200, [self._job(name) for name in self.jobs]
                case _, ["jobs", name, *rest] if name in self.jobs:
                    return self._of_job(method, name, rest)
                case _, ["jobs", name, *_]:
                    return 404, f"Job {name} does not exist"
        return 404, "404: Not Found"

    def end(self) -> None:
        """Every process of its jobs."""
        for name in list(self.processes):
            self._stop(name, wait_s=0.0)

    def _package(self, method: str, name: str, body: bytes) -> tuple[int, Any]:
        if method == "PUT":
            self.packages[name] = body
        return (200, "") if name in self.packages else (404, f"Package gcs://{name} does not exist")

    def _submit(self, body: dict[str, Any]) -> tuple[int, Any]:
        unknown = set(body) - {"submission_id", "entrypoint", "entrypoint_num_cpus", "metadata", "runtime_env"}
        if unknown:
            said = f"TypeError: JobSubmitRequest.__init__() got an unexpected keyword argument '{min(unknown)}'"
            return 400, f"Traceback (most recent call last):\n{said}"
        name = body["submission_id"]
        if name in self.jobs:
            said = f"ValueError: Job with submission_id {name} already exists. Please use a different submission_id.\n."
            return 500, f"Traceback (most recent call last):\n{said}"
        package = body["runtime_env"]["working_dir"].removeprefix("gcs://")
        assert package in self.packages, f"no package {package}"
        words = [PRETENDED if word == DRIVER else word for word in shlex.split(body["entrypoint"])]
        env = {**os.environ, **body["runtime_env"].get("env_vars", {}), "PYTHONPATH": str(Path(__file__).parents[2])}
        with (self.folder / f"{name}.log").open("wb") as log:
            self.processes[name] = subprocess.Popen(
                [sys.executable, *words[1:]], env=env, stdout=log, stderr=log, start_new_session=True
            )
        self.jobs[name] = {"submission_id": name, "entrypoint": body["entrypoint"], "metadata": body.get("metadata"),
                           "status": "RUNNING", "type": "SUBMISSION"}  # fmt: skip
        return 200, {"job_id": name, "submission_id": name}

    def _job(self, name: str) -> dict[str, Any]:
        job, code = self.jobs[name], self.processes[name].poll()
        if code is not None and job["status"] == "RUNNING":
            said = "Job finished successfully." if code == 0 else f"Job entrypoint command failed with exit code {code}"
            job |= {"status": "FAILED" if code else "SUCCEEDED", "driver_exit_code": code, "message": said}
        return job

    def _of_job(self, method: str, name: str, rest: list[str]) -> tuple[int, Any]:
        job = self._job(name)
        if method == "DELETE":
            if job["status"] == "RUNNING":
                return (
                    500,
                    f"RuntimeError: Attempted to delete job '{name}', but it is in a non-terminal state RUNNING.\n.",
                )
            del self.jobs[name]
            return 200, {"deleted": True}
        if rest == ["stop"]:
            if job["status"] == "RUNNING":
                job["status"] = "STOPPED"
                self._stop(name, wait_s=STOP_WAIT_S)
            return 200, {"stopped": job["status"] == "STOPPED"}
        if rest == ["logs"]:
            return 200, {"logs": (self.folder / f"{name}.log").read_text()}
        return 200, job

    def _stop(self, name: str, *, wait_s: float) -> None:
        process = self.processes[name]
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(wait_s)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@contextmanager
def fake_dashboard(folder: Path) -> Iterator[FakeDashboard]:
    """One that answers on 127.0.0.1 until the block ends."""
    folder.mkdir(parents=True, exist_ok=True)
    found = FakeDashboard(folder)
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (_DashboardHandler,), {"dashboard": found}))
    server.daemon_threads = True
    found.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield found
    finally:
        found.end()
        server.shutdown()
        server.server_close()
        thread.join()


class _DashboardHandler(QuietHandler):
    dashboard: FakeDashboard

    def carry_out(self) -> None:
        """One request, whatever its method."""
        body, found = self.rfile.read(int(self.headers.get("Content-Length") or 0)), self.dashboard
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            missing = self.headers.get("Authorization") is None
            said = "Unauthorized: Missing authentication token" if missing else "Forbidden: Invalid token"
            self._say(401 if missing else 403, said)
            return
        if found.failures:
            self._say(found.failures.pop(0), "Traceback:\nRuntimeError: it fails\n.")
            return
        status, content = found.answer(self.command, self.path, body)
        if found.lost and not re.search(r"/version|/packages/|GET", f"{self.command} {self.path}"):
            found.lost -= 1
            self.close_connection = True
            return
        self._say(status, content)

    do_GET = do_POST = do_PUT = do_DELETE = carry_out  # noqa: N815 - names of the standard library

    def _say(self, status: int, content: Any) -> None:
        self.say(status, (content if isinstance(content, str) else json.dumps(content)).encode())
