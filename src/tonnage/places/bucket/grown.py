"""Files that grow while a run works, as objects of a MiB each: written by the machine, followed by the client."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from typing import Any, Final

from tonnage.files import write_whole
from tonnage.places.bucket.layout import GROWN, SEGMENT_BYTES, Keys
from tonnage.places.bucket.objects import Objects
from tonnage.places.heartbeat import keep_beat
from tonnage.places.ssh.mirror import Mirror, append_grown, read_mirror
from tonnage.runs.folder import RunFolder
from tonnage.runs.liveness import heartbeat_file, hold_lock
from tonnage.runs.logs import MACHINE_LOG

LOCK_WAIT_S: Final = 60.0
MOST_SEGMENTS: Final = 64  # of log to catch up with; more stays there
LOG: Final = "log.txt"
JOURNAL: Final = GROWN[0]


class Writer:
    """The machine's side: brings each file's end to the bucket."""

    def __init__(self, objects: Objects, keys: Keys, folder: RunFolder) -> None:
        self._objects, self._keys, self._folder = objects, keys, folder
        self._written: dict[str, int] = {}

    def write(self, name: str) -> None:
        """Whatever the file has gained since the last call."""
        path = self._folder.path / name
        length = path.stat().st_size if path.exists() else 0
        while (written := self._written.get(name, 0)) < length:
            segment = written // SEGMENT_BYTES
            with path.open("rb") as file:
                file.seek(segment * SEGMENT_BYTES)
                content = file.read(SEGMENT_BYTES)
            self._objects.write(self._keys.grown(name, segment), content)
            self._written[name] = segment * SEGMENT_BYTES + len(content)


def restore(objects: Objects, keys: Keys, folder: RunFolder) -> bool:
    """Lay the files as an earlier machine of the same submission has left them; False where there was none."""
    part, found = _grown_before(objects, keys)
    for name in GROWN:
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
        if mirror.epoch != keys.epoch:
            mirror = _from_its_beginning(mirror, keys.epoch)
        found = objects.sizes(f"{keys.part}/grown/")
        names = {key.removeprefix(f"{keys.part}/grown/").partition("/")[0] for key in found}
        others = sorted(name for name in names if MACHINE_LOG.fullmatch(name))
        for name in (*others, *reversed(GROWN)):  # the journal last: what it tells of is here then
            mirror = _follow_one(objects, keys, folder, mirror, name, found)
        _keep_beat(objects, keys, folder)


def _from_its_beginning(mirror: Mirror, epoch: int) -> Mirror:
    """A newer start has written the files anew: what an older one wrote last may not be in them.

    The journal's lines are compared with those that are here; the other files are laid over those of the older start.
    """
    base = {name: mirror.base.get(name, 0) for name in GROWN}
    kept = {
        name: length for name, length in mirror.here.items() if MACHINE_LOG.fullmatch(name)
    }  # a start begins its own
    return replace(mirror, epoch=epoch, there={JOURNAL: base[JOURNAL]}, here={**kept, **base})


def _follow_one(
    objects: Objects, keys: Keys, folder: RunFolder, mirror: Mirror, name: str, found: dict[str, int]
) -> Mirror:
    numbers = {int(key.rpartition("/")[2]): size for key, size in found.items()
               if key.startswith(f"{keys.part}/grown/{name}/")}  # fmt: skip
    last = max(numbers, default=-1)
    have = mirror.there.get(name, 0)
    skipped = {}
    if (name == LOG or MACHINE_LOG.fullmatch(name)) and last - have // SEGMENT_BYTES > MOST_SEGMENTS:
        skipped = {name: last * SEGMENT_BYTES - have}
        have = last * SEGMENT_BYTES
    for segment in range(have // SEGMENT_BYTES, last + 1):
        start = max(0, have - segment * SEGMENT_BYTES)
        if start >= numbers.get(segment, 0):
            continue
        read = objects.read(keys.grown(name, segment), start=start)
        if read is not None and read.content:
            where = f"{objects.url}/{keys.part}/grown"
            mirror = append_grown(folder, mirror, name, have, read.content, where, skipped)
            have, skipped = mirror.there[name], {}
    return mirror


def write_beat(objects: Objects, keys: Keys, folder: RunFolder, *, supervised: bool) -> None:
    """Tell that the machine lives, and what its supervisor knew last."""
    try:
        beat: dict[str, Any] = json.loads(heartbeat_file(folder).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        beat = {}
    progress = folder.path / "progress"
    told = progress.read_bytes() if progress.exists() else b""
    content = {"beat": beat, "progress": base64.b64encode(told).decode(), "supervised": supervised}
    objects.write(keys.beat, json.dumps(content).encode())


def _keep_beat(objects: Objects, keys: Keys, folder: RunFolder) -> None:
    """By the store's clock, whatever those of the machine and this one say; an old one where nobody holds the run."""
    found = objects.read(keys.beat)
    if found is None:
        return
    told = json.loads(found.content)
    keep_beat(folder, told["beat"], progress=base64.b64decode(told["progress"]), age_s=found.age_s,
              supervised=told["supervised"], host="bucket")  # fmt: skip
