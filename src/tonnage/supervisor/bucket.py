"""`python -m tonnage.supervisor.bucket`: a run on a machine that nobody connects to.

The machine lays what was sent into the run's folder, goes on from the newest checkpoint of the bucket, looks after the
run as its supervisor does anywhere, and brings to the bucket what the run writes: every few seconds journal, figures
and log, each checkpoint as soon as it is whole, and at the end everything. It ends as soon as a newer submission is
there. The exit code is the run's end, and 0 where it was stopped or cancelled.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from tonnage.errors import TonnageError
from tonnage.files import make_private_folder, write_whole
from tonnage.places.bucket.grown import Writer, restore, write_beat
from tonnage.places.bucket.layout import ALONG, GROWN, SENT, Keys, input_key
from tonnage.places.bucket.objects import Objects, open_objects
from tonnage.places.bucket.saving import Saver, bring, newest_checkpoint, saved_artifacts
from tonnage.places.several import silence_s
from tonnage.runs.folder import RunFolder
from tonnage.runs.job import load_job
from tonnage.runs.log_parts import forget
from tonnage.runs.secrets import mask_values
from tonnage.runs.states import RunStatus, WorkerExit
from tonnage.secret_references import fill_environment
from tonnage.supervisor.beside import sent_content, work_beside
from tonnage.supervisor.meeting import Gathering, join, meeting_env
from tonnage.supervisor.pod import until_its_end

JOURNAL: Final = "journal.jsonl"
MACHINE: Final = "TONNAGE_MACHINE"  # variable: which machine this is, by the cloud's own word
LAST_WORDS_S: Final = 600.0  # to bring the last to a bucket that fails
STAYS_S: Final = 600.0
PAUSE_S: Final = 2.0
QUIET_BEATS: Final = 3  # so many exchanges without a word: the machine is dead
LOOK_S: Final = 0.2  # between two looks at the start before
MOST_REASON: Final = 1000  # characters of a reason


def main(arguments: Sequence[str]) -> int:
    """The run's end as an exit code."""
    asked = _read(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(WorkerExit.PREEMPTED))  # a container's first process ignores it
    if asked.secret:
        names = fill_environment(asked.secret, os.environ, "the place's `secret`", region=asked.region)
        mask_values(os.environ, names)
    objects = open_objects(asked.store, region=asked.region, endpoint=asked.endpoint)
    keys = Keys(base=asked.base, number=asked.number, epoch=asked.epoch)
    folder = RunFolder(Path(asked.run))
    if asked.machines <= 1:
        return _work(asked, objects, keys, folder, None)
    silent_s = silence_s(asked.silent_s, asked.every_s)
    member = insisted(lambda: join(objects, keys, asked.machines), LAST_WORDS_S)
    if member is None:
        sys.stdout.write(f"tonnage: {asked.base} has all of its {asked.machines} machines; this one does nothing\n")
        return 0
    if not member.first:
        code = work_beside(
            objects, keys, folder, member, token=asked.token, every_s=asked.every_s, silent_s=silent_s,
            notice_s=asked.notice_s, shared=asked.shared,
        )  # fmt: skip
        return 0 if code == WorkerExit.STOPPED else code
    gathering = Gathering(objects, keys, member, silent_s=silent_s)
    os.environ.update(meeting_env(gathering.endpoint, member))
    return _work(asked, objects, keys, folder, gathering)


def _work(
    asked: argparse.Namespace, objects: Objects, keys: Keys, folder: RunFolder, gathering: Gathering | None
) -> int:
    """Carry the run out on this machine, alone or as the first of several, and return its exit code."""
    if keys.epoch:
        quiet_s = QUIET_BEATS * asked.every_s + LOOK_S
        wait_for_last_words(objects, keys, quiet_s=quiet_s, longest_s=asked.notice_s + quiet_s)
    if not insisted(lambda: is_the_one(objects, keys) and lay(objects, keys, folder, asked.token), LAST_WORDS_S):
        sys.stdout.write(f"tonnage: another machine has {asked.base}, or a newer submission; this one does nothing\n")
        return 0
    exchange = BucketExchange(objects, keys, folder, token=asked.token, every_s=asked.every_s, gathering=gathering)
    words = [sys.executable, "-m", "tonnage.supervisor", "--as-job", "--notice-s", f"{asked.notice_s:g}"]
    code = until_its_end([*words, str(folder.path)], exchange)
    insisted(exchange.finish, LAST_WORDS_S)
    if gathering is not None:
        insisted(lambda: gathering.over(code), LAST_WORDS_S)
        if gathering.lost:
            sys.stderr.write(f"tonnage: {gathering.lost}\n")  # the machine's last words, which the place shows
    alone_taken = gathering is None or not gathering.lost
    if asked.stay and alone_taken and code == WorkerExit.PREEMPTED:
        time.sleep(STAYS_S)
    state = folder.state()
    if asked.failure_file is not None and state.state is RunStatus.FAILED and asked.failure_file.parent.is_dir():
        asked.failure_file.write_text(state.message[:MOST_REASON], encoding="utf-8")
    return 0 if code == WorkerExit.STOPPED else code  # no place is to start again what was stopped


def _read(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tonnage.supervisor.bucket")
    parser.add_argument("--store", required=True, help="the place's bucket: s3://BUCKET/PREFIX")
    parser.add_argument("--base", required=True, help="of the run in it: HOME/RUN")
    parser.add_argument("--number", type=int, required=True, help="of the submission")
    parser.add_argument("--token", required=True)
    parser.add_argument("--epoch", type=int, default=0, help="of this start, where the place counts them")
    parser.add_argument("--run", required=True, help="the run's folder on this machine")
    parser.add_argument("--region")
    parser.add_argument("--endpoint", help="of a store that speaks the same language")
    parser.add_argument("--secret", help="of the run's variables, by reference (docs/secrets.md)")
    parser.add_argument("--notice-s", type=float, default=30.0, help="what SIGTERM leaves to save in")
    parser.add_argument("--every-s", type=float, default=5.0, help="how often the bucket is written")
    parser.add_argument("--stay", action="store_true", help="after a notice wait to be ended, so that it counts as one")
    parser.add_argument("--failure-file", type=Path, help="where the place looks for the reason of a failure")
    parser.add_argument("--machines", type=int, default=1, help="of the run: all run this command")
    parser.add_argument("--silent-s", type=float, help="without a word for so long a machine of several is lost")
    parser.add_argument("--shared", action="store_true", help="the run's folder is one of all machines")
    return parser.parse_args(arguments)


def lay(objects: Objects, keys: Keys, folder: RunFolder, token: str) -> bool:
    """Put what was sent, and what earlier machines have saved, into the run's folder; False where a newer one is."""
    before = take_epoch(objects, keys, token)
    if before is None:
        return False
    if writer_in(folder) == (token, before):  # the same machine once more: it has all of it
        if keys.epoch:
            _write_place(objects, keys, folder)
        if before < keys.epoch:
            forget(str(folder.log_file))  # each start writes its own
        return True
    shutil.rmtree(folder.path, ignore_errors=True)  # of an older submission, on a disk that stayed
    make_private_folder(folder.path)
    make_private_folder(folder.checkpoints)
    inputs = json.loads(sent_content(objects, keys, "inputs.json"))
    for inside, digest in inputs.items():
        path = folder.path / inside
        if not path.exists():
            make_private_folder(path.parent)
            beside = path.with_name(f".draft-{path.name}")
            objects.get(input_key(digest), beside)
            os.replace(beside, path)
    for name in SENT[:2]:
        write_whole(folder.path / name, sent_content(objects, keys, name))
    for name in ALONG:
        if (found := objects.read(keys.sent(name))) is not None:
            write_whole(folder.path / name, found.content)
    restore(objects, keys, folder)
    for file in load_job((folder.path / SENT[1]).read_text(encoding="utf-8"), where=SENT[1]).files:
        make_private_folder((folder.path / file.path).parent)
        write_whole(folder.path / file.path, file.text)
    checkpoint = newest_checkpoint(saved_artifacts(objects, keys.base), number=keys.number)
    if checkpoint is not None:
        bring(objects, keys.base, checkpoint, folder)
    _write_place(objects, keys, folder)
    return True


def _write_place(objects: Objects, keys: Keys, folder: RunFolder) -> None:
    """The submission and the start that this folder is of: what its supervisor looks for."""
    place = json.loads(sent_content(objects, keys, SENT[2]))
    write_whole(folder.place_file, json.dumps(place | ({"epoch": keys.epoch} if keys.epoch else {})) + "\n")


def is_the_one(objects: Objects, keys: Keys) -> bool:
    """Whether this machine is the first of its submission, where the place may have made two: `TONNAGE_MACHINE`.

    TonnageError where neither this machine nor another one can be seen to be the first.
    """
    machine = os.environ.get(MACHINE, "").encode()
    if not machine or objects.write_if(keys.machine, machine, None):
        return True
    found = objects.read(keys.machine)
    if found is None:
        raise TonnageError(f"{objects.url}/{keys.machine} has just changed", hint="it is read again")
    return found.content == machine


def take_epoch(objects: Objects, keys: Keys, token: str) -> int | None:
    """Make the run's lease that of this start; the epoch that had it. None where a newer start or submission has it.

    TonnageError where another start takes it in the same instant.
    """
    found = objects.read(keys.lease)
    lease: dict[str, Any] = {} if found is None else json.loads(found.content)
    before = int(lease.get("epoch", 0))
    if found is None or lease.get("token") != token or before > keys.epoch:
        return None
    if before < keys.epoch:
        newer = json.dumps(lease | {"epoch": keys.epoch}).encode()
        if not objects.write_if(keys.lease, newer, found.version):
            raise TonnageError("the run's lease has just changed", hint="it is read again")
    return before


def wait_for_last_words(objects: Objects, keys: Keys, *, quiet_s: float, longest_s: float) -> None:
    """Until the start before this one has saved and ended, or was silent for `quiet_s`; at most `longest_s`.

    What it saves after this start has taken the lease does not count.
    """
    until = time.monotonic() + longest_s
    for epoch in range(keys.epoch - 1, -1, -1):
        before = replace(keys, epoch=epoch)
        while (found := objects.read(before.beat)) is not None:
            if found.age_s > quiet_s or not json.loads(found.content)["supervised"] or time.monotonic() > until:
                return
            time.sleep(LOOK_S)


class BucketExchange:
    """What passes between the run's folder and its bucket while the run works."""

    def __init__(
        self, objects: Objects, keys: Keys, folder: RunFolder, *, token: str, every_s: float,
        gathering: Gathering | None = None,
    ) -> None:  # fmt: skip
        self._gathering = gathering
        self._objects, self._keys, self._folder, self._token, self._every_s = objects, keys, folder, token, every_s
        self._writer, self._saver = Writer(objects, keys, folder), Saver(objects, keys, folder)
        self._next, self._failed = 0.0, ""
        self._saving, self._writing = threading.Lock(), threading.Lock()

    def flush(self) -> None:
        """One exchange, where it is time for one. A bucket that fails is asked again: it never ends the run."""
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + self._every_s
        try:
            self._exchange()
            self._failed = ""
        except TonnageError as error:
            if error.message != self._failed:
                self._failed = error.message
                sys.stderr.write(f"tonnage: {error.message}; it is tried again\n")

    def finish(self) -> None:
        """Everything, after the run has ended: what the journal tells of is there before it."""
        with self._saving:
            if self._is_ours():
                self._saver.save(steps_only=False, ours=self._is_ours, first=self._write)
        self._write(JOURNAL)
        if self._is_ours():
            write_beat(self._objects, self._keys, self._folder, supervised=False)

    def _exchange(self) -> None:
        if not self._is_ours():
            return
        self._ask()
        if self._gathering is not None:
            self._gathering.look(self._folder.state().attempt)
        ended = self._folder.state().state.ended
        self._write(*([] if ended else [JOURNAL]))  # the end is written after what the run has made
        write_beat(self._objects, self._keys, self._folder, supervised=True)
        if not self._saving.locked():
            threading.Thread(target=self._save_steps, name="checkpoints", daemon=True).start()

    def _save_steps(self) -> None:
        with self._saving:
            try:
                # a machine that goes on from a checkpoint finds the losses of all steps before it
                self._saver.save(steps_only=True, ours=self._is_ours, first=self._write)
            except TonnageError as error:
                sys.stderr.write(f"tonnage: {error.message}; it is tried again\n")

    def _write(self, *last: str) -> None:
        with self._writing:
            for name in (*(name for name in GROWN if name != JOURNAL), *last):
                self._writer.write(name)

    def _ask(self) -> None:
        """Take over what the client has asked."""
        for word in ("stop", "cancel"):
            path = self._folder.path / word
            if not path.exists() and (found := self._objects.read(self._keys.asked(word))) is not None:
                write_whole(path, found.content)

    def _is_ours(self) -> bool:
        """Whether this start is the newest; else `place.json` gets the newer's words: the supervisor then ends."""
        found = self._objects.read(self._keys.lease)
        lease: dict[str, Any] = {} if found is None else json.loads(found.content)
        ours = (self._token, self._keys.epoch)
        if (lease.get("token"), lease.get("epoch", 0)) == ours:
            return True
        if lease and writer_in(self._folder) == ours:
            write_whole(self._folder.place_file, json.dumps(lease) + "\n")
        return False


def insisted(act: Callable[[], Any], longest_s: float) -> Any:
    """What `act` gives; tried again after TonnageError, which the last try raises."""
    until = time.monotonic() + longest_s
    while True:
        try:
            return act()
        except TonnageError as error:
            if time.monotonic() > until:
                raise
            sys.stderr.write(f"tonnage: {error.message}; it is tried again\n")
            time.sleep(PAUSE_S)


def writer_in(folder: RunFolder) -> tuple[str, int] | None:
    """Token of the submission and epoch of the start that a run's folder is of."""
    try:
        place = json.loads(folder.place_file.read_text(encoding="utf-8"))
        return str(place["token"]), int(place.get("epoch", 0))
    except (FileNotFoundError, ValueError, KeyError):
        return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
