"""Files that grow while a run works, as objects of a MiB each: written by the machine, followed by the client."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

from tonnage.files import write_whole
from tonnage.places.bucket.layout import GROWN, SEGMENT_BYTES, Keys
from tonnage.places.bucket.objects import Objects
from tonnage.places.ssh.mirror import Mirror, append_grown, read_mirror
from tonnage.runs.folder import RunFolder
from tonnage.runs.liveness import heartbeat_file, hold_lock, keep_beat
from tonnage.runs.log_parts import LOG, begin_at, end_of, goes_on_at, left_out, read_at
from tonnage.runs.logs import MACHINE_LOG

LOCK_WAIT_S: Final = 60.0
JOURNAL: Final = GROWN[0]
RESTORED: Final = tuple(name for name in GROWN if name != LOG)  # each start has a log of its own


class Writer:
    """The machine's side: brings each file's end to the bucket."""

    def __init__(self, objects: Objects, keys: Keys, folder: RunFolder) -> None:
        self._objects, self._keys, self._folder = objects, keys, folder
        self._written: dict[str, int] = {}

    def write(self, name: str) -> None:
        """Whatever the file has gained since the last call."""
        path = str(self._folder.path / name)
        end = end_of(path)
        while (written := self._written.get(name, 0)) < end:
            segment = written // SEGMENT_BYTES
            begin, content = read_at(path, segment * SEGMENT_BYTES, SEGMENT_BYTES)
            if not content:
                return  # it begins again: the next call finds it
            if begin > segment * SEGMENT_BYTES:  # the oldest part has gone: the next object that can be whole
                begin = -(-begin // SEGMENT_BYTES) * SEGMENT_BYTES
                self._written[name] = begin
                continue
            self._objects.write(self._keys.grown(name, segment), content)
            self._written[name] = begin + len(content)


def restore(objects: Objects, keys: Keys, folder: RunFolder) -> bool:
    """Lay the files as an earlier machine of the same submission has left them; False where there was none.

    Of its log the end, where this start goes on with it; a newer start writes its own.
    """
    part, found = _grown_before(objects, keys)
    segments = sorted(key for key in found if key.startswith(f"{keys.part}/grown/{LOG}/"))
    if segments and (newest := objects.read(segments[-1])) is not None:
        begin_at(str(folder.log_file), int(segments[-1].rpartition("/")[2]) * SEGMENT_BYTES, newest.content)
    for name in RESTORED:
        segments = [key for key in found if key.startswith(f"{part}/grown/{name}/")]
        contents = [one.content for key in segments if (one := objects.read(key)) is not None]
        if contents:
            write_whole(folder.path / name, b"".join(contents))
    return bool(found)


def _grown_before(objects: Objects, keys: Keys) -> tuple[str, dict[str, int]]:
    """The newest start of the submission, up to this one, that has written something; and what it has."""
    found: dict[str, int] = {}
    for epoch in range(keys.epoch, -1, -1):
        keys = replace(keys, epoch=epoch)
        if found := objects.sizes(f"{keys.part}/grown/"):
            break
    return keys.part, found


def follow(objects: Objects, keys: Keys, folder: RunFolder, token: str) -> None:
    """The client's side: append here what the machine has written since, and keep its heartbeat."""
    with hold_lock(folder.path / "mirror.lock", wait_s=LOCK_WAIT_S):
        mirror = read_mirror(folder)
        if mirror is None or mirror.token != token:
            return  # nothing of this submission was sent
        if keys.epoch < mirror.epoch:
            return  # the lease that tells of the newest start has gone, and all else with it
        while mirror.epoch < keys.epoch:
            older = replace(keys, epoch=mirror.epoch)
            mirror = _follow_files(objects, older, folder, mirror, [LOG])
            mirror = _from_its_beginning(mirror, mirror.epoch + 1)
        _follow_files(objects, keys, folder, mirror, reversed(GROWN))  # the journal last: what it tells of is here then
        _keep_beat(objects, keys, folder)


def _follow_files(objects: Objects, keys: Keys, folder: RunFolder, mirror: Mirror, names: Iterable[str]) -> Mirror:
    """Of one start: the logs of further machines, and then these files in this order."""
    found = objects.sizes(f"{keys.part}/grown/")
    there = {key.removeprefix(f"{keys.part}/grown/").partition("/")[0] for key in found}
    for name in (*sorted(name for name in there if MACHINE_LOG.fullmatch(name)), *names):
        mirror = _follow_one(objects, keys, folder, mirror, name, found)
    return mirror


def _from_its_beginning(mirror: Mirror, epoch: int) -> Mirror:
    """A newer start has written the files again: what an older one wrote last may not be in them.

    The journal's lines are compared with those that are here; figures and samples are laid over those of the older
    start; each start has logs of its own, which follow those of the older one.
    """
    base = {name: mirror.base.get(name, 0) for name in RESTORED}
    logs = {name: length for name, length in mirror.here.items() if _is_log(name)}
    return replace(mirror, epoch=epoch, there={JOURNAL: base[JOURNAL]}, here={**logs, **base})


def _is_log(name: str) -> bool:
    return name == LOG or MACHINE_LOG.fullmatch(name) is not None


def _follow_one(
    objects: Objects, keys: Keys, folder: RunFolder, mirror: Mirror, name: str, found: dict[str, int]
) -> Mirror:
    numbers = {int(key.rpartition("/")[2]): size for key, size in found.items()
               if key.startswith(f"{keys.part}/grown/{name}/")}  # fmt: skip
    last = max(numbers, default=-1)
    have, rest = mirror.there.get(name, 0), b""
    begin = goes_on_at(have, last * SEGMENT_BYTES + numbers.get(last, 0)) if _is_log(name) else have
    for segment in range(begin // SEGMENT_BYTES, last + 1):
        start = max(begin, segment * SEGMENT_BYTES)
        if start >= segment * SEGMENT_BYTES + numbers.get(segment, 0):
            continue
        read = objects.read(keys.grown(name, segment), start=start - segment * SEGMENT_BYTES)
        if read is None or not read.content:
            continue
        content, note, start = rest + read.content, "", start - len(rest)
        if start > have:
            line = content.find(b"\n") + 1
            content, start = (content[line:], start + line) if line < len(content) else (content, start)
            note = left_out(start - have, f"{objects.url}/{keys.part}/grown/{name}")
        mirror = append_grown(folder, mirror, name, start, content, note)
        have = begin = mirror.there[name]
        rest = content[have - start :]  # of a line of the journal that goes on in the next object
    return mirror


def write_beat(objects: Objects, keys: Keys, folder: RunFolder, *, supervised: bool) -> None:
    """Tell that the machine lives, and what its supervisor knew last."""
    try:
        beat: dict[str, Any] = json.loads(heartbeat_file(folder).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        beat = {}
    progress = folder.path / "progress"
    progress_bytes = progress.read_bytes() if progress.exists() else b""
    content = {"beat": beat, "progress": base64.b64encode(progress_bytes).decode(), "supervised": supervised}
    objects.write(keys.beat, json.dumps(content).encode())


def _keep_beat(objects: Objects, keys: Keys, folder: RunFolder) -> None:
    """By the store's clock, whatever those of the machine and this one say; an old one where nobody holds the run."""
    found = objects.read(keys.beat)
    if found is None:
        return
    content = json.loads(found.content)
    keep_beat(folder, content["beat"], progress=base64.b64decode(content["progress"]), age_s=found.age_s,
              supervised=content["supervised"], host="bucket")  # fmt: skip
