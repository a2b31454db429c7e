"""The part that runs on the other machine: sent with every request, kept nowhere. Standard library only, Python 3.8.

Standard input: a line with the length of this text, this text, a line with the length of the request, the request as
JSON, and what the request says follows. Standard output: the line MARK, a line of JSON, and the bytes it announces.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import hashlib
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, BinaryIO

MARK = "tonnage-agent/1"
CHUNK = 1 << 20
START_WAIT_S = 30.0
LAST_WORDS_S = 90.0
MADE = ("checkpoints", "model", "result.json")  # all that is brought of a run that goes on: the rest changes
OWN = ("spec.json", "job.json", "place.json", "prediction.json")  # the client's; never brought back
FOLLOWED = ("journal.jsonl", "metrics.jsonl", "samples.jsonl", "log.txt")  # brought as they grow, the journal first
APART = ("inputs", "exits")  # folders that stay there
PRUNE_AFTER_S = 3600.0  # an object that no run uses may be one that a client is about to use
PASSING = ("supervisor.pid", "workers.lock", "heartbeat.json", "reserve", "stop", "cancel", "notice", "progress")


if __name__ != "agent":  # there the text of this module is before the agent's own
    from tonnage.runs.log_parts import LOG, end_of, goes_on_at, is_older_part, left_out, open_parts

if TYPE_CHECKING:
    Frame = tuple[str, int, int, str | int, int]  # name, offset, bytes, path or open descriptor, offset in that


class RefusedRequest(Exception):
    """What the client gets: a kind that it knows, and words."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def main(request: dict[str, Any], body: BinaryIO, out: BinaryIO) -> None:
    """Answer one request."""
    verbs = {
        "look": look,
        "want": want,
        "take": take,
        "start": start,
        "tell": tell,
        "ask": ask,
        "list": listing,
        "bring": bring,
        "end": end,
        "remove": remove,
        "orphans": orphans,
    }
    frames: list[Frame] = []
    try:
        answer = verbs[request["verb"]](request, body, frames)
    except RefusedRequest as error:
        answer = {"refused": error.kind, "message": str(error)}
    except OSError as error:
        answer = {"refused": "disk" if error.errno in (28, 122) else "system", "message": str(error)}
    answer["frames"] = [[name, offset, size] for name, offset, size, _, _ in frames]
    out.write((MARK + "\n" + json.dumps(answer) + "\n").encode())
    for _, _, size, source, at in frames:
        copy_out(source, at, size, out)
    out.flush()


# before


def look(request: dict[str, Any], _body: BinaryIO, _frames: list[Frame]) -> dict[str, Any]:
    """What this machine has and is doing."""
    import importlib.util

    folder = request["folder"]
    above = folder
    while not os.path.exists(above):
        above = os.path.dirname(above)
    named = ("MemTotal",)
    with open("/proc/meminfo") as file:
        memory = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in file if line.split(":")[0] in named}
    return {
        "time": time.time(),
        "python": platform.python_version(),
        "executable": sys.executable,
        "missing": [name for name in request["modules"] if importlib.util.find_spec(name) is None],
        "writable": os.access(above, os.W_OK),
        "free_bytes": shutil.disk_usage(above).free,
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": memory["MemTotal"],
        "load": os.getloadavg()[0],
        "gpus": gpus(),
        "driver": driver() if shutil.which("nvidia-smi") else None,
        "packages": versions(request.get("packages", ())),
        "runs": [tag for _, tag in tagged("tonnage:")],
    }


def gpus() -> list[list[Any]] | None:
    """[name, memory in MiB, memory in use in MiB] of each GPU, as nvidia-smi tells; None where it cannot."""
    words = ["nvidia-smi", "--query-gpu=name,memory.total,memory.used", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    if done.returncode:
        return None
    rows = [line.rsplit(",", 2) for line in done.stdout.decode().splitlines() if line.count(",") >= 2]
    return [[name.strip(), float(total), float(used)] for name, total, used in rows]


def driver() -> str | None:
    """NVIDIA's, as nvidia-smi tells; None where it cannot."""
    words = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = done.stdout.decode().split()
    return found[0] if done.returncode == 0 and found else None


def versions(names: Iterable[str]) -> dict[str, str]:
    """Of those packages that this Python has."""
    from importlib.metadata import PackageNotFoundError, version

    found = {}
    for name in names:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def want(request: dict[str, Any], _body: BinaryIO, _frames: list[Frame]) -> dict[str, Any]:
    """Bytes that are here of each object: all, a part, or none; and of the run's growing files."""
    objects = os.path.join(request["folder"], "objects")
    os.makedirs(objects, mode=0o700, exist_ok=True)
    found = {}
    for name in request["objects"]:
        whole, part = os.path.join(objects, name), os.path.join(objects, name + ".part")
        unpacked = os.path.join(request["folder"], "code", name)
        here = os.path.exists(whole) or os.path.isdir(unpacked)
        found[name] = -1 if here else os.path.getsize(part) if os.path.exists(part) else 0
    saved = os.path.join(request["run"], "checkpoints")
    return {
        "here": found,
        "sizes": sizes(request["run"]),
        "saved": sorted(os.listdir(saved)) if os.path.isdir(saved) else [],
    }


def sizes(run: str) -> dict[str, int]:
    paths = {name: os.path.join(run, name) for name in FOLLOWED}
    return {
        name: end_of(path) if name == LOG else os.path.getsize(path)
        for name, path in paths.items() if os.path.exists(path)
    }  # fmt: skip


def take(request: dict[str, Any], body: BinaryIO, _frames: list[Frame]) -> dict[str, Any]:
    """Parts of objects, one after another; each is whole and verified, or stays a part."""
    objects = os.path.join(request["folder"], "objects")
    for name, offset, size in request["parts"]:
        part = os.path.join(objects, name + ".part")
        with open(part, "ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if os.path.getsize(part) != offset:
                raise RefusedRequest("changed", "another client sends " + name)
            left = size
            while left:
                block = body.read(min(CHUNK, left))
                if not block:
                    raise RefusedRequest("cut", "the connection ended")
                file.write(block)
                left -= len(block)
            file.flush()
            os.fsync(file.fileno())
            if digest(part) != name:
                os.unlink(part)
                raise RefusedRequest("damaged", "an object did not arrive as it was sent: " + name)
            os.replace(part, os.path.join(objects, name))
    return {}


def digest(path: str) -> str:
    total = hashlib.sha256()
    with open(path, "rb") as file:
        for block in iter(lambda: file.read(CHUNK), b""):
            total.update(block)
    return total.hexdigest()


# the run


def start(request: dict[str, Any], _body: BinaryIO, _frames: list[Frame]) -> dict[str, Any]:
    """Start the supervisor of a submission, once: sent again it finds the one there is."""
    run = request["run"]
    os.makedirs(run, mode=0o700, exist_ok=True)
    with locked(os.path.join(run, "lease.lock"), exclusive=True):
        lease = read_lease(run)
        if lease.get("token") == request["token"] and (held(run) or lease.get("pid") or has_grown(run, lease)):
            return {"pid": lease.get("pid") or holder(run)}
        if lease.get("number", 0) > request["number"]:
            raise RefusedRequest("superseded", f"submission {lease['number']} is here already")
        wait_for_last_words(run)
        for name, path in request["inputs"]:
            link(os.path.join(request["folder"], "objects", name), os.path.join(run, path))
        for name, path in request["copies"]:
            copy_in(os.path.join(request["folder"], "objects", name), os.path.join(run, path))
        for name in request["code"]:
            unpack(request["folder"], name)
        for name in ("stop", "cancel", "notice"):
            remove_file(os.path.join(run, name))
        for path, text in request["files"]:
            whole(os.path.join(run, path), base64.b64decode(text))
        for name in ("checkpoints", "exits"):
            os.makedirs(os.path.join(run, name), mode=0o700, exist_ok=True)
        lease = {
            "token": request["token"],
            "number": request["number"],
            "tag": request["tag"],
            "journal": sizes(run).get("journal.jsonl", 0),
        }
        write_lease(run, lease)
        pid = spawn(request, run)
        write_lease(run, dict(lease, pid=pid))
        return {"pid": pid}


def has_grown(run: str, lease: dict[str, Any]) -> bool:
    """Whether a supervisor has written since the lease was: then it was started, though nobody heard of it."""
    return bool(sizes(run).get("journal.jsonl", 0) > lease.get("journal", 0))


def wait_for_last_words(run: str) -> None:
    """A supervisor of the submission before may still report its end; one that works is not superseded."""
    until = time.monotonic() + LAST_WORDS_S
    while held(run):
        if time.monotonic() > until or not said_its_end(run):
            raise RefusedRequest("busy", "an older submission works on this run")
        time.sleep(0.1)


def said_its_end(run: str) -> bool:
    ends = ("succeeded", "failed", "stopped", "cancelled")
    try:
        with open(os.path.join(run, "journal.jsonl"), "rb") as file:
            file.seek(max(0, os.path.getsize(file.name) - 65536))
            last = json.loads(file.read().splitlines()[-1])
    except (OSError, ValueError, IndexError):
        return False
    return bool(last.get("kind") in ends)


def spawn(request: dict[str, Any], run: str) -> int:
    """A supervisor in a session of its own: it outlives this program, the connection and the client."""
    env = dict(os.environ, TONNAGE_TAG=request["tag"], **request["env"])
    log = os.path.join(run, "supervisor.log")
    with open(log, "ab") as out, open(os.devnull, "rb") as nothing:
        process = subprocess.Popen(
            request["command"], stdin=nothing, stdout=out, stderr=out, env=env, cwd=run, start_new_session=True
        )
    until = time.monotonic() + START_WAIT_S
    while time.monotonic() < until:
        code = process.poll()
        if code is None and holder(run) == process.pid:
            return process.pid
        if code == 0:
            return process.pid
        if code is not None:
            break
        time.sleep(0.02)
    with contextlib.suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)
    with open(log, "rb") as file:
        file.seek(max(0, os.path.getsize(log) - 800))
        said = file.read().decode(errors="replace").strip()
    raise RefusedRequest("start", "the supervisor did not start: " + said)


def tell(request: dict[str, Any], _body: BinaryIO, frames: list[Frame]) -> dict[str, Any]:
    """Who holds the run, its lease and heartbeat, and what its files have gained since the client's offsets."""
    run = request["run"]
    if not os.path.isdir(run):
        return {"there": False, "supervised": False}
    with locked(os.path.join(run, "lease.lock"), exclusive=False):
        supervised, lease = held(run), read_lease(run)
    beat, age = read_json(os.path.join(run, "heartbeat.json")), None
    if beat:
        age = max(0.0, time.time() - os.path.getmtime(os.path.join(run, "heartbeat.json")))
    progress = read_bytes(os.path.join(run, "progress"))
    answer = {
        "there": True,
        "supervised": supervised,
        "lease": lease,
        "beat": beat,
        "age": age,
        "skipped": {},
        "progress": base64.b64encode(progress).decode(),
        "more": False,
    }
    for name in FOLLOWED:
        path, offset = os.path.join(run, name), request["offsets"].get(name, 0)
        if name == LOG:
            tell_log(path, offset, request["chunk"], frames, answer)
            continue
        if not os.path.exists(path):
            continue
        size = os.path.getsize(path)
        sent = max(0, min(size - offset, request["chunk"]))
        answer["more"] = answer["more"] or size - offset > sent
        if sent:
            frames.append((name, offset, sent, path, offset))
    return answer


def tell_log(path: str, have: int, most: int, frames: list[Frame], answer: dict[str, Any]) -> None:
    """The log's next piece, of the part that has it; where the client is far behind, of its end."""
    parts = open_parts(path)
    end = parts[-1][0] + parts[-1][1] if parts else 0
    begin = goes_on_at(have, end)
    for begins, size, source in parts:
        start = max(begin, begins)
        if start >= begins + size or any(name == LOG for name, *_ in frames):
            os.close(source)
            continue
        if start > have:  # some of it stays, or has gone with the oldest part
            start = begins + line_after(source, start - begins, size)
            answer["skipped"][LOG] = left_out(start - have, path, gone=max(0, parts[0][0] - have))
        sent = min(begins + size - start, most)
        answer["more"] = answer["more"] or end > start + sent
        frames.append((LOG, start, sent, source, start - begins))


def line_after(source: int, offset: int, size: int) -> int:
    """Where the next line begins; the same place where none does soon."""
    block = os.pread(source, CHUNK, offset) if offset else b""
    begin = offset + block.find(b"\n") + 1
    return begin if begin < size else offset


def ask(request: dict[str, Any], _body: BinaryIO, _frames: list[Frame]) -> dict[str, Any]:
    """Leave a request for the supervisor, where one holds the run."""
    run = request["run"]
    if not os.path.isdir(run) or not held(run):
        return {"supervised": False}
    whole(os.path.join(run, request["name"]), request["text"].encode())
    return {"supervised": True}


# after


def listing(request: dict[str, Any], _body: BinaryIO, _frames: list[Frame]) -> dict[str, Any]:
    """[path, bytes, SHA-256] of all that the run has made and that is not followed."""
    run, goes_on = request["run"], held(request["run"])
    found: list[list[Any]] = []
    for above, folders, names in os.walk(run):
        apart = APART if above == run else ()
        folders[:] = [one for one in folders if not one.startswith(".") and one not in apart]
        for name in names:
            path = os.path.join(above, name)
            inside = os.path.relpath(path, run)
            passing = inside in OWN + FOLLOWED + PASSING or name.startswith(("lease.", ".draft-")) or ".lock" in name
            passing = passing or is_older_part(inside)
            early = goes_on and inside.split(os.sep)[0] not in MADE
            if not passing and not early and os.path.isfile(path):
                with contextlib.suppress(FileNotFoundError):  # an old checkpoint that has just gone
                    found.append([inside, os.path.getsize(path), digest(path)])
    return {"files": found}


def bring(request: dict[str, Any], _body: BinaryIO, frames: list[Frame]) -> dict[str, Any]:
    """Files from an offset on."""
    for inside, offset, size in request["files"]:
        path = os.path.join(request["run"], inside)
        if not os.path.exists(path):
            raise RefusedRequest("changed", inside + " is gone")
        if size > offset:
            frames.append((inside, offset, size - offset, path, offset))
    return {}


def end(request: dict[str, Any], _body: BinaryIO, _frames: list[Frame]) -> dict[str, Any]:
    """End the supervisor of a run and all that it started."""
    for pid, tag in tagged(request["tag"]):
        kill_family(pid, tag)
    return {}


def remove(request: dict[str, Any], _body: BinaryIO, _frames: list[Frame]) -> dict[str, Any]:
    """Nothing of the run stays, nor objects that only it used."""
    run = request["run"]
    for pid, tag in tagged(request["tag"]):
        kill_family(pid, tag)
    shutil.rmtree(run, ignore_errors=True)
    objects = os.path.join(request["folder"], "objects")
    for name in os.listdir(objects) if os.path.isdir(objects) else ():
        path = os.path.join(objects, name)
        with contextlib.suppress(OSError):
            seen = os.stat(path)
            if seen.st_nlink == 1 and time.time() - seen.st_mtime > PRUNE_AFTER_S:
                os.unlink(path)
    return {"left": os.path.exists(run)}


def orphans(request: dict[str, Any], _body: BinaryIO, _frames: list[Frame]) -> dict[str, Any]:
    """[process, tag] of every supervisor here whose tag begins so."""
    return {"found": [[pid, tag] for pid, tag in tagged(request["prefix"])]}


# processes


def tagged(prefix: str) -> Iterator[tuple[int, str]]:
    """(process, tag) of the supervisors of this user whose tag begins so: not of their children, who inherit it."""
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        words = read_bytes("/proc/" + entry + "/cmdline").split(b"\0")
        if words[1:3] != [b"-m", b"tonnage.supervisor"]:
            continue
        for line in read_bytes("/proc/" + entry + "/environ").split(b"\0"):
            name, _, value = line.partition(b"=")
            tag = value.decode(errors="replace")
            if name == b"TONNAGE_TAG" and tag.startswith(prefix):
                yield int(entry), tag


def kill_family(pid: int, tag: str) -> None:
    """SIGKILL to a supervisor first, then to all below it; only while the process still bears the tag."""
    if (pid, tag) not in list(tagged(tag)):
        return
    family = [pid, *below(pid)]
    for one in family:
        with contextlib.suppress(ProcessLookupError):
            os.kill(one, signal.SIGKILL)
    until = time.monotonic() + 10
    while any(alive(one) for one in family) and time.monotonic() < until:
        time.sleep(0.02)


def below(pid: int) -> list[int]:
    parents: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            fields = read_bytes("/proc/" + entry + "/stat").rpartition(b")")[2].split()
            if len(fields) > 1:
                parents.setdefault(int(fields[1]), []).append(int(entry))
    found: list[int] = []
    left = [pid]
    while left:
        children = parents.get(left.pop(), [])
        found += children
        left += children
    return found


def alive(pid: int) -> bool:
    state = read_bytes(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    return bool(state) and state[0] != b"Z"


# files


def held(run: str) -> bool:
    """Whether a supervisor holds the run's lock."""
    try:
        with open(os.path.join(run, "supervisor.pid")) as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def holder(run: str) -> int | None:
    """The process id in the run's lock, where it is held."""
    text = read_bytes(os.path.join(run, "supervisor.pid")).strip()
    return int(text) if text.isdigit() and held(run) else None


@contextlib.contextmanager
def locked(path: str, *, exclusive: bool) -> Iterator[None]:
    with open(path, "ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH)
        yield


def read_lease(run: str) -> dict[str, Any]:
    return read_json(os.path.join(run, "lease.json")) or {}


def write_lease(run: str, lease: dict[str, Any]) -> None:
    whole(os.path.join(run, "lease.json"), json.dumps(lease).encode())


def read_json(path: str) -> Any:
    try:
        return json.loads(read_bytes(path) or b"null")
    except ValueError:
        return None


def read_bytes(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def draft_of(path: str) -> str:
    """Beside a file, until it is whole: no other process writes there."""
    return f"{path}.draft-{os.getpid()}"


def whole(path: str, content: bytes) -> None:
    """Replace a file: a reader sees the old one or the new one."""
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    beside = draft_of(path)
    try:
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except OSError:
        remove_file(beside)
        raise


def remove_file(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def link(source: str, path: str) -> None:
    """An input: another name of the object, which nobody writes to."""
    if os.path.exists(path) and os.path.samefile(source, path):
        return
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    beside = draft_of(path)
    os.link(source, beside)
    os.replace(beside, path)


def copy_in(source: str, path: str) -> None:
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    beside = draft_of(path)
    try:
        shutil.copyfile(source, beside)
        os.replace(beside, path)
    except OSError:
        remove_file(beside)
        raise


def unpack(folder: str, name: str) -> None:
    """A wheel or archive as a folder that PYTHONPATH names; there once for all runs."""
    goal = os.path.join(folder, "code", name)
    if os.path.isdir(goal):
        return
    beside = draft_of(goal)
    try:
        with zipfile.ZipFile(os.path.join(folder, "objects", name)) as archive:
            archive.extractall(beside)
        with contextlib.suppress(FileExistsError):
            os.rename(beside, goal)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def copy_out(path: str | int, offset: int, size: int, out: BinaryIO) -> None:
    """Exactly so many bytes: what a file has lost meanwhile is sent as zeros, and the client's hash tells."""
    left = size
    with contextlib.suppress(OSError), open(path, "rb") as file:
        file.seek(offset)
        while left:
            block = file.read(min(CHUNK, left))
            if not block:
                break
            out.write(block)
            left -= len(block)
    while left:
        out.write(bytes(min(CHUNK, left)))
        left -= min(CHUNK, left)


if __name__ == "agent":  # as the client runs it
    _body = sys.stdin.buffer
    main(json.loads(_body.read(int(_body.readline()))), _body, sys.stdout.buffer)
