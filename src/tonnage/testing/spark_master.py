"""The master of a Spark cluster as the Spark place asks it: drivers are processes of this machine, without Spark.

Statuses and texts are those that a master of Spark 3.5.9 gave to the same requests. `python -m
tonnage.testing.spark_master` is such a driver: it takes the arguments of `tonnage.supervisor.spark`.
"""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from tonnage.supervisor.spark import arguments_of, drive
from tonnage.testing.http_service import Asked, Document, Fault, HTTPAnswer, running, server_of
from tonnage.testing.ray_machines import OneMachine

PRETENDED: Final = "tonnage.testing.spark_master"
WORKER: Final[Document] = {
    "id": "worker-1", "host": "gpu1", "cores": 8, "memory": 16384, "state": "ALIVE",
    "resources": {"gpu": {"name": "gpu", "addresses": [str(number) for number in range(8)]}},
}  # fmt: skip
END_S: Final = 5.0


class FakeMaster:
    """What it holds, and how it fails: `before` and `after` as of every pretended service."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.version, self.status = "3.5.9", "ALIVE"
        self.workers: list[Document] = [dict(WORKER)]
        self.drivers: dict[str, Document] = {}
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.before: list[Fault] = []
        self.after: list[Fault] = []
        self.asked: list[Asked] = []
        self.full = False  # no worker has room: drivers wait
        self.lock = threading.RLock()
        self._numbers = itertools.count()
        self.http = server_of(self)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.http.server_address[1]}"

    def answer(self, asked: Asked) -> HTTPAnswer:
        with self.lock:
            match asked.method, asked.path.strip("/").split("/"):
                case "GET", ["json"]:
                    return HTTPAnswer(document=self._page())
                case "POST", ["v1", "submissions", "create"]:
                    return HTTPAnswer(document=self._create(asked.body))
                case "GET", ["v1", "submissions", "status", _]:
                    return HTTPAnswer(document=self._said("SubmissionStatusResponse", success=False))
                case "POST", ["v1", "submissions", "kill", name]:
                    return HTTPAnswer(document=self._kill(name))
        return HTTPAnswer(status=400, document=self._said("ErrorResponse", message="Unknown protocol version"))

    def tick(self) -> None:
        """Drivers that have ended are known to have."""
        with self.lock:
            for name, process in self.processes.items():
                if self.drivers[name]["state"] == "RUNNING" and process.poll() is not None:
                    self.drivers[name]["state"] = "FAILED" if process.returncode else "FINISHED"

    def close(self) -> None:
        for name in self.processes:
            self._end(name)

    def _said(self, action: str, **more: Any) -> Document:
        return {"action": action, "serverSparkVersion": self.version, **more}

    def _page(self) -> Document:
        live = {"SUBMITTED", "RUNNING", "RELAUNCHING"}
        every = list(self.drivers.values())
        return {
            "status": self.status, "workers": self.workers, "activeapps": [], "completedapps": [],
            "activedrivers": [one for one in every if one["state"] in live],
            "completeddrivers": [one for one in every if one["state"] not in live],
        }  # fmt: skip

    def _create(self, body: Document) -> Document:
        missing = {"action", "clientSparkVersion", "appResource", "mainClass", "appArgs", "environmentVariables",
                   "sparkProperties"} - set(body)  # fmt: skip
        unknown = set(body) - {"action", "clientSparkVersion", "appResource", "mainClass", "appArgs",
                               "environmentVariables", "sparkProperties"}  # fmt: skip
        if missing or unknown:
            return self._said("ErrorResponse", message=f"Malformed request: {min(missing | unknown)}")
        jar = Path(body["appResource"].removeprefix("file://"))
        with zipfile.ZipFile(jar) as archive:  # a worker fetches it, and looks for the class
            assert f"{body['mainClass'].replace('.', '/')}.class" in archive.namelist()
        name = f"driver-20261127103621-{next(self._numbers):04d}"
        self.drivers[name] = {"id": name, "state": "SUBMITTED", "mainclass": body["mainClass"], "worker": "None"}
        if not self.full:
            self._start(name, body)
        return self._said("CreateSubmissionResponse", success=True, submissionId=name,
                          message=f"Driver successfully submitted as {name}")  # fmt: skip

    def _start(self, name: str, body: Document) -> None:
        words = body["appArgs"]
        script = next(at for at, word in enumerate(words) if word.endswith("/driver.py"))
        assert Path(words[script].removeprefix("file://")).is_file()
        folder = self.folder / name
        folder.mkdir(parents=True)
        env = {**os.environ, **body["environmentVariables"], "PYTHONPATH": str(Path(__file__).parents[2])}
        with (folder / "stdout").open("wb") as log:
            self.processes[name] = subprocess.Popen(
                [sys.executable, "-m", PRETENDED, *words[script + 1 :]], env=env, stdout=log, stderr=log, cwd=folder,
                start_new_session=True,
            )  # fmt: skip
        self.drivers[name] |= {"state": "RUNNING", "worker": "worker-1"}

    def _kill(self, name: str) -> Document:
        driver = self.drivers.get(name)
        if driver is None or driver["state"] not in {"SUBMITTED", "RUNNING"}:
            said = f"Driver {name} has already finished or does not exist"
            return self._said("KillSubmissionResponse", success=False, submissionId=name, message=said)
        self._end(name)
        driver["state"] = "KILLED"
        return self._said("KillSubmissionResponse", success=True, submissionId=name)

    def _end(self, name: str) -> None:
        if name not in self.processes:
            return
        process = self.processes[name]
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(END_S)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@contextmanager
def fake_master(folder: Path) -> Iterator[FakeMaster]:
    """One that answers on 127.0.0.1 until the block ends; its REST server and its page have one address."""
    with running(FakeMaster(folder)) as found:
        yield found


def main(words: Sequence[str]) -> int:
    """A driver with this machine instead of executors."""
    return drive(arguments_of(words), lambda _: OneMachine())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
