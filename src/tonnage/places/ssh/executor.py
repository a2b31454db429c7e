"""Machines reached by SSH: a run there is the run here, under its own supervisor, which outlives the connection."""

from __future__ import annotations

import base64
import json
import os
import shlex
import subprocess
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, ClassVar, Final

from tonnage.places.contract import DeclaredGap, Orphan, PlaceFinding, Submission, home_mark, read_tag, tag_of, token_of
from tonnage.places.file import SSHPlace
from tonnage.places.record import (
    PlaceRecord,
    leave_queue,
    read_record,
    submitting,
    unwanted,
    write_record,
    write_submission,
)
from tonnage.places.ssh.agent import FOLLOWED
from tonnage.places.ssh.line import ConnectionCut, SSHConnection
from tonnage.places.ssh.mirror import Mirror, fetch_made, follow, write_mirror
from tonnage.places.ssh.questions import NEEDED, USUAL, against
from tonnage.places.ssh.shipping import Object, inputs_of, object_of, own_code, send, spec_there, wheels
from tonnage.places.states import JobView, Phase, PlaceState, joined
from tonnage.runs.folder import RunFolder
from tonnage.runs.job import Job, dump_job
from tonnage.runs.journal import EventKind
from tonnage.runs.liveness import heartbeat_file
from tonnage.runs.requests import cancel_request, write_request
from tonnage.runs.spec import RunSpec, dump_spec
from tonnage.runs.states import RunReason
from tonnage.values import dataclass

SUPERVISOR: Final = "tonnage.supervisor"
CODE: Final = "CODE"  # in what is shown before: its hash is known when it is sent


@dataclass(frozen=True, slots=True, kw_only=True)
class SSHMachine:
    """One place of the kind `ssh`."""

    kind: ClassVar[str] = "ssh"
    gaps: ClassVar[tuple[DeclaredGap, ...]] = (
        DeclaredGap(
            verb="preemption",
            reason="a machine that goes down starts nothing again by itself: `resume` does",
            whole=True,
        ),
        DeclaredGap(verb="check", reason="whether a container runs there is not asked: runs are started by its Python"),
    )
    name: str
    place: SSHPlace

    @property
    def line(self) -> SSHConnection:
        return SSHConnection(name=self.name, place=self.place)

    def folder_there(self, folder: RunFolder) -> RunFolder:
        return RunFolder(Path(self.place.folder) / "runs" / home_mark(folder.path.parent) / folder.path.name)

    # before

    def check(self, folder: RunFolder) -> tuple[PlaceFinding, ...]:  # noqa: ARG002 - the same for every run
        wheels(self.place.wheels)
        from tonnage.catalog.cuda_packages import PACKAGES

        before = time.time()
        try:
            reply = self.line.ask("look", {"modules": [*NEEDED, *USUAL], "packages": list(PACKAGES)})
        except ConnectionCut as error:
            return (PlaceFinding(kind="refused", message=error.message, hint=error.hint or ""),)
        reply.close()
        skew_s = reply.answer["time"] - (before + time.time()) / 2
        return tuple(against(self.line, reply.answer, skew_s=skew_s))

    def render(self, spec: RunSpec, job: Job, folder: RunFolder, *, number: int) -> Submission:  # noqa: ARG002
        token, tag, run = token_of(folder.path, number), tag_of(folder.path, number), self._run(folder)
        env = {"TONNAGE_TAG": tag, **self._env(folder, (CODE,))}
        sets = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in env.items())
        command = shlex.join(self._command(run))
        return Submission(
            place=self.name, kind=self.kind, tag=tag, token=token, number=number,
            script=f"#!/bin/sh\n# on {self.place.host}, detached\n{sets}cd {shlex.quote(run)}\nsetsid {command}\n",
            commands=((*self.line.command, "--", self.place.python, "-c", "AGENT"),), job=job,
        )  # fmt: skip

    def submit(self, submission: Submission, folder: RunFolder) -> str:
        with submitting(folder):
            before = read_record(folder)
            if before is not None and before.token == submission.token:
                there = follow(self.line, folder, self._run(folder), submission.token)
                if _is_ours(there, submission.token):
                    return self._noted(folder, before, there["lease"].get("pid"))
            objects = self._objects(folder)
            record = write_submission(folder, submission)
            started = self._start(submission, folder, record, *objects)
            return self._noted(folder, record, started["pid"])

    def _noted(self, folder: RunFolder, record: PlaceRecord, pid: int | None) -> str:
        write_record(folder, replace(record, job_id=str(pid)))
        return str(pid)

    def _objects(self, folder: RunFolder) -> tuple[dict[str, Object], tuple[Object, ...]]:
        """What the run reads, by its path there; and its code."""
        inputs = {path: object_of(file) for path, file in inputs_of(folder.spec()).items()}
        return inputs, (own_code(), *wheels(self.place.wheels))

    def _start(
        self, submission: Submission, folder: RunFolder, record: PlaceRecord, inputs: dict[str, Object],
        code: tuple[Object, ...],
    ) -> dict[str, Any]:  # fmt: skip
        run = self._run(folder)
        sizes, saved = send(self.line, run, [*inputs.values(), *code])
        newest = max((name for name in saved if name.startswith("step-")), default="")
        copies = {
            str(file.relative_to(folder.path)): object_of(file)
            for step in sorted(folder.checkpoints.glob("step-*")) if step.name > newest
            for file in sorted(step.rglob("*")) if file.is_file()
        }  # fmt: skip
        if copies:
            send(self.line, run, copies.values())
        journal = folder.journal_file.read_bytes()
        files = {
            "spec.json": dump_spec(spec_there(folder.spec(), run)).encode(),
            "job.json": dump_job(submission.job).encode(),
            "place.json": json.dumps(asdict(record)).encode(),
            "journal.jsonl": journal,
            **{
                file.name: file.read_bytes()
                for file in (folder.prediction_file, heartbeat_file(folder))
                if file.exists()
            },
            **{file.path: file.text.encode() for file in submission.job.files},
        }
        here = {name: _length(folder.path / name) for name in FOLLOWED}
        write_mirror(folder, Mirror(token=record.token, there={**sizes, "journal.jsonl": len(journal)}, here=here))
        names = tuple(one.digest for one in code)
        secrets = {name: os.environ[name] for name in submission.job.secrets if name in os.environ}
        reply = self.line.ask("start", {
            "run": run, "token": record.token, "number": record.number, "tag": record.tag,
            "inputs": [[one.digest, path] for path, one in inputs.items()],
            "copies": [[one.digest, path] for path, one in copies.items()],
            "code": names, "files": [[path, base64.b64encode(text).decode()] for path, text in files.items()],
            "command": self._command(run), "env": {**self._env(folder, names), **secrets},
        })  # fmt: skip
        reply.close()
        return reply.answer

    # while it runs

    def status(self, folder: RunFolder) -> PlaceState:
        record = read_record(folder)
        if record is None:
            return joined(JobView(phase=Phase.GONE), folder.state())
        there = follow(self.line, folder, self._run(folder), record.token)
        state = folder.state()
        return joined(_view(there, record, ended=state.state.ended), state)

    def logs(self, folder: RunFolder) -> None:
        record = read_record(folder)
        if record is not None:
            follow(self.line, folder, self._run(folder), record.token)

    def exec(self, folder: RunFolder, argv: Sequence[str]) -> int:
        words = f"cd {shlex.quote(self._run(folder))} && exec {shlex.join(argv)}"
        return subprocess.run([*self.line.command, "--", words], check=False).returncode

    def stop(self, folder: RunFolder, *, by: str, reason: str) -> None:
        self._ask_run(folder, folder.stop_request, by, reason, EventKind.STOPPED, RunReason.USER_STOPPED)

    def cancel(self, folder: RunFolder, *, by: str, reason: str) -> None:
        self._ask_run(folder, cancel_request(folder), by, reason, EventKind.CANCELLED, RunReason.USER_CANCELLED)

    def _ask_run(self, folder: RunFolder, request: Path, by: str, reason: str, kind: EventKind, why: RunReason) -> None:
        """The request is a file there; written here first, in the same words."""
        write_request(request, by=by, reason=reason)
        text = request.read_text(encoding="utf-8")
        request.unlink()
        reply = self.line.ask("ask", {"run": self._run(folder), "name": request.name, "text": text})
        reply.close()
        if not reply.answer["supervised"]:
            self.logs(folder)
            leave_queue(folder, kind, why, place=self.name)

    # after

    def collect(self, folder: RunFolder) -> None:
        self.logs(folder)
        fetch_made(self.line, folder, self._run(folder))

    def teardown(self, folder: RunFolder) -> None:
        """The run ends, what it has saved comes here, and nothing of it stays there."""
        record = read_record(folder)
        if record is None:
            return
        request = {"run": self._run(folder), "tag": record.tag}
        self.line.ask("end", request).close()
        self.collect(folder)
        self.line.ask("remove", request).close()

    def orphans(self, runs: Path, *, end: bool) -> tuple[Orphan, ...]:
        reply = self.line.ask("orphans", {"prefix": f"tonnage:{home_mark(runs)}:"})
        reply.close()
        found = []
        for pid, text in reply.answer["found"]:
            tag = read_tag(text)
            if tag is None or not (why := unwanted(RunFolder(runs / tag[2]), token=tag[1])):
                continue
            found.append(Orphan(job_id=str(pid), run=tag[2], word="running", why=why))
            if end:
                self.line.ask("end", {"tag": text}).close()
        return tuple(found)

    # the machine

    def _run(self, folder: RunFolder) -> str:
        return str(self.folder_there(folder).path)

    def _command(self, run: str) -> tuple[str, ...]:
        return (self.place.python, "-m", SUPERVISOR, run)

    def _env(self, folder: RunFolder, code: Sequence[str]) -> dict[str, str]:
        """Of the supervisor: our code before what is installed there, and a home of its own."""
        above = Path(self.place.folder)
        return {
            **self.place.env,
            "PYTHONPATH": ":".join(str(above / "code" / name) for name in code),
            "TONNAGE_HOME": str(above / "home" / home_mark(folder.path.parent)),
        }


def _is_ours(there: dict[str, Any], token: str) -> bool:
    return bool(there["there"]) and there["lease"].get("token") == token and bool(there["lease"].get("pid"))


def _view(there: dict[str, Any], record: PlaceRecord, *, ended: bool) -> JobView:
    if not there["there"] or there["lease"].get("token") != record.token:
        return JobView(phase=Phase.GONE, word="nothing of this submission is there")
    pid = str(there["lease"].get("pid") or "")
    if there["supervised"]:
        return JobView(phase=Phase.RUNNING, job_id=pid)
    if ended:
        return JobView(phase=Phase.ENDED, job_id=pid)
    return JobView(phase=Phase.GONE, job_id=pid, word="no supervisor holds the run")


def _length(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
