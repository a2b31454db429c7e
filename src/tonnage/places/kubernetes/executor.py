"""A Kubernetes cluster by its API: a run is a Job whose pod looks after it, and whose log tells of it."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from datetime import datetime, timedelta
from functools import cached_property
from getpass import getuser
from pathlib import Path
from typing import Any, ClassVar, Final

from tonnage.errors import MissingExtra, TonnageError
from tonnage.places.contract import DeclaredGap, Orphan, PlaceFinding, Submission, home_mark, read_tag
from tonnage.places.kubernetes.answers import newest, newest_of_each, view_of
from tonnage.places.kubernetes.client import ApiError, KubernetesClient, Unreachable, open_client
from tonnage.places.kubernetes.collecting import bring
from tonnage.places.kubernetes.manifest import LASTING, read_manifest
from tonnage.places.kubernetes.mirror import append, read_mirror
from tonnage.places.kubernetes.names import HELPER, HOME, MANAGED, RUN, TAG, TOKEN, collection_path, path_of
from tonnage.places.kubernetes.place import KubernetesPlace
from tonnage.places.kubernetes.pod_template import CONTAINER, POD_PROGRAM
from tonnage.places.kubernetes.questions import Asking
from tonnage.places.kubernetes.rendering import folder_there, submission
from tonnage.places.kubernetes.streams import run_in_pod
from tonnage.places.record import (
    PlaceRecord,
    leave_queue,
    read_record,
    submitting,
    unwanted,
    write_record,
    write_submission,
)
from tonnage.places.states import JobView, Phase, PlaceState, joined
from tonnage.runs.folder import RunFolder
from tonnage.runs.job import Job
from tonnage.runs.journal import EventKind
from tonnage.runs.liveness import heartbeat_file
from tonnage.runs.spec import RunSpec
from tonnage.runs.states import RunReason
from tonnage.values import dataclass

Document = dict[str, Any]
KINDS: Final = {  # what a run is sent as: its type
    "job": ("batch/v1", "Job"), "jobset": ("jobset.x-k8s.io/v1alpha2", "JobSet"),
    "trainjob": ("trainer.kubeflow.org/v1alpha1", "TrainJob"), "rayjob": ("ray.io/v1", "RayJob"),
}  # fmt: skip
PARTS: Final = (  # what else only one submission needs
    ("v1", "Service"), ("v1", "ConfigMap"), ("networking.k8s.io/v1", "NetworkPolicy"), ("v1", "Pod"),
)  # fmt: skip
CLAIMS: Final = ("resource.k8s.io/v1", "ResourceClaimTemplate")
WORKLOADS: Final = ("kueue.x-k8s.io/v1beta2", "Workload")
OVERLAP_S: Final = 15  # of the log that is read again: its lines come to the server late


@dataclass(frozen=True, kw_only=True)
class Kubernetes:
    """One place of the kind `kubernetes`. `client`: of tests; None: as the kubeconfig says."""

    kind: ClassVar[str] = "kubernetes"
    gaps: ClassVar[tuple[DeclaredGap, ...]] = (
        DeclaredGap(verb="check", reason="whether nodes can pull the image is known when a pod is there"),
        DeclaredGap(
            verb="collect", reason="checkpoints stay on the volume: the next submission goes on from them there"
        ),
    )
    name: str
    place: KubernetesPlace
    owner: str = field(default_factory=getuser)
    client: KubernetesClient | None = None

    @cached_property
    def api(self) -> KubernetesClient:
        return self.client or open_client(self.place.context, self.place.kubeconfig)

    def folder_there(self, folder: RunFolder) -> RunFolder:
        return folder_there(self.place, folder)

    # before

    def check(self, folder: RunFolder) -> tuple[PlaceFinding, ...]:  # noqa: ARG002 - the same for every run
        return tuple(Asking(self.api, self.place, self.name).findings())

    def render(self, spec: RunSpec, job: Job, folder: RunFolder, *, number: int) -> Submission:
        return submission(self.place, spec, job, folder, name=self.name, owner=self.owner, number=number)

    def submit(self, submission: Submission, folder: RunFolder) -> str:
        """Every object has its name from the token: one that is there already is of this submission, or refused."""
        with submitting(folder):
            before = read_record(folder)
            if before is not None and before.token == submission.token and before.job_id and folder.state().state.ended:
                return before.job_id  # its objects may have gone since
            if before is None or before.token != submission.token:
                if before is not None:
                    self._remove(before.token)  # two submissions of a run never work at once
                write_submission(folder, submission)
            for document in read_manifest(submission.script):
                self._made(with_spending(document, folder), submission)
            record = read_record(folder)
            assert record is not None
            job_id = str(read_manifest(submission.script)[-1]["metadata"]["name"])
            write_record(folder, replace(record, job_id=job_id))
            return job_id

    def _made(self, document: Document, submission: Submission) -> None:
        path = collection_path(document, self.place.namespace)
        try:
            self.api.create(path, document, fieldValidation="Strict")
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise
            self._is_ours(document, submission)

    def _is_ours(self, document: Document, submission: Submission) -> None:
        kind, name = document["kind"], document["metadata"]["name"]
        there = self.api.get(path_of(document["apiVersion"], kind, self.place.namespace, name))
        labels = {} if there is None else there["metadata"].get("labels") or {}
        ours = labels.get(MANAGED) == "tonnage" if kind in LASTING else labels.get(TOKEN) == submission.token
        if not ours:
            hint = f"`kubectl -n {self.place.namespace} delete {kind.lower()} {name}`, or another name"
            raise TonnageError(f"{kind} {name} is there already and is not this run's", hint=hint)

    # while it runs

    def status(self, folder: RunFolder) -> PlaceState:
        record = read_record(folder)
        if record is None:
            return joined(JobView(phase=Phase.GONE), folder.state())
        job, pods = self._job(record), self._pods(record)
        self._follow(folder, record, pods)
        events = self._events(job) if job is not None and not pods else []
        return joined(view_of(job, pods, events, self._workload(job)), folder.state())

    def logs(self, folder: RunFolder) -> None:
        record = read_record(folder)
        if record is not None:
            self._follow(folder, record, self._pods(record))

    def _follow(self, folder: RunFolder, record: PlaceRecord, pods: Sequence[Document]) -> None:
        """Take over what the pods have said since; the server's clock tells since when."""
        mirror, where = read_mirror(folder, record.token), self.folder_there(folder).path
        for index, pod in newest_of_each(pods):
            if (pod.get("status") or {}).get("phase") in {None, "Pending"}:
                continue
            query = {"container": CONTAINER}
            if (known := mirror.read_until.get(index)) is not None:
                since = datetime.fromisoformat(known) - timedelta(seconds=OVERLAP_S)
                query["sinceTime"] = since.strftime("%Y-%m-%dT%H:%M:%SZ")
            try:
                with self.api.blocks(f"{self._pod_path(pod)}/log", **query) as blocks:
                    append(folder, record.token, blocks, now=self.api.server_time, where=where, pod=index)
            except ApiError as error:
                # 400, 404: its container has not begun, or is gone with its node. What else a node of a further pod
                # answers keeps nothing of the run from here: its log is read on from the same place the next time.
                if index == "0" and error.code not in {400, 404}:
                    raise

    def exec(self, folder: RunFolder, argv: Sequence[str]) -> int:
        pod = self._running(folder)
        if pod is None:
            raise TonnageError(f"'{folder.path.name}' has no pod that runs", hint=f"`tonnage show {folder.path.name}`")
        return run_in_pod(
            self.api, self._pod_path(pod), argv, out=lambda block: sys.stdout.buffer.write(block),
            err=lambda block: sys.stderr.buffer.write(block),
        )  # fmt: skip

    def stop(self, folder: RunFolder, *, by: str, reason: str) -> None:
        """By a word to its supervisor; where none can be said to it, by taking its pods away, which saves as well."""
        if self._asked(folder, "stop", by, reason):
            return
        record = read_record(folder)
        if record is not None:
            self.logs(folder)
            self._remove(record.token)
        leave_queue(folder, EventKind.STOPPED, RunReason.USER_STOPPED, place=self.name)

    def cancel(self, folder: RunFolder, *, by: str, reason: str) -> None:
        if self._asked(folder, "cancel", by, reason):
            return
        self.teardown(folder)
        leave_queue(folder, EventKind.CANCELLED, RunReason.USER_CANCELLED, place=self.name)

    def _asked(self, folder: RunFolder, word: str, by: str, reason: str) -> bool:
        """Whether the run's supervisor got the words."""
        pod = self._running(folder)
        if pod is None:
            return False
        run = str(self.folder_there(folder).path)
        argv = [self.place.python, "-m", POD_PROGRAM, "--ask", word, "--run", run, "--by", by, "--reason", reason]
        try:
            return run_in_pod(self.api, self._pod_path(pod), argv, out=_nowhere, err=_nowhere) == 0
        except (ApiError, Unreachable, MissingExtra):
            return False

    # after

    def collect(self, folder: RunFolder) -> None:
        """Bring what the run has made; of one that has ended nothing but its volume stays there."""
        running = self._running(folder)  # asked before the log is read: who has ended by now has said all
        self.logs(folder)
        record = read_record(folder)
        if record is None:
            return
        bring(self.api, self.place, record, folder, running, self._pod_path)
        if running is None and folder.state().state.ended:
            self._remove(record.token)

    def teardown(self, folder: RunFolder) -> None:
        record = read_record(folder)
        if record is not None:
            self._remove(record.token)

    def orphans(self, runs: Path, *, end: bool) -> tuple[Orphan, ...]:
        """By label, of whatever kind: a Job that went by its age leaves what stood beside it."""
        found: dict[str, Orphan] = {}
        for one in self._labelled(f"{HOME}={home_mark(runs)}"):
            head = one["metadata"]
            tag = read_tag((head.get("annotations") or {}).get(TAG) or "")
            if tag is None or tag[1] in found or head.get("deletionTimestamp"):
                continue
            why = unwanted(RunFolder(runs / tag[2]), token=tag[1])
            if why:
                word = f"{one.get('kind', 'object')} {(head.get('labels') or {}).get(RUN, '')}".strip()
                found[tag[1]] = Orphan(job_id=head["name"], run=tag[2], word=word, why=why)
        if end:
            for token in found:
                self._remove(token)
        return tuple(found.values())

    # the cluster

    def _job(self, record: PlaceRecord) -> Document | None:
        """By its name where that is known, else by its label: the client may have died before it wrote the name."""
        version, kind = KINDS[self.place.form]
        if record.job_id is not None:
            return self.api.get(path_of(version, kind, self.place.namespace, record.job_id))
        found = self.api.list(path_of(version, kind, self.place.namespace), labelSelector=f"{TOKEN}={record.token}")
        return found[0] if found else None

    def _pods(self, record: PlaceRecord) -> list[Document]:
        found = self.api.list(path_of("v1", "Pod", self.place.namespace), labelSelector=f"{TOKEN}={record.token}")
        return [one for one in found if (one["metadata"].get("labels") or {}).get(HELPER) is None]

    def _running(self, folder: RunFolder) -> Mapping[str, Any] | None:
        record = read_record(folder)
        pod = None if record is None else newest(self._pods(record))
        running = pod is not None and pod["status"].get("phase") == "Running"
        return pod if running and pod is not None and not pod["metadata"].get("deletionTimestamp") else None

    def _events(self, job: Document) -> list[Document]:
        asked = f"involvedObject.name={job['metadata']['name']}"
        found = self.api.list(path_of("v1", "Event", self.place.namespace), fieldSelector=asked)
        return sorted(found, key=lambda one: str(one.get("lastTimestamp") or one.get("eventTime") or ""))

    def _workload(self, job: Document | None) -> Document | None:
        """What Kueue keeps of a job that waits."""
        if job is None or self.place.queue is None or not (job.get("spec") or {}).get("suspend"):
            return None
        asked = f"kueue.x-k8s.io/job-uid={job['metadata'].get('uid', '')}"
        found = self.api.list(path_of(*WORKLOADS, self.place.namespace), labelSelector=asked)
        return found[0] if found else None

    def _kinds(self) -> list[tuple[str, str]]:
        return [KINDS[self.place.form], *PARTS, *([CLAIMS] if self.place.device_class else [])]

    def _labelled(self, selector: str) -> list[Document]:
        return [
            {"kind": kind, **one}
            for version, kind in self._kinds()
            for one in self.api.list(path_of(version, kind, self.place.namespace), labelSelector=selector)
        ]

    def _remove(self, token: str) -> None:
        """The job first, and then what it needed; its pods have their grace."""
        for version, kind in self._kinds():
            path = path_of(version, kind, self.place.namespace)
            for one in self.api.list(path, labelSelector=f"{TOKEN}={token}"):
                if kind != "Pod" or "ownerReferences" not in one["metadata"]:
                    self.api.delete(f"{path}/{one['metadata']['name']}")

    def _pod_path(self, pod: Mapping[str, Any]) -> str:
        return path_of("v1", "Pod", self.place.namespace, pod["metadata"]["name"])


def with_spending(document: Document, folder: RunFolder) -> Document:
    """The submission's ConfigMap also says what the run has spent so far, here or elsewhere: its limits count it."""
    spent = heartbeat_file(folder)
    if document["kind"] != "ConfigMap" or not spent.exists():
        return document
    return document | {"data": document["data"] | {spent.name: spent.read_text(encoding="utf-8")}}


def _nowhere(block: bytes) -> None:
    del block
