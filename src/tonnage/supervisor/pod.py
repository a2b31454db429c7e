"""`python -m tonnage.supervisor.pod`: a run in a pod of a Kubernetes cluster.

The first pod lays what was sent into the run's folder, looks after the run as its supervisor does anywhere, and repeats
journal, figures and log on stdout, each line with its file and place, and the newest heartbeat, so that a client
without a way into the pod has them from the pod's log. Further pods start the same workers, repeat what these print,
and wait for the first. A node keeps the end of a pod's log alone: the journal is repeated again and again.
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
from tonnage.runs.exits import VARIABLE, exits_folder
from tonnage.runs.folder import RunFolder
from tonnage.runs.job import load_job, meeting_variables
from tonnage.runs.journal import EventKind
from tonnage.runs.liveness import heartbeat_file, heartbeat_in, read_heartbeat, write_heartbeat
from tonnage.runs.log_parts import LOG, is_older_part, read_at
from tonnage.runs.logs import machine_log, machine_logs
from tonnage.runs.requests import cancel_request, clear_requests, write_request
from tonnage.runs.secrets import mask_values
from tonnage.runs.states import WorkerExit
from tonnage.supervisor.jobs import exit_of
from tonnage.supervisor.processes import PR_SET_PDEATHSIG, set_process_attribute
from tonnage.supervisor.shim import DRAIN_S, LogKeeper

JOURNAL: Final = "journal.jsonl"
REPEATED: Final = (JOURNAL, "metrics.jsonl", LOG)  # whose lines go to stdout
REPEATED_TO: Final = "repeated.json"  # how far a pod's log has been repeated; the others are repeated whole
WHOLE: Final = REPEATED[:2]  # in an archive too, below APART: the client merges them with what it has
APART: Final = ".whole"
JOURNAL_EVERY_BYTES: Final = 4 << 20  # of stdout: a kubelet's log has 10 MiB before it begins a new one
TICK_S: Final = 0.5
END_S: Final = 10.0  # for workers of a run that has ended
LAST_WORD_S: Final = 120.0  # of the first pod, after the workers of a further one have ended well
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
        return _work_beside(folder, sent, index)
    if not lay(folder, sent):
        sys.stdout.write(f"tonnage: a newer submission of {folder.path} is there; this one does nothing\n")
        return 0
    return _look_after(folder, asked.notice_s)


def _pack(folder: RunFolder) -> int:
    """Everything but checkpoints, locks, logs that are repeated on stdout, and what was sent."""
    left_out = {*REPEATED, *machine_logs(folder), *FILES, folder.checkpoints.name, folder.pid_file.name}
    with tarfile.open(fileobj=sys.stdout.buffer, mode="w|") as archive:
        for path in sorted(folder.path.iterdir()):
            passing = path.suffix == ".lock" or path.name.endswith(REPEATED_TO) or is_older_part(path.name)
            if path.name not in left_out and not passing:
                archive.add(path, arcname=path.name)
        for name in WHOLE:
            if (path := folder.path / name).exists():
                archive.add(path, arcname=f"{APART}/{name}")
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
    spent, known = heartbeat_in(sent / heartbeat_file(folder).name), read_heartbeat(folder)
    if spent is not None and (known is None or spent.held_s > known.held_s):
        write_heartbeat(folder, spent)  # of another place: limits count it
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


def _work_beside(folder: RunFolder, sent: Path, index: int) -> int:
    """The workers of a further pod: they end with the run, or start again with it. SIGTERM ends them."""
    newest = json.loads((sent / "place.json").read_text(encoding="utf-8"))
    while _submission(folder) != newest:  # the first pod has not laid it yet
        time.sleep(TICK_S)
    if (ended := folder.state()).state.ended:
        return exit_of(ended)
    job = load_job((sent / "job.json").read_text(encoding="utf-8"), where=str(sent))
    mask_values(os.environ, job.secrets)
    exits = exits_folder(folder.path, max(1, folder.state().attempt))
    exits.mkdir(parents=True, exist_ok=True)
    log = folder.path / machine_log(index + 1)
    repeater = BesideRepeater(folder, log.name)
    code = until_its_end(job.argv, repeater, env={**dict(job.env), VARIABLE: str(exits)}, log=log)
    repeater.flush(last=True)
    until = time.monotonic() + (LAST_WORD_S if code == 0 else 0.0)  # its workers are done: the first pod says so soon
    while not (state := folder.state()).state.ended and time.monotonic() < until:
        time.sleep(TICK_S)
    return exit_of(state) if state.state.ended else WorkerExit.PREEMPTED


class Flushing(Protocol):
    """Something that gets news of the run, again and again."""

    def flush(self) -> None: ...


def until_its_end(
    words: Sequence[str], repeater: Flushing | None, *, env: dict[str, str] | None = None, log: Path | None = None
) -> int:
    """Exit code of a process that gets this one's first SIGTERM; every TICK_S `repeater` is flushed.

    `log`: where its output is kept; None: it goes where this one's goes.
    """
    child = subprocess.Popen(
        words,
        env={**os.environ, **(env or {})},
        stdout=None if log is None else subprocess.PIPE,
        stderr=None if log is None else subprocess.STDOUT,
        preexec_fn=lambda: set_process_attribute(PR_SET_PDEATHSIG, signal.SIGTERM),  # a killed program leaves no work
    )
    keeping: threading.Thread | None = None
    if log is not None and child.stdout is not None:
        keeping = threading.Thread(target=LogKeeper(log).keep, args=(child.stdout.fileno(),), daemon=True)
        keeping.start()
    forwarded = threading.Event()

    def tell(number: int, _: object) -> None:
        if not forwarded.is_set():
            forwarded.set()
            child.send_signal(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, tell)
    code: int | None = None
    while code is None:
        try:
            code = child.wait(TICK_S)
        except subprocess.TimeoutExpired:
            if repeater is not None:
                repeater.flush()
    if keeping is not None:
        keeping.join(DRAIN_S)
    return code


class Repeater:
    """Writes what files of a run gain to stdout: `FILE@OFFSET line`, `FILE~OFFSET text` of one without its end.

    And `beat {...}`: the heartbeat, by this machine's clock; the last one says that nobody looks after the run.
    """

    def __init__(
        self, folder: RunFolder, names: Sequence[str] = REPEATED, *, note: str = REPEATED_TO, beats: bool = True
    ) -> None:
        self._beat_at = -BEAT_EVERY_S
        self._folder, self._note, self._beats = folder, folder.path / note, beats
        self._offsets = dict.fromkeys(names, 0)
        self._since_journal = 0  # bytes of stdout since the journal was begun again
        try:
            offsets = json.loads(self._note.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            offsets = {}
        self._logs = [name for name in names if name not in WHOLE]
        self._offsets |= {name: int(offsets.get(name, 0)) for name in self._logs}

    def flush(self, *, last: bool = False) -> None:
        """Repeat what there is."""
        for name in self._offsets:
            while self._repeat(name, last=last):
                self._repeat_journal(last=False)
        self._repeat_journal(last=last)
        if self._beats and (last or time.monotonic() - self._beat_at >= BEAT_EVERY_S):
            self._beat(supervised=not last)
        sys.stdout.buffer.flush()
        kept = {name: self._offsets[name] for name in self._logs}
        write_whole(self._note, json.dumps(kept) + "\n", durable=False)

    def _repeat_journal(self, *, last: bool) -> None:
        """From its beginning: a client that comes late finds it in what the node still has of this output."""
        if JOURNAL in self._offsets and (last or self._since_journal >= JOURNAL_EVERY_BYTES):
            self._offsets[JOURNAL] = 0
            while self._repeat(JOURNAL, last=last):
                pass
            self._since_journal = 0  # its own bytes do not call for it again, however long it is

    def _beat(self, *, supervised: bool) -> None:
        try:
            beat = json.loads(heartbeat_file(self._folder).read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            return  # its supervisor has not begun
        self._beat_at = time.monotonic()
        progress = self._folder.path / "progress"
        encoded = base64.b64encode(progress.read_bytes()).decode() if progress.exists() else ""
        content = {"at": beat["at"], "beat": beat, "progress": encoded, "supervised": supervised}
        sys.stdout.buffer.write(b"beat %s\n" % json.dumps(content).encode())

    def _repeat(self, name: str, *, last: bool) -> bool:
        """The next block of a file; False where there is none. Bytes that went before they were repeated are a gap."""
        offset, block = read_at(str(self._folder.path / name), self._offsets[name], BLOCK_BYTES)
        whole = block if last or len(block) == BLOCK_BYTES else block[: block.rfind(b"\n") + 1]
        *lines, rest = whole.split(b"\n")
        for line in lines:
            sys.stdout.buffer.write(b"%s@%d %s\n" % (name.encode(), offset, line))
            offset += len(line) + 1
        if rest:
            sys.stdout.buffer.write(b"%s~%d %s\n" % (name.encode(), offset, rest))
            offset += len(rest)
        if whole:
            self._offsets[name] = offset
            self._since_journal += len(whole)
        return bool(whole)


class BesideRepeater(Repeater):
    """What the workers of a further pod print. It ends them where the run has ended and they wait for others."""

    def __init__(self, folder: RunFolder, log: str) -> None:
        super().__init__(folder, (log,), note=f"{Path(log).stem}-{REPEATED_TO}", beats=False)
        self._end_at: float | None = None

    def flush(self, *, last: bool = False) -> None:
        super().flush(last=last)
        if self._end_at is None and self._folder.state().state.ended:
            self._end_at = time.monotonic() + END_S
        if self._end_at is not None and time.monotonic() > self._end_at and not last:
            signal.raise_signal(signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
