"""The client's copy of a run that lies elsewhere: what grows there is appended here, what is done is fetched whole.

`mirror.json` holds how far each growing file has been read, and of which submission. It is written after the bytes it
speaks of: a client that dies in between leaves bytes that are not noted; the next one writes them again in their place.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import time
from collections.abc import Iterable
from dataclasses import asdict, field, replace
from pathlib import Path, PurePosixPath
from typing import Any, Final

from tonnage.errors import TonnageError
from tonnage.files import PRIVATE, make_private_folder, move_whole, write_whole
from tonnage.places.ssh.agent import FOLLOWED
from tonnage.places.ssh.line import AgentRefusal, ConnectionCut, SSHConnection
from tonnage.runs.folder import RunFolder
from tonnage.runs.liveness import hold_lock, keep_beat
from tonnage.values import dataclass

CHUNK_BYTES: Final = 8 << 20  # of one file, in one answer
JOURNAL: Final = "journal.jsonl"
INCOMING: Final = ".incoming"
TRIES: Final = 4
LOCK_WAIT_S: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Mirror:
    """How far the growing files of a run have been read."""

    token: str  # of the submission they belong to
    there: dict[str, int] = field(default_factory=dict)  # bytes read of each
    here: dict[str, int] = field(default_factory=dict)  # length of each here, when that was so
    epoch: int = 0  # of the start that wrote them, where the place counts starts
    base: dict[str, int] = field(default_factory=dict)  # length of each here before the submission: for a newer start


def read_mirror(folder: RunFolder) -> Mirror | None:
    """None where nothing was read yet."""
    try:
        return Mirror(**json.loads(folder.mirror_file.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None


def write_mirror(folder: RunFolder, mirror: Mirror) -> None:
    write_whole(folder.mirror_file, json.dumps(asdict(mirror)) + "\n", durable=False)


def follow(line: SSHConnection, folder: RunFolder, run: str, token: str) -> dict[str, Any]:
    """Append what the run has written since, and give what the machine says of it. ConnectionCut where that fails.

    `there` is False where nothing of the run is there; where its lease is another submission's nothing is appended.
    """
    with hold_lock(folder.path / "mirror.lock", wait_s=LOCK_WAIT_S):
        while True:
            mirror = read_mirror(folder) or Mirror(token=token)
            if mirror.token != token:  # the client died before it had sent this submission
                mirror = Mirror(token=token, here={name: _length(folder.path / name) for name in FOLLOWED})
            reply = line.ask("tell", {"run": run, "offsets": mirror.there, "chunk": CHUNK_BYTES})
            answer = reply.answer
            if not answer["there"] or answer["lease"].get("token") != token:
                reply.close()
                return answer
            for name, offset, _, blocks in reply.frames():
                note = answer["skipped"].get(name, "")
                mirror = append_grown(folder, mirror, name, offset, b"".join(blocks), note)
            if not answer["more"]:
                keep_beat(
                    folder, answer["beat"] or {}, progress=base64.b64decode(answer["progress"]),
                    age_s=float(answer["age"] or 0.0), supervised=answer["supervised"], host=f"ssh:{line.place.host}",
                )  # fmt: skip
                return answer


def append_grown(folder: RunFolder, mirror: Mirror, name: str, offset: int, content: bytes, note: str = "") -> Mirror:
    """The bytes at the end of the file here. What a client that died had appended and not noted is cut off first.

    `note`: what is there before them, for bytes that were left out.
    """
    path = folder.path / name
    if name == JOURNAL:
        content = content[: content.rfind(b"\n") + 1]
        _append_lines(path, content, since=mirror.here.get(name, 0))
    else:
        _write_at(path, mirror.here.get(name, 0), note.encode() + content)
    there = {**mirror.there, name: offset + len(content)}
    found = replace(mirror, there=there, here={**mirror.here, name: _length(path)})
    write_mirror(folder, found)
    return found


def _write_at(path: Path, offset: int, content: bytes) -> None:
    """Nobody else writes to the file: what a client that died had appended and not noted is written over."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, PRIVATE)
    with os.fdopen(descriptor, "wb") as file:
        file.truncate(offset)
        file.seek(offset)
        file.write(content)


def _append_lines(path: Path, content: bytes, *, since: int) -> None:
    """The client writes to the journal too: lines that are there since the last note already are not written again."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, PRIVATE)
    with os.fdopen(descriptor, "r+b", buffering=0) as file:
        file.seek(since)
        newer = file.read() or b""
        have = set(newer.splitlines(keepends=True))
        missing = b"".join(line for line in content.splitlines(keepends=True) if line not in have)
        cut = b"\n" if newer and not newer.endswith(b"\n") else b""
        if missing:
            file.write(cut + missing)


def _length(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def fetch_made(line: SSHConnection, folder: RunFolder, run: str) -> int:
    """Bring every file that the run has made, verified; a broken transfer goes on where it broke. How many came."""
    last: TonnageError | None = None
    came = 0
    for attempt in range(TRIES):
        try:
            reply = line.ask("list", {"run": run})
            reply.close()
            missing = [one for one in reply.answer["files"] if not _is_here(folder, *one)]
            brought = _bring(line, folder, run, missing) if missing else 0
            came += brought
            if brought == len(missing):  # a run that goes on has made more meanwhile
                shutil.rmtree(folder.path / INCOMING, ignore_errors=True)
                return came
        except ConnectionCut as error:
            last = error
            time.sleep(0.2 * attempt)
        except AgentRefusal as error:
            if error.kind != "changed":
                raise
            last = error
    hint = f"`tonnage places collect {folder.path.name}` goes on with it"
    raise last or TonnageError(f"{line.name}: what came is not what lies there", hint=hint)


def _is_here(folder: RunFolder, inside: str, size: int, digest: str) -> bool:
    path = folder.path / _safe(inside)
    if not path.is_file() or path.stat().st_size != size:
        return False
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == digest


def _bring(line: SSHConnection, folder: RunFolder, run: str, missing: Iterable[tuple[str, int, str]]) -> int:
    wanted = {}
    for inside, size, digest in missing:
        name = hashlib.sha256(inside.encode()).hexdigest()[:16]  # files of one content are brought apart
        beside = folder.path / INCOMING / f"{digest}-{size}-{name}"
        make_private_folder(beside.parent)
        wanted[inside] = (beside, _length(beside), size, digest)
    asked = [[inside, have, size] for inside, (_, have, size, _) in wanted.items() if have < size]
    for inside, _, _, blocks in line.ask("bring", {"run": run, "files": asked}).frames():
        with wanted[inside][0].open("ab") as file:
            for block in blocks:
                file.write(block)
    came = 0
    for inside, (beside, _, size, digest) in wanted.items():
        if not size:
            beside.touch(mode=PRIVATE)
        with beside.open("rb") as file:
            whole = hashlib.file_digest(file, "sha256").hexdigest() == digest
        if not whole:
            beside.unlink()  # the next try brings it from its beginning
            continue
        goal = folder.path / _safe(inside)
        make_private_folder(goal.parent)
        beside.chmod(PRIVATE)
        move_whole(beside, goal)
        came += 1
    return came


def _safe(inside: str) -> PurePosixPath:
    """A path that stays in the run's folder, whatever the other machine says."""
    path = PurePosixPath(inside)
    if path.is_absolute() or ".." in path.parts:
        raise TonnageError(
            f"the place names a file outside the run's folder: {inside}", hint="do not trust that machine"
        )
    return path
