"""SkyPilot's managed jobs behind a pretended command `sky`, with the documented states of its jobs.

with fake_skypilot(folder) as service: ...      # the place's `command` is `service.command`

A job's machine is a process of this one. One that is taken is started again, as SkyPilot's recovery does.
"""

from __future__ import annotations

import itertools
import json
import stat
import sys
import threading
import time
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

import yaml

from tonnage.testing.http_service import Asked, Document, Fault, HTTPAnswer, running, server_of
from tonnage.testing.machines import FakeMachine, start_machine
from tonnage.values import dataclass

COMMAND: Final = '''#!{python}
"""`sky`, as far as managed jobs go: what it is asked goes to a service of the test."""
import json
import sys
import urllib.request
from pathlib import Path

words = sys.argv[1:]
files = {{word: Path(word).read_text() for word in words if word.endswith(".yaml")}}
asked = urllib.request.Request("{url}", data=json.dumps({{"words": words, "files": files}}).encode())
opener = urllib.request.build_opener(urllib.request.ProxyHandler({{}}))
try:
    reply = json.loads(opener.open(asked).read())
except OSError as error:
    reply = {{"code": 1, "out": "", "err": f"cannot reach the API server: {{error}}"}}
sys.stdout.write(reply["out"])
sys.stderr.write(reply["err"])
sys.exit(reply["code"])
'''
LIVE: Final = frozenset({"PENDING", "STARTING", "RUNNING", "RECOVERING", "CANCELLING"})


@dataclass(slots=True, kw_only=True)
class FakeJob:
    """A managed job."""

    number: int
    text: str
    status: str = "PENDING"
    since: float = 0.0
    reason: str = ""
    machine: FakeMachine | None = None
    taken: bool = False

    @property
    def task(self) -> Document:
        found: Document = yaml.safe_load(self.text)
        return found


class FakeSkyPilot:
    """A running one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.jobs = dict[int, FakeJob]()
        self.clouds = {"default": ["AWS", "GCP", "Kubernetes"]}
        self.before: list[Fault] = []
        self.after: list[Fault] = []
        self.asked: list[Asked] = []
        self.start_s, self.gap_s, self.stop_s = 0.1, 1.0, 15.0
        self.lock = threading.RLock()
        self._numbers = itertools.count(1)
        self.http = server_of(self)
        self.command = str(self._written("sky", self.url))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.http.server_address[1]}"

    def elsewhere(self, port: int) -> str:
        """The command where its API server does not answer."""
        return str(self._written("sky-cut", f"http://127.0.0.1:{port}"))

    def _written(self, name: str, url: str) -> Path:
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / name
        path.write_text(COMMAND.format(python=sys.executable, url=url))
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return path

    def answer(self, asked: Asked) -> HTTPAnswer:
        """What a command prints."""
        words, files = asked.body["words"], asked.body["files"]
        with self.lock:
            if words[:2] == ["jobs", "queue"]:
                return _printed(json.dumps(self._queue("--skip-finished" in words), indent=2))
            if words[:2] == ["jobs", "launch"]:
                [text] = files.values()
                number = next(self._numbers)
                self.jobs[number] = FakeJob(number=number, text=text, since=time.monotonic())
                return _printed(f"Managed Job ID: {number}\n")
            if words[:2] == ["jobs", "cancel"]:
                self._take(self.jobs[int(words[-1])], "CANCELLING", "CANCELLED")
                return _printed("Managed job is scheduled to be cancelled.\n")
            if words[0] == "check":
                return _printed(json.dumps(self.clouds, indent=2))
        return _failed(f"Error: No such command '{' '.join(words)}'.")

    def _queue(self, live: bool) -> list[Document]:
        return [
            {"job_id": one.number, "job_name": one.task["name"], "status": one.status,
             "failure_reason": one.reason or None, "user_yaml": one.text,
             "infra": one.task["resources"]["ordered"][0]["infra"]}
            for one in reversed(self.jobs.values()) if one.status in LIVE or not live
        ]  # fmt: skip

    def preempt(self, number: int) -> None:
        """A cloud takes the job's machine: it is asked to end, and SkyPilot looks for the next."""
        self._take(self.jobs[number], "RUNNING", "RECOVERING")

    def tick(self) -> None:
        """What happens by itself."""
        with self.lock:
            for one in self.jobs.values():
                if one.status in LIVE and not one.taken:
                    self._advance(one)

    def _advance(self, one: FakeJob) -> None:
        waited, log = time.monotonic() - one.since, self.folder / f"{one.number}.log"
        if one.status == "PENDING":
            one.status = "STARTING"
        elif (one.status == "STARTING" and waited > self.start_s) or (
            one.status == "RECOVERING" and waited > self.gap_s
        ):
            env = {key: str(value) for key, value in one.task["envs"].items()}
            one.machine = start_machine(["bash", "-c", one.task["run"]], env, log)
            one.status = "RUNNING"
        elif one.status == "RUNNING" and one.machine is not None and (code := one.machine.ended()) is not None:
            one.machine.kill()
            again = one.task["resources"]["job_recovery"]["recover_on_exit_codes"]
            if code in again:
                one.status, one.since = "RECOVERING", time.monotonic()
            else:
                lines = log.read_text(errors="replace").strip().splitlines()
                one.status = "FAILED" if code else "SUCCEEDED"
                one.reason = f"the job exited with code {code}: {lines[-1] if lines else ''}" if code else ""

    def _take(self, one: FakeJob, meanwhile: str, then: str) -> None:
        if one.taken or one.status not in LIVE:
            return
        one.taken, one.status = True, meanwhile

        def end() -> None:
            if one.machine is not None:
                one.machine.take_away(self.stop_s)
            with self.lock:
                one.status, one.since, one.taken, one.machine = then, time.monotonic(), False, None

        threading.Thread(target=end, daemon=True).start()

    def close(self) -> None:
        """Nothing is left running."""
        for one in self.jobs.values():
            if one.machine is not None and one.machine.ended() is None:
                one.machine.kill()


def _printed(text: str) -> HTTPAnswer:
    return HTTPAnswer(document={"code": 0, "out": text, "err": ""})


def _failed(text: str) -> HTTPAnswer:
    return HTTPAnswer(document={"code": 1, "out": "", "err": text})


def fake_skypilot(folder: Path) -> AbstractContextManager[FakeSkyPilot]:
    """A running one, with access to two clouds."""
    return running(FakeSkyPilot(folder))
