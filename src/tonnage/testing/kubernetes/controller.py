"""The control loops of a pretended cluster, as far as runs need them: Jobs get pods, pods end, Jobs end.

Only our own pods run, as processes of this machine: `python -m tonnage.supervisor.pod`. No hook is run: it would signal
this machine's first process.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import psutil

from tonnage.places.kubernetes.pod_template import POD_PROGRAM
from tonnage.testing.kubernetes.store import FakeObjectStore, FakeServerRefusal
from tonnage.testing.slurm import free_ports
from tonnage.values import dataclass

Document = dict[str, Any]
TICK_S: Final = 0.02
INDEX: Final = "batch.kubernetes.io/job-completion-index"
ACTIVE: Final = ("Pending", "Running")


@dataclass(kw_only=True)
class Process:
    """A pod's container here."""

    popen: subprocess.Popen[bytes]
    log: Path
    kill_at: float | None = None


class Controller:
    """One loop over all Jobs and pods. `held`: pods stay Pending as if no node had room."""

    def __init__(self, store: FakeObjectStore, folder: Path) -> None:
        self._thread = threading.Thread(target=self._loop, daemon=True)
        self.store, self.folder = store, folder
        self.held = False
        self.processes: dict[str, Process] = {}
        self._failures: dict[str, int] = {}
        self.lost: set[str] = set()  # uids of pods whose node answers no more
        self._ports: dict[str, int] = {}  # by the name under which the first pod is reached
        self._counted: set[str] = set()
        self._ended = threading.Event()

    def start(self) -> None:
        self._thread.start()

    def _loop(self) -> None:
        while not self._ended.wait(TICK_S):
            with self.store.lock:
                for path, pod in list(self.store.of_kind("pods")):
                    self._pod(path, pod)
                for path, job in list(self.store.of_kind("jobs")):
                    self._job(path, job)

    def close(self) -> None:
        """No process outlives it."""
        self._ended.set()
        self._thread.join()
        for one in self.processes.values():
            if one.popen.poll() is None:
                one.popen.terminate()
        for one in self.processes.values():
            try:
                one.popen.wait(10)
            except subprocess.TimeoutExpired:
                os.killpg(one.popen.pid, signal.SIGKILL)
                one.popen.wait()

    # pods

    def _pod(self, path: str, pod: Document) -> None:
        status, uid = pod.setdefault("status", {"phase": "Pending"}), pod["metadata"]["uid"]
        if pod["metadata"].get("deletionTimestamp") and uid not in self.processes:
            self.store.remove(path)
        elif status["phase"] == "Pending" and not self.held:
            self._start(path, pod)
        elif uid in self.processes:
            self._watch(path, pod, self.processes[uid])

    def _start(self, path: str, pod: Document) -> None:
        [container] = pod["spec"]["containers"]
        if POD_PROGRAM not in container["command"]:
            return  # never another's
        sent = self._sent(path, pod)
        if sent is None:
            return  # as a kubelet waits for what is to be mounted
        log = self.folder / f"{pod['metadata']['name']}.log"
        with log.open("ab") as out:
            popen = subprocess.Popen(
                self._here(container["command"]), env=self.environment(pod, sent), stdout=out, stderr=out,
                start_new_session=True,
            )  # fmt: skip
        self.processes[pod["metadata"]["uid"]] = Process(popen=popen, log=log)
        pod["spec"]["nodeName"] = "node-a"
        pod["status"] = {
            "phase": "Running", "conditions": [{"type": "PodScheduled", "status": "True"}],
            "containerStatuses": [{"name": container["name"], "state": {"running": {}}}],
        }  # fmt: skip

    def _here(self, command: Sequence[str]) -> list[str]:
        """A container's command as it works on this machine, which all pods share: they meet at a port of its own."""
        words = list(command)
        if "--host" in words:
            name = words[words.index("--host") + 1]
            words[words.index("--host") + 1] = "127.0.0.1"
            words[words.index("--port") + 1] = str(self._ports.setdefault(name, free_ports(1)[0]))
        return words

    def _sent(self, path: str, pod: Document) -> Path | None:
        """The ConfigMap as files; an empty folder where the pod has none."""
        folder = self.folder / f"sent-{pod['metadata']['name']}"
        folder.mkdir(exist_ok=True)
        for volume in pod["spec"].get("volumes") or ():
            name = (volume.get("configMap") or {}).get("name")
            if name:
                try:
                    found = self.store.get(path.rsplit("/", 2)[0] + f"/configmaps/{name}")
                except FakeServerRefusal:
                    return None
                for key, text in found["data"].items():
                    (folder / key).write_text(text)
        return folder

    def environment(self, pod: Document, sent: Path | None) -> dict[str, str]:
        """Of a pod's processes: what it says, over what this machine needs to find the code."""
        [container] = pod["spec"]["containers"]
        given = {one["name"]: one["value"] for one in container.get("env") or () if "value" in one}
        index = (pod["metadata"].get("labels") or {}).get(INDEX, "0")
        own = {"JOB_COMPLETION_INDEX": index, **({} if sent is None else {"TONNAGE_SENT": str(sent)})}
        return {**os.environ, **given, **own}

    def _watch(self, path: str, pod: Document, process: Process) -> None:
        code = process.popen.poll()
        head = pod["metadata"]
        if code is None:
            if head.get("deletionTimestamp") and process.kill_at is None:
                grace = head.get("deletionGracePeriodSeconds", pod["spec"].get("terminationGracePeriodSeconds", 30))
                process.popen.send_signal(signal.SIGTERM)
                process.kill_at = time.monotonic() + grace
            elif process.kill_at is not None and time.monotonic() > process.kill_at:
                os.killpg(process.popen.pid, signal.SIGKILL)
            return
        if pod["status"]["phase"] == "Running":
            ended = {"exitCode": code if code >= 0 else 128 - code, "reason": "Completed" if code == 0 else "Error"}
            pod["status"]["phase"] = "Failed" if code or head.get("deletionTimestamp") else "Succeeded"
            pod["status"]["containerStatuses"][0]["state"] = {"terminated": ended}
        if head.get("deletionTimestamp") and (head["uid"] in self._counted or "ownerReferences" not in head):
            del self.processes[head["uid"]]
            self.store.remove(path)

    # Jobs

    def _job(self, path: str, job: Document) -> None:
        status = job.setdefault("status", {})
        if any(one["type"] in {"Complete", "Failed"} for one in status.get("conditions") or ()):
            return
        pods = self._pods(path, job)
        live = [one for one in pods if one["status"]["phase"] in ACTIVE]
        verdict = next((found for one in pods if (found := self._count(job, one))), None) or self._too_old(job)
        failing = next((one for one in status.get("conditions") or () if one["type"] == "FailureTarget"), None)
        if verdict is not None and failing is None:
            failing = _condition(status, "FailureTarget", verdict)
        if failing is not None:
            self._delete(live)
            if not live:
                _condition(status, "Failed", failing["reason"])
            return
        if job["spec"].get("suspend"):
            self._delete(live)
            return
        status.setdefault("startTime", _now())
        self._fill(job, pods)

    def _pods(self, path: str, job: Document) -> list[Document]:
        found = self.store.find(path.split("/jobs/")[0].replace("/apis/batch/v1/", "/api/v1/") + "/pods")
        return [one for one in found if job["metadata"]["uid"] == _owner(one)]

    def _fill(self, job: Document, pods: list[Document]) -> None:
        """A pod for each index that has none, or whose last one has ended without success."""
        done = 0
        for index in range(job["spec"].get("completions", 1)):
            own = [one for one in pods if one["metadata"]["labels"][INDEX] == str(index)]
            if any(one["status"]["phase"] == "Succeeded" for one in own):
                done += 1
            elif all(one["metadata"]["uid"] in self._counted for one in own):
                self._make(job, index)
        if done == job["spec"].get("completions", 1):
            _condition(job["status"], "SuccessCriteriaMet", "CompletionsReached")
            _condition(job["status"], "Complete", "CompletionsReached")

    def _make(self, job: Document, index: int) -> None:
        name, template = job["metadata"]["name"], json.loads(json.dumps(job["spec"]["template"]))
        head = template.setdefault("metadata", {})
        head["name"] = f"{name}-{index}-{uuid.uuid4().hex[:5]}"
        head.setdefault("labels", {}).update({INDEX: str(index), "batch.kubernetes.io/job-name": name})
        head["ownerReferences"] = [{"kind": "Job", "name": name, "uid": job["metadata"]["uid"]}]
        namespace = job["metadata"]["namespace"]
        pod = {"apiVersion": "v1", "kind": "Pod", **template, "status": {"phase": "Pending"}}
        if self.held:
            waits = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
                     "message": "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."}  # fmt: skip
            pod["status"]["conditions"] = [waits]
        self.store.put(f"/api/v1/namespaces/{namespace}/pods", namespace, pod)

    def _count(self, job: Document, pod: Document) -> str | None:
        """Take a pod's end into account, once; the reason where it ends the Job."""
        uid = pod["metadata"]["uid"]
        if pod["status"]["phase"] != "Failed" or uid in self._counted:
            return None
        self._counted.add(uid)
        [state] = pod["status"]["containerStatuses"]
        code = state["state"]["terminated"]["exitCode"]
        met = {one["type"] for one in pod["status"].get("conditions") or () if one["status"] == "True"}
        for rule in (job["spec"].get("podFailurePolicy") or {}).get("rules") or ():
            if not _applies(rule, code, met):
                continue
            if rule["action"] == "FailJob":
                return "PodFailurePolicy"
            if rule["action"] == "Ignore":
                return None
            break
        failures = self._failures[job["metadata"]["uid"]] = self._failures.get(job["metadata"]["uid"], 0) + 1
        return "BackoffLimitExceeded" if failures > job["spec"].get("backoffLimit", 6) else None

    def _too_old(self, job: Document) -> str | None:
        limit, since = job["spec"].get("activeDeadlineSeconds"), job["status"].get("startTime")
        if limit is None or since is None:
            return None
        age_s = (datetime.now(UTC) - datetime.fromisoformat(since)).total_seconds()
        return "DeadlineExceeded" if age_s > limit else None

    def _delete(self, pods: list[Document]) -> None:
        for one in pods:
            one["metadata"].setdefault("deletionTimestamp", _now())

    def delete(self, path: str, *, grace_s: int | None) -> None:
        """A Job with all that it owns; a pod with its grace; anything else at once."""
        found = self.store.get(path)
        kind = path.split("/")[-2]
        if kind == "pods":
            found["metadata"].setdefault("deletionTimestamp", _now())
            if grace_s is not None:
                found["metadata"]["deletionGracePeriodSeconds"] = grace_s
            return
        if kind == "jobs":
            pods = self._pods(path, found)
            self._delete(pods)
            self._counted |= {one["metadata"]["uid"] for one in pods}
        self.store.remove(path)

    def evict(self, path: str) -> None:
        """Take a pod away as a drained or a preempted node does."""
        with self.store.lock:
            pod = self.store.get(path)
            gone = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
            pod["status"].setdefault("conditions", []).append(gone)
            self._delete([pod])

    def lose(self, path: str) -> None:
        """A pod's node loses its power: all its processes die in one instant, and the pod is a disrupted one.

        Its log cannot be read: no kubelet answers there.
        """
        with self.store.lock:
            pod = self.store.get(path)
            process = self.processes[pod["metadata"]["uid"]]
            for one in (*psutil.Process(process.popen.pid).children(recursive=True), psutil.Process(process.popen.pid)):
                with contextlib.suppress(psutil.NoSuchProcess):
                    one.kill()
            gone = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC"}
            pod["status"].setdefault("conditions", []).append(gone)
            self.lost.add(pod["metadata"]["uid"])


def _applies(rule: Mapping[str, Any], code: int, met: set[str]) -> bool:
    codes = rule.get("onExitCodes")
    if codes is not None:
        listed: bool = code in codes["values"]
        wanted: bool = codes["operator"] == "In"
        return listed is wanted
    return any(one["type"] in met for one in rule.get("onPodConditions") or ())


def _condition(status: Document, kind: str, reason: str) -> Document:
    made = {"type": kind, "status": "True", "reason": reason, "lastTransitionTime": _now()}
    status.setdefault("conditions", []).append(made)
    return made


def _owner(pod: Document) -> str:
    return str(next((one["uid"] for one in pod["metadata"].get("ownerReferences") or ()), ""))


def _now() -> str:
    return datetime.now(UTC).isoformat()
