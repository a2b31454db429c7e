"""A Databricks workspace: one-time runs of the Jobs API 2.2 with their documented life, volumes by the Files API.

with fake_workspace(folder) as service: ...      # DATABRICKS_HOST = service.url, DATABRICKS_TOKEN = service.token

Requests are held to the SDK's own models. A cluster is a process of this machine; what it has mounted as /Volumes is
the folder that the Files API writes, where files show once they are whole, as those of a volume do.
"""

from __future__ import annotations

import itertools
import shutil
import sys
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from email.utils import formatdate
from pathlib import Path
from typing import Final

from tonnage.places.databricks.checks import body_faults
from tonnage.testing.http_service import Asked, Document, Fault, HTTPAnswer, running, server_of
from tonnage.testing.machines import FakeMachine, start_machine
from tonnage.values import dataclass

RUNS: Final = "/api/2.2/jobs/runs"
FILES: Final = "/api/2.0/fs/files"
FOLDERS: Final = "/api/2.0/fs/directories"
CANCELLED: Final = ("USER_CANCELED", "Run cancelled.")
BEGIN: Final = "from tonnage.supervisor.wheel_task import main; main()"


@dataclass(slots=True, kw_only=True)
class FakeRun:
    """A one-time run."""

    number: int
    asked: Document
    state: str = "PENDING"
    since: float = 0.0
    code: tuple[str, str] = ("", "")
    error: str = ""
    machine: FakeMachine | None = None
    taken: bool = False


class FakeWorkspace:
    """A running one."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.volumes, self.token = folder, folder / "Volumes", "dapi-test-token"
        self.runs = dict[int, FakeRun]()
        self.tokens = dict[str, int]()  # idempotency tokens: runs
        self.secrets: dict[str, dict[str, str]] = {}  # by scope
        self.policies, self.profiles, self.scripts = set[str](), set[str](), set[str]()
        self.runtimes = ["16.4.x-scala2.12", "16.4.x-cpu-ml-scala2.12", "16.4.x-gpu-ml-scala2.12"]
        self.node_types: dict[str, Document] = {
            "i3.xlarge": {"num_cores": 4.0, "memory_mb": 31232, "node_instance_type": {"local_disks": 1}},
            "c5.xlarge": {"num_cores": 4.0, "memory_mb": 8192, "node_instance_type": {"local_disks": 0}},
            "p4d.24xlarge": {"num_cores": 96.0, "memory_mb": 1179648, "num_gpus": 8,
                             "node_info": {"status": ["NotEnabledOnSubscription"]}},
        }  # fmt: skip
        self.before: list[Fault] = []
        self.after: list[Fault] = []
        self.asked: list[Asked] = []
        self.page, self.start_s, self.stop_s = 24, 0.1, 10.0
        self.lock = threading.RLock()
        self._numbers = itertools.count(4_000_000_001)
        self.http = server_of(self)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.http.server_address[1]}"

    def answer(self, asked: Asked) -> HTTPAnswer:
        """What the workspace says."""
        if asked.path.startswith("/.well-known/"):
            return HTTPAnswer(document={"oidc_endpoint": f"{self.url}/oidc", "workspace_id": "1"})
        if asked.headers.get("authorization") != f"Bearer {self.token}":
            return _fault(401, "UNAUTHENTICATED", "Credential was not sent, is of an unsupported type, or has expired")
        for begins, verb in ((FILES, self._file), (FOLDERS, self._folder)):
            if asked.path.startswith(begins):
                return verb(asked, asked.path.removeprefix(begins))
        verbs: dict[str, Callable[[Asked], HTTPAnswer]] = {
            f"POST {RUNS}/submit": self._submit, f"GET {RUNS}/get": self._get, f"GET {RUNS}/list": self._list,
            f"GET {RUNS}/get-output": self._output, f"POST {RUNS}/cancel": self._cancel,
            "GET /api/2.0/preview/scim/v2/Me": lambda _: HTTPAnswer(document={"userName": "me@example.com"}),
            "GET /api/2.1/clusters/spark-versions": self._runtimes,
            "GET /api/2.1/clusters/list-node-types": self._node_types,
            "GET /api/2.0/policies/clusters/get": self._policy,
            "GET /api/2.0/instance-profiles/list": self._profiles, "GET /api/2.0/secrets/list": self._secrets,
            "GET /api/2.0/workspace/get-status": self._script,
        }  # fmt: skip
        found = verbs.get(f"{asked.method} {asked.path}")
        if found is None:
            return _fault(404, "ENDPOINT_NOT_FOUND", f"No API found for '{asked.method} {asked.path}'")
        with self.lock:
            return found(asked)

    # jobs

    def _submit(self, asked: Asked) -> HTTPAnswer:
        body = asked.body
        if faults := body_faults(body):
            return _fault(400, "INVALID_PARAMETER_VALUE", f"unknown: {', '.join(faults)}")
        [task] = body["tasks"]
        if task["new_cluster"]["node_type_id"] not in self.node_types:
            return _fault(
                400, "INVALID_PARAMETER_VALUE", f"Node type {task['new_cluster']['node_type_id']} is not supported"
            )
        token = str(body["idempotency_token"])
        if token not in self.tokens:
            number = next(self._numbers)
            self.runs[number] = FakeRun(number=number, asked=body, since=time.monotonic())
            self.tokens[token] = number
        return HTTPAnswer(document={"run_id": self.tokens[token]})

    def _get(self, asked: Asked) -> HTTPAnswer:
        run = self.runs.get(int(asked.query["run_id"]))
        if run is None:
            return _fault(404, "RESOURCE_DOES_NOT_EXIST", f"Run {asked.query['run_id']} does not exist.")
        return HTTPAnswer(document=self._document(run, expand=True))

    def _document(self, run: FakeRun, *, expand: bool) -> Document:
        ended = {"termination_details": {"code": run.code[0], "message": run.code[1]}} if run.code[0] else {}
        tasks = [{**task, "run_id": run.number + 1} for task in run.asked["tasks"]]
        return {
            "run_id": run.number, "run_name": run.asked["run_name"], "run_type": "SUBMIT_RUN",
            "status": {"state": run.state, **ended}, **({"tasks": tasks} if expand else {}),
        }  # fmt: skip

    def _list(self, asked: Asked) -> HTTPAnswer:
        query = asked.query
        if int(query["limit"]) >= 25:
            return _fault(400, "INVALID_PARAMETER_VALUE", "limit must be less than 25")
        wanted = [
            run for run in reversed(self.runs.values())
            if not (query.get("active_only") == "true" and run.state == "TERMINATED")
            and not (query.get("completed_only") == "true" and run.state != "TERMINATED")
        ]  # fmt: skip
        at, most = int(query.get("page_token", 0)), min(self.page, int(query["limit"]))
        some = [self._document(run, expand=query.get("expand_tasks") == "true") for run in wanted[at : at + most]]
        more = at + most < len(wanted)
        pages = {"next_page_token": str(at + most)} if more else {}
        return HTTPAnswer(document={"runs": some, "has_more": more, **pages})

    def _output(self, asked: Asked) -> HTTPAnswer:
        run = self.runs[int(asked.query["run_id"]) - 1]
        return HTTPAnswer(document={"error": run.error} if run.error else {})

    def _cancel(self, asked: Asked) -> HTTPAnswer:
        run = self.runs.get(int(asked.body["run_id"]))
        if run is None:
            return _fault(404, "RESOURCE_DOES_NOT_EXIST", "no such run")
        self._take(run, CANCELLED)
        return HTTPAnswer(document={})

    # what is there

    def _runtimes(self, _: Asked) -> HTTPAnswer:
        return HTTPAnswer(document={"versions": [{"key": one, "name": one} for one in self.runtimes]})

    def _node_types(self, _: Asked) -> HTTPAnswer:
        found = [{"node_type_id": name, **one} for name, one in self.node_types.items()]
        return HTTPAnswer(document={"node_types": found})

    def _policy(self, asked: Asked) -> HTTPAnswer:
        name = asked.query["policy_id"]
        return HTTPAnswer(document={"policy_id": name}) if name in self.policies else _missing(f"policy {name}")

    def _profiles(self, _: Asked) -> HTTPAnswer:
        return HTTPAnswer(
            document={"instance_profiles": [{"instance_profile_arn": one} for one in sorted(self.profiles)]}
        )

    def _secrets(self, asked: Asked) -> HTTPAnswer:
        scope = self.secrets.get(asked.query["scope"])
        return (
            _missing(f"scope {asked.query['scope']}")
            if scope is None
            else HTTPAnswer(document={"secrets": [{"key": key} for key in scope]})
        )

    def _script(self, asked: Asked) -> HTTPAnswer:
        path = asked.query["path"]
        return HTTPAnswer(document={"path": path}) if path in self.scripts else _missing(path)

    # files

    def _at(self, path: str) -> Path:
        return self.folder / path.strip("/")

    def _file(self, asked: Asked, path: str) -> HTTPAnswer:
        file = self._at(path)
        if asked.method == "PUT":
            if not file.parent.is_dir():
                return _missing(str(Path(path).parent))
            if asked.query.get("overwrite") != "true" and file.exists():
                return _fault(409, "ALREADY_EXISTS", f"The file being created already exists: {path}")
            beside = file.with_name(f".draft-{threading.get_ident()}-{file.name}")
            beside.write_bytes(asked.content)
            beside.replace(file)
            return HTTPAnswer(status=204)
        if not file.is_file():
            return _missing(path)
        if asked.method == "DELETE":
            file.unlink()
            return HTTPAnswer(status=204)
        content = file.read_bytes()
        when = {"Last-Modified": formatdate(file.stat().st_mtime, usegmt=True)}
        if (part := asked.headers.get("range")) and content:
            first, _, last = part.removeprefix("bytes=").partition("-")
            some = content[int(first) : int(last) + 1 if last else None]
            return HTTPAnswer(status=206, content=some, headers=when | {
                "Content-Range": f"bytes {first}-{int(first) + len(some) - 1}/{len(content)}"
            })  # fmt: skip
        return HTTPAnswer(content=content, headers=when)

    def _folder(self, asked: Asked, path: str) -> HTTPAnswer:
        folder = self._at(path)
        if asked.method == "PUT":
            if not folder.is_relative_to(self.volumes) or not any(
                folder.is_relative_to(one) for one in self._volumes()
            ):
                return _missing(f"volume of {path}")
            folder.mkdir(parents=True, exist_ok=True)
            return HTTPAnswer(status=204)
        if not folder.is_dir():
            return _missing(path)
        if asked.method == "DELETE":
            if any(folder.iterdir()):
                return _fault(400, "DIRECTORY_NOT_EMPTY", f"The directory is not empty: {path}")
            folder.rmdir()
            return HTTPAnswer(status=204)
        if asked.method == "HEAD":
            return HTTPAnswer()
        found = [
            {"path": f"{path.rstrip('/')}/{one.name}", "name": one.name, "is_directory": one.is_dir(),
             **({} if one.is_dir() else {"file_size": one.stat().st_size})}
            for one in sorted(folder.iterdir()) if not one.name.startswith(".draft-")
        ]  # fmt: skip
        at = int(asked.query.get("page_token") or 0)
        more = {"next_page_token": str(at + self.page)} if at + self.page < len(found) else {}
        return HTTPAnswer(document={"contents": found[at : at + self.page], **more})

    def _volumes(self) -> list[Path]:
        return list(self.volumes.glob("*/*/*"))

    # time

    def lose(self, number: int, code: str = "CLOUD_FAILURE", message: str = "Spot instance was terminated.") -> None:
        """The run's machine is lost, with all that is on it."""
        with self.lock:
            run = self.runs[number]
            run.taken = True
            if run.machine is not None:
                run.machine.kill()
            run.state, run.code = "TERMINATED", (code, message)

    def forget(self, number: int) -> None:
        """The workspace no longer has the run."""
        with self.lock:
            run = self.runs.pop(number)
        if run.machine is not None:
            run.machine.kill()

    def tick(self) -> None:
        """What happens by itself."""
        with self.lock:
            for run in self.runs.values():
                if not run.taken and run.state != "TERMINATED":
                    self._advance(run)

    def _advance(self, run: FakeRun) -> None:
        log = self.folder / f"{run.number}.log"
        if run.state == "PENDING" and time.monotonic() - run.since > self.start_s:
            [task] = run.asked["tasks"]
            words = [
                one.replace("volume:///Volumes/", f"file://{self.volumes}/")
                for one in task["python_wheel_task"]["parameters"]
            ]
            env = {key: self._filled(value) for key, value in task["new_cluster"]["spark_env_vars"].items()}
            run.machine = start_machine([sys.executable, "-c", BEGIN, *words], env, log)
            run.state = "RUNNING"
        elif run.machine is not None and (code := run.machine.ended()) is not None:
            run.machine.kill()
            run.state, run.code = "TERMINATED", ("SUCCESS", "")
            if code:
                lines = log.read_text(errors="replace").strip().splitlines()
                run.error, run.code = (
                    lines[-1] if lines else "",
                    ("RUN_EXECUTION_ERROR", "Workload failed, see run output for details"),
                )

    def _filled(self, value: str) -> str:
        """A reference to a secret as the cluster sees it."""
        if not value.startswith("{{secrets/"):
            return value
        _, scope, key = value.strip("{}").split("/")
        return self.secrets[scope][key]

    def _take(self, run: FakeRun, code: tuple[str, str]) -> None:
        if run.taken or run.state == "TERMINATED":
            return
        run.taken, run.state = True, "TERMINATING"
        threading.Thread(target=self._end, args=(run, code), daemon=True).start()

    def _end(self, run: FakeRun, code: tuple[str, str]) -> None:
        if run.machine is not None:
            run.machine.take_away(self.stop_s)
        with self.lock:
            run.state, run.code = "TERMINATED", code

    def close(self) -> None:
        """Nothing is left running."""
        for run in self.runs.values():
            if run.machine is not None and run.machine.ended() is None:
                run.machine.kill()
        shutil.rmtree(self.volumes, ignore_errors=True)


def _fault(status: int, code: str, message: str) -> HTTPAnswer:
    return HTTPAnswer(status=status, document={"error_code": code, "message": message})


def _missing(what: str) -> HTTPAnswer:
    return _fault(404, "NOT_FOUND", f"{what} does not exist")


def fake_workspace(folder: Path) -> AbstractContextManager[FakeWorkspace]:
    """A running workspace with the volume main.ml.runs."""
    (folder / "Volumes" / "main" / "ml" / "runs").mkdir(parents=True)
    return running(FakeWorkspace(folder))
