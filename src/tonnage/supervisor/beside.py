"""A further machine of a run: it runs the same workers beside the first, again and again, until the first has ended."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from tonnage.errors import TonnageError
from tonnage.files import make_private_folder, write_whole
from tonnage.places.bucket.grown import Writer
from tonnage.places.bucket.layout import SENT, Keys, input_key
from tonnage.places.bucket.objects import Objects
from tonnage.runs.folder import RunFolder
from tonnage.runs.job import load_job
from tonnage.runs.log_parts import forget
from tonnage.runs.logs import machine_log
from tonnage.runs.secrets import mask_values
from tonnage.runs.spec import load_spec
from tonnage.runs.states import WorkerExit
from tonnage.supervisor.meeting import LOOK_S, Beside, Member, meeting_env
from tonnage.supervisor.notices import Notice, NoticeWatch
from tonnage.supervisor.processes import PR_SET_PDEATHSIG, become_subreaper, kill_below, set_process_attribute
from tonnage.supervisor.shim import DRAIN_S, LogKeeper

END_S: Final = 10.0  # for workers whose first machine has ended


def work_beside(
    objects: Objects, keys: Keys, folder: RunFolder, member: Member, *, token: str, every_s: float, silent_s: float,
    notice_s: float, shared: bool,
) -> int:  # fmt: skip
    """The workers of a further machine, again and again until the first has ended; its exit code."""
    own = folder if shared else RunFolder(folder.path.with_name(f"{folder.path.name}-machine-{member.number}"))
    log = own.path / machine_log(member.number + 1)
    writer = Writer(objects, keys, own)
    beside = Beside(
        objects, keys, member, every_s=every_s, silent_s=silent_s, token=token, notice_s=notice_s,
        bring=lambda: writer.write(log.name),
    )  # fmt: skip

    def leave(*_: object) -> None:
        beside.leave()  # the first machine has the run saved, and ends all
        belt = threading.Timer(notice_s + 2 * every_s + END_S, _end_now)
        belt.daemon = True
        belt.start()

    signal.signal(signal.SIGTERM, leave)
    become_subreaper()
    first = beside.meet()
    if beside.code is None and not shared:
        lay_beside(objects, keys, own)
    forget(str(log))  # of an older start, in a folder that stays
    spec = load_spec(sent_content(objects, keys, SENT[0]).decode(), where=SENT[0])
    job = load_job(sent_content(objects, keys, SENT[1]).decode(), where=SENT[1])
    mask_values(os.environ, job.secrets)
    keeper = LogKeeper(log)
    words = [word.replace(str(folder.path), str(own.path)) for word in job.argv]
    exits = own.path / "exits"
    watch = _Leaving(spec.launch.notices, leave)
    while beside.code is None:
        if not shared:
            shutil.rmtree(exits, ignore_errors=True)
            make_private_folder(exits)
        env = {**dict(job.env), **meeting_env(first, member), "TONNAGE_EXITS": str(exits)}
        _work(words, env, beside, keeper)
        first = beside.meet()  # the first starts its workers again, or ends
    watch.stop()
    try:
        writer.write(log.name)
    except TonnageError as error:
        sys.stderr.write(f"tonnage: the end of {log.name} stays here: {error.message}\n")
    return beside.code


def _end_now() -> None:
    """The machine is taken away, and a call to the bucket does not come back."""
    sys.stderr.write("tonnage: the bucket does not answer, and the machine's time is over\n")
    kill_below(os.getpid())
    os._exit(int(WorkerExit.PREEMPTED))


def _work(words: Sequence[str], env: Mapping[str, str], beside: Beside, keeper: LogKeeper) -> None:
    """The workers until they end, or a while after this machine is to end. What they print goes to `keeper`."""
    agent = subprocess.Popen(
        words, env={**os.environ, **env}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        preexec_fn=lambda: set_process_attribute(PR_SET_PDEATHSIG, signal.SIGTERM),
    )  # fmt: skip
    assert agent.stdout is not None
    keeping = threading.Thread(target=keeper.keep, args=(agent.stdout.fileno(),), daemon=True)
    keeping.start()
    until: float | None = None
    while agent.poll() is None:
        beside.flush()
        if beside.code is not None and until is None:
            until = time.monotonic() + END_S
        if until is not None and time.monotonic() > until:
            break
        with contextlib.suppress(subprocess.TimeoutExpired):
            agent.wait(LOOK_S)
    kill_below(os.getpid())
    agent.wait()
    keeping.join(DRAIN_S)


class _Leaving(NoticeWatch):
    """Passes a cloud's notice on to the first machine."""

    def __init__(self, names: Sequence[str], leave: Callable[[], None]) -> None:
        super().__init__(names, woken=threading.Event())
        self._leave = leave
        self.start()

    def add(self, notice: Notice) -> None:
        if notice.deadline_s is not None:
            self._leave()


def lay_beside(objects: Objects, keys: Keys, folder: RunFolder) -> None:
    """What workers read on a machine that has the run's folder for itself: the first has the rest."""
    shutil.rmtree(folder.path, ignore_errors=True)
    make_private_folder(folder.path)
    make_private_folder(folder.checkpoints)
    for inside, digest in json.loads(sent_content(objects, keys, "inputs.json")).items():
        path = folder.path / inside
        make_private_folder(path.parent)
        objects.get(input_key(digest), path)
    write_whole(folder.path / SENT[0], sent_content(objects, keys, SENT[0]))
    for file in load_job(sent_content(objects, keys, SENT[1]).decode(), where=SENT[1]).files:
        make_private_folder((folder.path / file.path).parent)
        write_whole(folder.path / file.path, file.text)


def sent_content(objects: Objects, keys: Keys, name: str) -> bytes:
    """What the client sent under a name. TonnageError where it is not there."""
    found = objects.read(keys.sent(name))
    if found is None:
        raise TonnageError(f"{objects.url}/{keys.sent(name)} is not there", hint="submit the run again")
    return found.content
