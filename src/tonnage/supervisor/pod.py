"""`python -m tonnage.supervisor.pod`: a run in a pod of a Kubernetes cluster.

The first pod lays what was sent into the run's folder, looks after the run as its supervisor does anywhere, and repeats
journal, figures and log on stdout, each line with its file and place, and the newest heartbeat, so that a client
without a way into the pod has them from the pod's log. Further pods start the same workers and wait for the first.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import signal
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Protocol

from tonnage.files import make_private_folder, write_whole
from tonnage.runs.agents import meeting_variables
from tonnage.runs.exits import VARIABLE, exits_folder
from tonnage.runs.folder import RunFolder
from tonnage.runs.job import load_job
from tonnage.runs.journal import EventKind
from tonnage.runs.liveness import heartbeat_file
from tonnage.runs.requests import cancel_request, clear_requests, write_request
from tonnage.runs.states import WorkerExit
from tonnage.supervisor.jobs import exit_of
from tonnage.supervisor.processes import PR_SET_PDEATHSIG, set_process_attribute

REPEATED: Final = ("journal.jsonl", "metrics.jsonl", "log.txt")  # whose lines go to stdout
REPEATED_TO: Final = "repeated.json"  # how far the log has been repeated; the others are repeated whole
TICK_S: Final = 0.5
BLOCK_BYTES: Final = 1 << 20
BEAT_EVERY_S: Final = 10.0  # of the heartbeat on stdout: 3 MB of log a day
FILES: Final = ("spec.json", "job.json", "place.json")


def main(arguments: Sequence[str]) -> int:
    """The run's end as an exit code, by which the Job decides whether there is another start."""
    parser = argparse.ArgumentParser(prog="python -m tonnage.supervisor.pod")
    parser.add_argument("--save", action="store_true", help="tell the pod's first process that it goes")
    parser.add_argument("--ask", choices=("stop", "cancel"), help="ask the run that is in --run")
    parser.add_argument("--pack", action="store_true", help="write what the run has made to stdout, as a tar")
    parser.add_argument("--wait", action="store_true", help="stay, and do nothing: for --pack of an ended run")
    parser.add_argument("--by", default="")
    parser.add_argument("--reason", default="")
    parser.add_argument("--run")
    parser.add_argument("--sent", default="/etc/tonnage/run")
    parser.add_argument("--notice-s", type=float, default=30.0)
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--host")
    parser.add_argument("--port", type=int)
    parser.add_argument("--token", help="of the submission: torchrun's agents meet under it")
    asked = parser.parse_args(arguments)
    if asked.save:
        os.kill(1, signal.SIGTERM)
        return 0
    if asked.wait:
        signal.sigwait({signal.SIGTERM})
        return 0
    folder = RunFolder(Path(asked.run))
    if asked.pack:
        return _pack(folder)
    if asked.ask:
        request = folder.stop_request if asked.ask == "stop" else cancel_request(folder)
        write_request(request, by=asked.by, reason=asked.reason)
        return 0
    sent = Path(os.environ.get("TONNAGE_SENT") or asked.sent)
    index = int(os.environ.get("JOB_COMPLETION_INDEX") or 0)
    meeting = f"{asked.host}:{asked.port}"
    os.environ.update(meeting_variables(meeting, at=index, nodes=asked.nodes, name=asked.token or ""))
    if index:
        return _work_beside(folder, sent, asked.notice_s)
    if not lay(folder, sent):
        sys.stdout.write(f"tonnage: a newer submission of {folder.path} is there; this one does nothing\n")
        return 0
    return _look_after(folder, asked.notice_s)


def _pack(folder: RunFolder) -> int:
    """Everything but checkpoints, locks, what is repeated on stdout, and what was sent."""
    left_out = {*REPEATED, *FILES, REPEATED_TO, folder.checkpoints.name, folder.pid_file.name}
    with tarfile.open(fileobj=sys.stdout.buffer, mode="w|") as archive:
        for path in sorted(folder.path.iterdir()):
            if path.name not in left_out and path.suffix != ".lock":
                archive.add(path, arcname=path.name)
    return 0


def lay(folder: RunFolder, sent: Path) -> bool:
    """Put what was sent into the run's folder; False where a newer submission has been there."""
    place = json.loads((sent / "place.json").read_text(encoding="utf-8"))
    before = _submission(folder)
    if before is not None and before["number"] > place["number"]:
        return False
    make_private_folder(folder.path)
    make_private_folder(folder.checkpoints)
    if before == place:
        return True
    for name in FILES[:2]:
        write_whole(folder.path / name, (sent / name).read_text(encoding="utf-8"))
    for file in load_job((sent / "job.json").read_text(encoding="utf-8"), where=str(sent / "job.json")).files:
        write_whole(folder.path / file.path, file.text)
    clear_requests(folder)
    folder.record(EventKind.SUBMITTED, who="pod", name=folder.path.name, place=place["place"])
    write_whole(folder.place_file, json.dumps(place) + "\n")
    return True


def _submission(folder: RunFolder) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = json.loads(folder.place_file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    return found


def _look_after(folder: RunFolder, notice_s: float) -> int:
    words = [sys.executable, "-m", "tonnage.supervisor", "--as-job", "--notice-s", f"{notice_s:g}", str(folder.path)]
    repeater = Repeater(folder)
    code = until_its_end(words, repeater)
    repeater.flush(last=True)
    return code


def _work_beside(folder: RunFolder, sent: Path, notice_s: float) -> int:
    """The workers of a further node: they end with the run, or start again with it."""
    del notice_s  # the shim of the first node gives it; here SIGTERM ends them
    newest = json.loads((sent / "place.json").read_text(encoding="utf-8"))
    while _submission(folder) != newest:  # the first pod has not laid it yet
        time.sleep(TICK_S)
    job = load_job((sent / "job.json").read_text(encoding="utf-8"), where=str(sent))
    exits = exits_folder(folder.path, max(1, folder.state().attempt))
    exits.mkdir(parents=True, exist_ok=True)
    until_its_end(job.argv, None, env={**dict(job.env), VARIABLE: str(exits)})
    return exit_of(folder.state()) if folder.state().state.ended else WorkerExit.PREEMPTED


class Flushing(Protocol):
    """Something that is told of the run, again and again."""

    def flush(self) -> None: ...


def until_its_end(words: Sequence[str], repeater: Flushing | None, *, env: dict[str, str] | None = None) -> int:
    """Exit code of a process that gets this one's first SIGTERM; every TICK_S `repeater` is flushed."""
    child = subprocess.Popen(
        words,
        env={**os.environ, **(env or {})},
        preexec_fn=lambda: set_process_attribute(PR_SET_PDEATHSIG, signal.SIGTERM),  # a killed program leaves no work
    )
    told = threading.Event()

    def tell(number: int, _: object) -> None:
        if not told.is_set():
            told.set()
            child.send_signal(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, tell)
    while True:
        try:
            return child.wait(TICK_S)
        except subprocess.TimeoutExpired:
            if repeater is not None:
                repeater.flush()


class Repeater:
    """Writes what files of a run gain to stdout: `FILE@OFFSET line`, `FILE~OFFSET text` of one without its end.

    And `beat {...}`: the heartbeat, by this machine's clock; the last one says that nobody looks after the run.
    """

    def __init__(self, folder: RunFolder) -> None:
        self._beat_at = -BEAT_EVERY_S
        self._folder, self._note = folder, folder.path / REPEATED_TO
        self._offsets = dict.fromkeys(REPEATED, 0)
        try:
            self._offsets["log.txt"] = int(json.loads(self._note.read_text(encoding="utf-8"))["log.txt"])
        except (OSError, ValueError, KeyError):
            self._offsets["log.txt"] = 0

    def flush(self, *, last: bool = False) -> None:
        """Repeat what there is."""
        for name in REPEATED:
            while self._repeat(name, last=last):
                pass
        if last or time.monotonic() - self._beat_at >= BEAT_EVERY_S:
            self._beat(supervised=not last)
        sys.stdout.buffer.flush()
        write_whole(self._note, json.dumps({"log.txt": self._offsets["log.txt"]}) + "\n", durable=False)

    def _beat(self, *, supervised: bool) -> None:
        try:
            beat = json.loads(heartbeat_file(self._folder).read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            return  # its supervisor has not begun
        self._beat_at = time.monotonic()
        progress = self._folder.path / "progress"
        told = base64.b64encode(progress.read_bytes()).decode() if progress.exists() else ""
        content = {"at": beat["at"], "beat": beat, "progress": told, "supervised": supervised}
        sys.stdout.buffer.write(b"beat %s\n" % json.dumps(content).encode())

    def _repeat(self, name: str, *, last: bool) -> bool:
        offset = self._offsets[name]
        try:
            with (self._folder.path / name).open("rb") as file:
                file.seek(offset)
                block = file.read(BLOCK_BYTES)
        except FileNotFoundError:
            return False
        whole = block if last or len(block) == BLOCK_BYTES else block[: block.rfind(b"\n") + 1]
        *lines, rest = whole.split(b"\n")
        for line in lines:
            sys.stdout.buffer.write(b"%s@%d %s\n" % (name.encode(), offset, line))
            offset += len(line) + 1
        if rest:
            sys.stdout.buffer.write(b"%s~%d %s\n" % (name.encode(), offset, rest))
            offset += len(rest)
        moved, self._offsets[name] = offset > self._offsets[name], offset
        return moved


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
